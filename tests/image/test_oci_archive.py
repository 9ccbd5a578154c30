"""Images in tar archives, read in place: whole, compressed, strange or hostile."""

import hashlib
import io
import json
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import NoSpaceError
from sifmod.image.oci.image import OciImage, Stored, open_archive
from sifmod.image.sources.docker_archive import read_docker_archive
from sifmod.image.sources.source_kinds import parse
from support.command import run
from support.disk_state import disk_state
from support.identity import call_on_small_disk
from support.images import Images
from support.oci import Entry, layer, write_layout

ZEROS = "0" * 64


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """What `docker save` writes, by skopeo: two images, one with two names, sharing a layer."""
    base = layer((Entry("base"),))
    for name in ("one", "two"):
        write_layout(tmp_path / name, (base, layer((Entry(f"only-{name}", b"x" * 3000),))))
    archive = tmp_path / "saved.tar"
    skopeo(f"oci:{tmp_path / 'one'}", f"docker-archive:{tmp_path / 'one.tar'}:some/name:1.0")
    skopeo(f"oci:{tmp_path / 'two'}", f"docker-archive:{tmp_path / 'two.tar'}:some/name:2.0")
    both = tmp_path / "both"
    manifests = []
    for name in ("one", "two"):
        (both / name).mkdir(parents=True)
        run(("tar", "-xf", tmp_path / f"{name}.tar", "-C", both)).ok()
        manifests += json.loads((both / "manifest.json").read_text())
        (both / "manifest.json").unlink()
        (both / "repositories").unlink(missing_ok=True)
    manifests[1]["RepoTags"].append("docker.io/else/where:latest")
    (both / "manifest.json").write_text(json.dumps(manifests))
    run(("tar", "-cf", archive, "-C", both, ".")).ok()
    return archive


def skopeo(source: str, target: str) -> None:
    run(("skopeo", "--insecure-policy", "copy", "--quiet", source, target)).ok()


def docker(archive: Path, tag: str = "") -> OciImage:
    return read_docker_archive(parse(f"docker-archive:{archive}{tag}"), open_archive(archive, None))


def check_layers(local: OciImage) -> None:
    """Every layer is where it should be, and what its digest says."""
    assert len(local.sources) == len(local.manifest.layers) > 0
    for descriptor, source in zip(local.manifest.layers, local.sources, strict=True):
        assert isinstance(source.where, Stored)
        content = source.where.read(1 << 30)
        assert len(content) == descriptor.size
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor.digest


@pytest.mark.parametrize("option", ["--no-auto-compress", "--gzip", "--xz", "--zstd", "--bzip2"])
def test_the_files_of_an_archive_are_found(images: Images, tmp_path: Path, workspace: Path, option: str) -> None:
    layout = images.tiny_layout()
    run(("tar", option, "-cf", tmp_path / "x.tar", "-C", layout, ".")).ok()
    archive = open_archive(tmp_path / "x.tar", workspace)
    assert archive.name == str(tmp_path / "x.tar")
    for path in (path for path in layout.rglob("*") if path.is_file()):
        stored = archive.find(str(path.relative_to(layout)))
        assert stored is not None
        assert stored.read(1 << 30) == path.read_bytes()
        assert stored.path == (tmp_path / "x.tar" if "auto" in option else workspace / "archive.tar")
    assert archive.find("none") is None
    assert archive.find("blobs") is None
    open_archive(tmp_path / "x.tar", workspace)  # over what an earlier attempt has left


def test_nothing_is_written_for_an_archive_that_is_not_compressed(images: Images, tmp_path: Path) -> None:
    run(("tar", "-cf", tmp_path / "x.tar", "-C", images.tiny_layout(), ".")).ok()
    before = disk_state(tmp_path)
    open_archive(tmp_path / "x.tar", None)
    assert disk_state(tmp_path) == before


def test_a_compressed_archive_needs_a_workspace(images: Images, tmp_path: Path) -> None:
    run(("tar", "-czf", tmp_path / "x.tar", "-C", images.tiny_layout(), ".")).ok()
    with pytest.raises(FetchError, match="is compressed, and there is no directory to unpack it to"):
        open_archive(tmp_path / "x.tar", None)


def test_of_two_files_with_one_name_the_last_counts(tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "a").write_text(text)
        run(("tar", "-rf", tmp_path / "x.tar", "-C", tmp_path, "./a")).ok()
    stored = open_archive(tmp_path / "x.tar", None).find("a")
    assert stored is not None
    assert stored.read(100) == b"second"


@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive"])
def test_an_archive_of_two_images_under_one_name_is_refused(
    images: Images, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`docker load` takes the last of them, skopeo the first."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    archive, name = tmp_path / "x.tar", "manifest.json" if kind == "docker-archive" else "index.json"
    skopeo(f"oci:{images.tiny_layout()}", f"{kind}:{archive}:x:1")
    assert sifmod(["fetch", f"{kind}:{archive}", "-o", str(tmp_path / "x.sif")]) == 0
    run(("tar", "-xf", archive, "-C", tmp_path, name)).ok()
    run(("tar", "-rf", archive, "-C", tmp_path, f"./{name}")).ok()
    capfd.readouterr()
    assert sifmod(["fetch", f"{kind}:{archive}", "-o", str(tmp_path / "y.sif")]) == 10
    assert f"{archive} has two files {name}, so it is two images" in capfd.readouterr().err
    assert not (tmp_path / "y.sif").exists()


def test_links_are_followed_inside_the_archive_only(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "a").write_text("content")
    (source / "d" / "hard").hardlink_to(source / "d" / "a")
    for name, target in (("soft", "d/hard"), ("d/up", "../soft"), ("out", "/etc/passwd"), ("out2", "../../etc/passwd")):
        (source / name).symlink_to(target)
    (source / "loop").symlink_to("loop")
    names = ("d/a", "d/hard", "soft", "d/up", "out", "out2", "loop")
    run(("tar", "-cf", tmp_path / "x.tar", "-C", source, *names)).ok()
    archive = open_archive(tmp_path / "x.tar", None)
    for name in names[:4]:
        stored = archive.find(name)
        assert stored is not None, name
        assert stored.read(100) == b"content"
    assert [archive.find(name) for name in names[4:]] == [None] * 3


def test_long_names_are_not_kept(tmp_path: Path) -> None:
    """An archive of 9 MB, with 2000 names of 1 MB, took 2 GB."""
    name, archive = "/a" * 200_000, io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        for number in range(40):
            for kind in (tarfile.REGTYPE, tarfile.SYMTYPE):
                member = tarfile.TarInfo(f"{number}{name}" if kind == tarfile.REGTYPE else f"{number}")
                member.type, member.linkname = kind, "" if kind == tarfile.REGTYPE else name
                file.addfile(member)
    path = tmp_path / "it.tar"
    path.write_bytes(archive.getvalue())
    tracemalloc.start()
    try:
        files = open_archive(path, None)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert files.find("0") is None
    assert kept < len(name) * 4


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 20)
    run(("tar", "--sparse", "-cf", tmp_path / "x.tar", "-C", tmp_path, "a")).ok()
    with pytest.raises(ImageError, match="'a' is a sparse file: pack it again"):
        open_archive(tmp_path / "x.tar", None)


@pytest.mark.parametrize(
    "content",
    [b"", b"no tar", b"\x1f\x8b\x08", b"\x1f\x8b\x08" + b"x" * 100, b"\xfd7zXZ\0\0", b"BZh9", b"\x28\xb5\x2f\xfd!"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, workspace: Path, content: bytes) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(content)
    with pytest.raises(FetchError, match="is not a complete tar archive"):
        open_archive(archive, workspace)


@pytest.mark.parametrize("option", ["--no-auto-compress", "--gzip", "--xz", "--zstd", "--bzip2"])
def test_an_archive_that_ends_too_early_is_refused(
    images: Images, tmp_path: Path, workspace: Path, option: str
) -> None:
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    run(("tar", option, "-cf", whole, "-C", images.tiny_layout(), ".")).ok()
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(FetchError, match="is not a complete tar archive"):
        open_archive(cut, workspace)


def test_an_archive_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="there is no archive"):
        open_archive(tmp_path / "x.tar", None)
    with pytest.raises(FetchError, match="there is no archive"):
        open_archive(tmp_path, None)


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(64 << 20)
    run(("tar", "-czf", tmp_path / "x.tar", "-C", tmp_path, "a")).ok()

    def unpack() -> None:
        with pytest.raises(NoSpaceError, match="No space left"):
            open_archive(tmp_path / "x.tar", tmp_path / "disk")

    call_on_small_disk(tmp_path / "disk", 4 << 20, unpack)


@pytest.mark.parametrize("tag", [":some/name:1.0", ":name:1.0", ":docker.io/some/name:1.0"])
def test_an_image_of_a_docker_archive_is_found_by_its_name(saved: Path, tag: str) -> None:
    local = docker(saved, tag)
    check_layers(local)
    assert local.config.diff_ids == tuple(layer.digest for layer in local.manifest.layers)
    assert (local.manifest.digest, local.manifest.raw) == ("", b"")
    assert local.manifest.config.digest == f"sha256:{hashlib.sha256(local.config.raw).hexdigest()}"


def test_two_images_share_a_layer(saved: Path) -> None:
    one, two = docker(saved, ":name:1.0"), docker(saved, ":else/where")
    check_layers(two)
    assert one.sources[0] == two.sources[0]
    assert one.sources[1] != two.sources[1]
    assert docker(saved, ":name:2.0") == two


def test_what_a_docker_archive_does_not_have_is_told(saved: Path) -> None:
    have = "docker.io/some/name:1.0, docker.io/some/name:2.0, docker.io/else/where:latest"
    with pytest.raises(FetchError) as caught:
        docker(saved, ":name:3.0")
    assert caught.value.message == f"{saved} has 0 images called name:3.0; it has: {have}"
    with pytest.raises(FetchError) as caught:
        docker(saved)
    assert caught.value.message == f"{saved} contains 2 images ({have}), and the source does not select one"
    assert caught.value.hint == f"add its name: docker-archive:{saved}:NAME:TAG"


def test_the_only_image_needs_no_name(images: Images, tmp_path: Path) -> None:
    skopeo(f"oci:{images.tiny_layout()}", f"docker-archive:{tmp_path / 'x.tar'}")
    check_layers(docker(tmp_path / "x.tar"))


def packed(tmp_path: Path, manifest: object, **files: bytes) -> Path:
    """A docker archive with this manifest.json."""
    source = tmp_path / "source"
    source.mkdir()
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    for name, content in {"manifest.json": text.encode(), **files}.items():
        (source / name).write_bytes(content)
    run(("tar", "-cf", tmp_path / "x.tar", "-C", source, ".")).ok()
    return tmp_path / "x.tar"


def config(*diff_ids: str) -> bytes:
    return json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": diff_ids}}).encode()


def test_a_compressed_layer_in_a_docker_archive_has_no_digest(tmp_path: Path) -> None:
    files = {"c.json": config(f"sha256:{ZEROS}"), "l.tar": b"\x1f\x8b\x08rest"}
    archive = packed(tmp_path, [{"Config": "c.json", "Layers": ["l.tar"]}], **files)
    (found,) = docker(archive).manifest.layers
    assert (found.digest, found.media_type) == ("", "application/vnd.oci.image.layer.v1.tar+gzip")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("", "it has no usable manifest.json"),
        ("{}", "it has no usable manifest.json"),
        ("[1]", "it has no usable manifest.json"),
        ("[" * 10_000, "it has no usable manifest.json"),
        ("[]", "contains 0 images"),
        ([{"RepoTags": 1}], "is not complete: it has no"),
        ([{"Config": ["c"]}], "Config is not a string"),
        ([{"Config": "none.json"}], "is not complete: it has no none.json"),
        ([{"Config": "../../etc/passwd"}], "is not complete: it has no ../../etc/passwd"),
        ([{"Config": "c.json"}], "has 0 layers, but its config names 1"),
        ([{"Config": "c.json", "Layers": ["none"]}], "is not complete: the layer none is missing"),
        ([{"Config": f"{ZEROS}.json", "Layers": []}], "has a wrong digest"),
    ],
)
def test_a_docker_archive_that_is_damaged_is_refused(tmp_path: Path, manifest: object, said: str) -> None:
    content = config(f"sha256:{ZEROS}")
    archive = packed(tmp_path, manifest, **{"c.json": content, f"{ZEROS}.json": content})
    with pytest.raises(FetchError) as caught:
        docker(archive)
    assert said in caught.value.message
    assert open_archive(archive, None).name == str(archive)


def test_an_archive_without_manifest_json_is_refused(images: Images, tmp_path: Path) -> None:
    run(("tar", "-cf", tmp_path / "x.tar", "-C", images.tiny_layout(), ".")).ok()
    with pytest.raises(ImageError, match="is not an archive of `docker save`"):
        docker(tmp_path / "x.tar")
