"""The one manifest that a tag or a digest names, in an OCI layout."""

import hashlib
import json
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.oci_layout import single_manifest_layout
from sifmod.image.reference import parse
from support.command import run
from support.images import Images
from support.oci import Entry, layer, write_layout


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
    single_manifest_layout(parse(source), layout, "amd64", tmp_path / "single")
    return run(("skopeo", "inspect", "--format", "{{.Digest}}", f"oci:{tmp_path / 'single'}")).ok().stdout.strip()


def refused(source: str, layout: Path, tmp_path: Path) -> FetchError:
    with pytest.raises(FetchError) as caught:
        single_manifest_layout(parse(source), layout, "amd64", tmp_path / "single")
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


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", "null", '{"manifests": 1}', '{"manifests": [{}]}', "[" * 10_000, "\xff"]
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: str) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "oci-layout").write_text("{}")
    (layout / "index.json").write_text(index, "latin-1")
    message = refused(f"oci:{layout}", layout, tmp_path).message
    assert message.startswith(str(layout / "index.json"))
    assert "an OCI layout has there" in message


def test_what_is_no_layout_is_refused(tmp_path: Path) -> None:
    assert "there is nothing" in refused("oci:x", tmp_path / "no", tmp_path).message
    assert "it has no oci-layout and index.json" in refused("oci:x", tmp_path, tmp_path).message


def test_an_image_for_another_architecture_is_refused(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", (layer((Entry("bin"),)),), arch="arm64")
    assert refused(f"oci:{layout}", layout, tmp_path).message == f"{layout}: the image is for arm64, expected amd64"


def test_of_an_image_for_several_architectures_ours_is_taken(tmp_path: Path) -> None:
    """An index in the layout's index, as `skopeo copy --all` writes it."""
    layout = tmp_path / "layout"
    layers = (layer((Entry("bin"),)),)
    arches = {arch: write_layout(tmp_path / arch, layers, arch=arch) for arch in ("arm64", "amd64", "s390x")}
    entries = [{**entry(made), "platform": {"architecture": arch, "os": "linux"}} for arch, made in arches.items()]
    for made in arches.values():
        run(("cp", "-r", f"{made}/.", layout)).ok()
    put_index(layout, entries)
    assert chosen(f"oci:{layout}", layout, tmp_path) == entry(arches["amd64"])["digest"]
    run(("rm", "-r", tmp_path / "single")).ok()
    put_index(layout, entries[::2])
    message = refused(f"oci:{layout}", layout, tmp_path).message
    assert message == f"{layout}: the image does not exist for amd64, only for arm64, s390x"


def entry(layout: Path) -> dict[str, object]:
    (found,) = json.loads((layout / "index.json").read_text())["manifests"]
    return dict(found)


def put_index(layout: Path, entries: list[dict[str, object]]) -> None:
    kind = "application/vnd.oci.image.index.v1+json"
    content = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    outer = {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [outer]}))


@pytest.mark.parametrize("blob", [b"", b"[]", b"{}", b'{"config": {"digest": "sha256:../../x"}}', None])
def test_a_damaged_manifest_is_refused(images: Images, tmp_path: Path, blob: bytes | None) -> None:
    layout = tmp_path / "layout"
    run(("cp", "-r", images.tiny_layout(), layout)).ok()
    manifest = layout / "blobs" / "sha256" / str(entry(layout)["digest"]).removeprefix("sha256:")
    manifest.unlink() if blob is None else manifest.write_bytes(blob)
    assert str(layout) in refused(f"oci:{layout}", layout, tmp_path).message
