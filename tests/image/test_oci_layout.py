"""The one manifest that a tag or a digest names, in an OCI layout."""

import hashlib
import json
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.oci.image import Stored, files_below, read_layout
from sifmod.image.sources.source_kinds import parse
from support.command import run
from support.images import Images
from support.oci_index import entry, put_index, write_multi


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


def chosen(source: str, layout: Path, arch: str = "amd64") -> str:
    """The digest of the manifest that `source` names."""
    return read_layout(parse(source), files_below(layout), arch).manifest.digest


def refused(source: str, layout: Path, arch: str = "amd64") -> FetchError:
    with pytest.raises(FetchError) as caught:
        read_layout(parse(source), files_below(layout), arch)
    assert caught.value.message.isprintable()
    return caught.value


def test_a_tag_names_one_image(layout: Path) -> None:
    known = digests(layout)
    assert sorted(known) == ["one", "two"]
    assert chosen(f"oci:{layout}:two", layout) == known["two"]


def test_a_digest_names_one_image(layout: Path) -> None:
    wanted = digests(layout)["one"]
    assert chosen(f"oci:{layout}:two@{wanted}", layout) == wanted


@pytest.mark.parametrize("tag", ["", ":any"])
def test_a_single_image_without_a_tag_needs_none(images: Images, tag: str) -> None:
    layout = images.tiny_layout()
    assert chosen(f"oci:{layout}{tag}", layout) == digests(layout)[""]


def test_what_the_layout_does_not_have_is_told_with_what_it_has(layout: Path) -> None:
    error = refused(f"oci:{layout}:three", layout)
    assert error.message == f"{layout}: asked for the tag three, which 0 of its 2 images have"
    assert error.hint == "it has: one, two"
    assert "no tag was given, and it has 2 images" in refused(f"oci:{layout}", layout).message
    missing = "sha256:" + "0" * 64
    assert f"asked for {missing}" in refused(f"oci:{layout}@{missing}", layout).message


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", "null", '{"manifests": 1}', '{"manifests": [{}]}', "[" * 10_000, "\xff"]
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: str) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "oci-layout").write_text("{}")
    (layout / "index.json").write_text(index, "latin-1")
    message = refused(f"oci:{layout}", layout).message
    assert message.startswith(str(layout / "index.json"))


def test_what_is_no_layout_is_refused(tmp_path: Path) -> None:
    assert "it lacks oci-layout or index.json" in refused("oci:x", tmp_path).message
    assert "it lacks oci-layout or index.json" in refused("oci:x", tmp_path / "none").message


def test_the_blobs_lie_in_the_layout(images: Images) -> None:
    layout = images.tiny_layout()
    local = read_layout(parse(f"oci:{layout}"), files_below(layout), "amd64")
    for descriptor, source in zip(local.manifest.layers, local.sources, strict=True):
        assert isinstance(source.where, Stored)
        content = source.where.path.read_bytes()
        assert (source.where.offset, len(content)) == (0, descriptor.size)
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor.digest
    assert local.config.diff_ids == tuple(layer.digest for layer in local.manifest.layers)


def test_of_an_image_for_several_architectures_ours_is_taken(tmp_path: Path) -> None:
    """An index in the layout's index, as `skopeo copy --all` writes it."""
    layout = write_multi(tmp_path / "layout", ("arm64", "amd64", "s390x"))
    found = {arch: read_layout(parse(f"oci:{layout}"), files_below(layout), arch) for arch in ("amd64", "arm64")}
    assert [one.config.arch for one in found.values()] == ["amd64", "arm64"]
    outer = entry(layout)["digest"]
    assert {one.manifest.index_digest for one in found.values()} == {outer}
    inner = found["arm64"].manifest.digest
    assert chosen(f"oci:{layout}@{inner}", layout) == inner
    message = refused(f"oci:{layout}", layout, "riscv64").message
    assert message == (
        f"{layout}: the image does not exist for linux/riscv64; it has: linux/amd64, linux/arm64, linux/s390x"
    )


def test_a_flat_list_of_architectures_is_one_image(tmp_path: Path) -> None:
    """As some builders write it: all of one tag, side by side in the layout's index."""
    layout = write_multi(tmp_path / "layout", ("arm64", "amd64"))
    inner = json.loads((layout / "blobs/sha256" / str(entry(layout)["digest"])[7:]).read_text())
    (layout / "index.json").write_text(json.dumps(inner))
    assert read_layout(parse(f"oci:{layout}"), files_below(layout), "arm64").config.arch == "arm64"
    assert "no tag was given, and it has 2 images" in refused(f"oci:{layout}", layout, "s390x").message


def test_too_many_indexes_inside_indexes_are_refused(tmp_path: Path) -> None:
    layout = write_multi(tmp_path / "layout", ("amd64",))
    for _ in range(4):
        put_index(layout, [entry(layout)])
    assert "indexes inside indexes" in refused(f"oci:{layout}", layout).message


@pytest.mark.parametrize("blob", [b"", b"[]", b"{}", b'{"config": {"digest": "sha256:../../x"}}', None])
def test_a_damaged_manifest_is_refused(images: Images, tmp_path: Path, blob: bytes | None) -> None:
    layout = copied(images, tmp_path)
    manifest = layout / "blobs" / "sha256" / str(entry(layout)["digest"]).removeprefix("sha256:")
    manifest.unlink() if blob is None else manifest.write_bytes(blob)
    message = refused(f"oci:{layout}", layout).message
    assert str(layout) in message
    assert ("is not complete" if blob is None else "has a wrong digest") in message


def test_a_damaged_config_is_refused(images: Images, tmp_path: Path) -> None:
    layout = copied(images, tmp_path)
    config = read_layout(parse(f"oci:{layout}"), files_below(layout), "amd64").manifest.config
    with (layout / "blobs" / "sha256" / config.digest[7:]).open("ab") as file:
        file.write(b" ")
    assert "the config has a wrong digest" in refused(f"oci:{layout}", layout).message


def test_a_layer_that_is_missing_or_cut_is_told(images: Images, tmp_path: Path) -> None:
    layout = copied(images, tmp_path)
    (descriptor,) = read_layout(parse(f"oci:{layout}"), files_below(layout), "amd64").manifest.layers
    blob = layout / "blobs" / "sha256" / descriptor.digest[7:]
    blob.write_bytes(blob.read_bytes()[:1000])
    message = refused(f"oci:{layout}", layout).message
    assert message == f"{layout}: the layer {descriptor.digest} has 1000 bytes, expected {descriptor.size}"
    blob.unlink()
    assert f"the layer {descriptor.digest} is missing" in refused(f"oci:{layout}", layout).message


def copied(images: Images, tmp_path: Path) -> Path:
    run(("cp", "-r", images.tiny_layout(), tmp_path / "layout")).ok()
    return tmp_path / "layout"
