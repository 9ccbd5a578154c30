"""Images in tar archives, whole, strange or hostile."""

from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.archive import check_docker_archive, unpack_layout
from sifmod.image.reference import parse
from support.command import run
from support.images import Images


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file() or path.is_symlink())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def skopeo(source: str, target: str) -> None:
    run(("skopeo", "--insecure-policy", "copy", "--quiet", source, target)).ok()


@pytest.mark.parametrize("option", ["--no-auto-compress", "--gzip", "--xz"])
def test_a_layout_is_unpacked_as_it_was_packed(images: Images, tmp_path: Path, option: str) -> None:
    layout = images.tiny_layout()
    run(("tar", option, "-cf", tmp_path / "x.tar", "-C", layout, ".")).ok()
    unpacked = unpack_layout(tmp_path / "x.tar", tmp_path / "unpacked")
    assert files(unpacked) == files(layout)


def test_only_the_files_of_a_layout_come_out(tmp_path: Path) -> None:
    source, blob = tmp_path / "source", f"blobs/sha256/{'0' * 64}"
    (source / "blobs" / "sha256").mkdir(parents=True)
    for name in ("index.json", "outside", blob, "blobs/sha256/short"):
        (source / name).write_text(name)
    (source / "oci-layout").symlink_to("/etc/passwd")
    names = ("index.json", "outside", blob, "blobs/sha256/short", "oci-layout")
    hostile = ("--absolute-names", "--transform=s,^outside,../outside,")
    run(("tar", "-cf", tmp_path / "x.tar", *hostile, "-C", source, *names)).ok()
    assert "../outside" in run(("tar", "-tPf", tmp_path / "x.tar")).ok().stdout
    assert files(unpack_layout(tmp_path / "x.tar", tmp_path / "unpacked")) == {
        "index.json": b"index.json",
        blob: blob.encode(),
    }
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("content", [b"", b"no tar", b"\x1f\x8b\x08"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(content)
    with pytest.raises(FetchError, match="is not a complete tar archive"):
        unpack_layout(archive, tmp_path / "unpacked")
    with pytest.raises(FetchError, match="is not a complete tar archive"):
        check_docker_archive(parse("docker-archive:x.tar"), archive)


def test_an_archive_that_ends_too_early_is_refused(images: Images, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    run(("tar", "-cf", whole, "-C", images.tiny_layout(), ".")).ok()
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(FetchError, match="is not a complete tar archive"):
        unpack_layout(cut, tmp_path / "unpacked")


def test_an_archive_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="there is no archive"):
        unpack_layout(tmp_path / "x.tar", tmp_path / "unpacked")


@pytest.mark.parametrize("tag", ["", ":some/name:1.0", ":name:1.0", ":docker.io/some/name:1.0"])
def test_the_one_image_of_a_docker_archive_is_accepted(images: Images, tmp_path: Path, tag: str) -> None:
    archive = tmp_path / "x.tar"
    skopeo(f"oci:{images.tiny_layout()}", f"docker-archive:{archive}:some/name:1.0")
    check_docker_archive(parse(f"docker-archive:{archive}{tag}"), archive)


def test_another_tag_of_a_docker_archive_is_refused(images: Images, tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    skopeo(f"oci:{images.tiny_layout()}", f"docker-archive:{archive}:some/name:1.0")
    with pytest.raises(FetchError) as caught:
        check_docker_archive(parse(f"docker-archive:{archive}:name:2.0"), archive)
    assert caught.value.message == f"{archive} has no image name:2.0; it has: docker.io/some/name:1.0"


@pytest.mark.parametrize("manifest", ["", "{}", '[{"RepoTags": 1}]', "[1]", "[" * 10_000])
def test_a_docker_archive_without_a_usable_manifest_is_refused(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    run(("tar", "-cf", tmp_path / "x.tar", "-C", tmp_path, "manifest.json")).ok()
    with pytest.raises(FetchError, match=r"is not an archive of `docker save`|holds 0 images"):
        check_docker_archive(parse("docker-archive:x.tar"), tmp_path / "x.tar")


def test_a_docker_archive_of_two_images_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('[{"RepoTags": ["a:1"]}, {"RepoTags": ["b:1"]}]')
    run(("tar", "-cf", tmp_path / "x.tar", "-C", tmp_path, "manifest.json")).ok()
    with pytest.raises(FetchError) as caught:
        check_docker_archive(parse("docker-archive:x.tar:a:1"), tmp_path / "x.tar")
    assert "holds 2 images (a:1, b:1)" in caught.value.message
    assert "skopeo copy" in caught.value.hint
