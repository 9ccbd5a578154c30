"""The one manifest that a tag or a digest names, in an OCI layout."""

import json
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.oci_layout import single_manifest_layout
from sifmod.image.reference import parse
from support.command import run
from support.images import Images


@pytest.fixture
def layout(images: Images, tmp_path: Path) -> Path:
    """Two images, with the tags `one` and `two`."""
    for tag in ("one", "two"):
        copy(f"oci:{images.tiny_layout(tag)}", f"oci:{tmp_path / 'layout'}:{tag}")
    return tmp_path / "layout"


def copy(source: str, target: str) -> None:
    run(("skopeo", "--insecure-policy", "copy", "--quiet", source, target)).ok()


def digests(layout: Path) -> dict[str, str]:
    """The digest of each manifest by its tag."""
    manifests = json.loads((layout / "index.json").read_text())["manifests"]
    name = "org.opencontainers.image.ref.name"
    return {manifest.get("annotations", {}).get(name, ""): manifest["digest"] for manifest in manifests}


def chosen(source: str, layout: Path, tmp_path: Path) -> str:
    """The digest of the manifest that `source` names; the layout made of it is read by skopeo, not by us."""
    single_manifest_layout(parse(source), layout, tmp_path / "single")
    return run(("skopeo", "inspect", "--format", "{{.Digest}}", f"oci:{tmp_path / 'single'}")).ok().stdout.strip()


def refused(source: str, layout: Path, tmp_path: Path) -> FetchError:
    with pytest.raises(FetchError) as caught:
        single_manifest_layout(parse(source), layout, tmp_path / "single")
    assert not (tmp_path / "single").exists()
    return caught.value


def test_a_tag_and_a_digest_name_one_image(layout: Path, tmp_path: Path) -> None:
    known = digests(layout)
    assert sorted(known) == ["one", "two"]
    assert chosen(f"oci:{layout}:two", layout, tmp_path) == known["two"]


def test_a_digest_names_one_image(layout: Path, tmp_path: Path) -> None:
    wanted = digests(layout)["one"]
    assert chosen(f"oci:{layout}:two@{wanted}", layout, tmp_path) == wanted


@pytest.mark.parametrize("tag", ["", ":any"])
def test_a_single_image_without_a_tag_needs_none(images: Images, tmp_path: Path, tag: str) -> None:
    layout = images.tiny_layout()
    assert chosen(f"oci:{layout}{tag}", layout, tmp_path) == digests(layout)[""]


def test_what_the_layout_does_not_have_is_told_with_what_it_has(layout: Path, tmp_path: Path) -> None:
    error = refused(f"oci:{layout}:three", layout, tmp_path)
    assert error.message == f"{layout}: asked for the tag three, which 0 of its 2 images have"
    assert error.hint == "it has: one, two"
    assert "asked for no tag, which 2 of its 2 images have" in refused(f"oci:{layout}", layout, tmp_path).message
    missing = "sha256:" + "0" * 64
    assert f"asked for {missing}" in refused(f"oci:{layout}@{missing}", layout, tmp_path).message


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"manifests": 1}', '{"manifests": [{}]}', "[" * 10_000, "\xff"])
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: str) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "oci-layout").write_text("{}")
    (layout / "index.json").write_text(index, "latin-1")
    assert refused(f"oci:{layout}", layout, tmp_path).message.endswith("index.json is not the index of an OCI layout")


def test_what_is_no_layout_is_refused(tmp_path: Path) -> None:
    assert "there is nothing" in refused("oci:x", tmp_path / "no", tmp_path).message
    assert "it has no oci-layout and index.json" in refused("oci:x", tmp_path, tmp_path).message
