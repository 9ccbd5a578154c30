"""The same image, from wherever it is opened."""

import hashlib
import json
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.oci.image import BlobSource, OciImage, Stored, open_image
from sifmod.image.settings import DEFAULT
from sifmod.image.sources.source_kinds import parse
from support.command import run
from support.fetching import Prefix, plan
from support.images import Images
from support.oci import Entry, layer, write_layout
from support.oci_index import entry, put_blob, put_index
from support.registry import Registry


def content(source: BlobSource) -> bytes:
    if isinstance(source.where, Stored):
        return source.where.read(source.descriptor.size)
    with source.where({}) as response:
        return bytes(response.content)


def opened(source: str, arch: str = "amd64", workspace: Path | None = None) -> OciImage:
    """The image, its layers compared with their digests."""
    image = open_image(parse(source), arch, DEFAULT, workspace)
    assert tuple(source.descriptor for source in image.sources) == image.manifest.layers
    for one in image.sources:
        assert f"sha256:{hashlib.sha256(content(one)).hexdigest()}" == one.descriptor.digest
    return image


def refused(source: str, arch: str = "amd64") -> FetchError:
    with pytest.raises(FetchError) as caught:
        open_image(parse(source), arch, DEFAULT)
    return caught.value


def test_a_registry_a_layout_and_an_archive_give_the_same(images: Images, registry: Registry, tmp_path: Path) -> None:
    layout = images.tiny_layout(env=("A=1",), labels={"b": "2"})
    run(("tar", "-cf", tmp_path / "x.tar", "-C", layout, ".")).ok()
    run(("tar", "-czf", tmp_path / "x.tar.gz", "-C", layout, ".")).ok()
    pushed = f"docker://{registry.address}/group/same:1.0"
    as_it_is = ("--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false")
    run(("skopeo", *as_it_is, f"oci:{layout}", pushed)).ok()
    one = opened(f"oci:{layout}")
    assert (one.config.env[-1], one.config.labels, one.config.cmd) == ("A=1", (("b", "2"),), ("/bin/sh",))
    for image in (
        opened(f"oci-archive:{tmp_path / 'x.tar'}"),
        opened(f"oci-archive:{tmp_path / 'x.tar.gz'}", workspace=tmp_path),
        opened(pushed),
    ):
        assert image.manifest == one.manifest
        assert image.config == one.config
        assert [content(source) for source in image.sources] == [content(source) for source in one.sources]


def test_an_image_of_docker_is_the_same_but_for_its_manifest(images: Images, tmp_path: Path) -> None:
    layout = images.tiny_layout()
    archive = f"docker-archive:{tmp_path / 'x.tar'}"
    run(("skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{layout}", f"{archive}:name:1.0")).ok()
    one, two = opened(f"oci:{layout}"), opened(f"{archive}:name:1.0")
    assert two.config.diff_ids == one.config.diff_ids
    assert [content(source) for source in two.sources] == [content(source) for source in one.sources]


def test_a_relative_path_counts_from_the_working_directory(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(("cp", "-r", images.tiny_layout(), tmp_path / "layout")).ok()
    run(("tar", "-cf", tmp_path / "x.tar", "-C", tmp_path / "layout", ".")).ok()
    monkeypatch.chdir(tmp_path)
    for source in ("oci:layout", "oci-archive:x.tar"):
        (blob,) = opened(source).sources
        assert isinstance(blob.where, Stored)
        assert blob.where.path.is_absolute()


def test_an_image_for_another_architecture_is_refused(tmp_path: Path, registry: Registry) -> None:
    layout = write_layout(tmp_path / "layout", (layer((Entry("bin"),)),), arch="arm64")
    remote = registry.push_layout(layout, "group/foreign:1.0")
    for source in (f"oci:{layout}", remote):
        assert refused(source).message == f"{source}: the image is for arm64, expected amd64"
        assert opened(source, "arm64").config.arch == "arm64"


@pytest.mark.parametrize("arch", ["unknown", "x86_64", ""])
@pytest.mark.parametrize("indexed", [False, True])
def test_an_image_that_does_not_say_its_architecture_is_converted_for_the_one_asked_for(
    tmp_path: Path, arch: str, indexed: bool
) -> None:
    layout = write_layout(tmp_path / "layout", (layer((Entry("bin"),)),), arch=arch)
    if indexed:
        foreign = {"digest": "sha512:" + "0" * 128, "platform": {"architecture": "s390x", "os": "linux"}}
        others = [foreign] if arch == "x86_64" else []
        put_index(layout, [*others, {**entry(layout), "platform": {"architecture": arch, "os": "linux"}}])
    artifact = Prefix(tmp_path / "prefix").fetch(plan(f"oci:{layout}"))
    assert (artifact.arch, read_sif(artifact.path).arch) == ("amd64", "amd64")


def test_a_sif_in_a_registry_is_no_container_image(images: Images, registry: Registry) -> None:
    reference = registry.push_sif(images.tiny_sif, "group/sif:1.0").replace("oras://", "docker://")
    error = refused(reference)
    assert isinstance(error, ImageError)
    assert error.message == f"{reference} is a SIF, not a container image"
    assert "oras://" in error.hint


def test_a_config_that_speaks_of_other_layers_is_refused(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", (layer((Entry("bin"),)),))
    manifest = json.loads((layout / "blobs/sha256" / str(entry(layout)["digest"])[7:]).read_text())
    manifest["layers"] *= 2
    made = put_blob(layout, json.dumps(manifest).encode(), str(entry(layout)["mediaType"]))
    (layout / "index.json").write_text(json.dumps({"manifests": [made]}))
    assert "has 2 layers, but its config names 1" in refused(f"oci:{layout}").message


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    assert refused(f"oci:{tmp_path}/none").message == f"{tmp_path}/none does not exist"
    kinds = "(docker://, oci:, oci-archive:, docker-archive:)"
    assert refused("https://x.y/z.sif").message == f"https://x.y/z.sif is not an OCI image {kinds}"
