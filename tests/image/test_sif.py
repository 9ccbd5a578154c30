"""A SIF's header, checked against SIFs that apptainer and siftool made, and against everything else."""

import gzip
import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.sif.header import START, check_sif, file_kind, read_sif
from support.command import run
from support.images import Images
from support.runtime import RUNTIME

HEADER, DESCRIPTOR = 128, 585
ARCH_IN_HEADER = 32 + 10 + 3
TOTAL = 88  # where the header counts its descriptors
TABLE = 4096
USED, EXTRA = 4, 4 + 1 + 12 + 56 + 128  # in a descriptor

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)


def forged(tmp_path: Path, original: Path, *changes: tuple[int, bytes]) -> Path:
    """A copy with some bytes replaced."""
    content = bytearray(original.read_bytes())
    for at, new in changes:
        content[at : at + len(new)] = new
    path = tmp_path / "forged.sif"
    path.write_bytes(content)
    return path


def primary_row(sif: Path) -> int:
    """Where the primary partition's descriptor begins; siftool says which one it is."""
    lines = run(("siftool", "list", sif)).ok().stdout.splitlines()
    (line,) = [line for line in lines if "FS (Squashfs/*System" in line]
    return TABLE + DESCRIPTOR * (int(line.split("|")[0]) - 1)


def message(path: Path, arch: str = "amd64") -> str:
    with pytest.raises(ImageError) as caught:
        check_sif(path, arch)
    assert str(path) in caught.value.message
    return caught.value.message


def test_an_image_of_apptainer_is_read_as_siftool_reads_it(images: Images) -> None:
    info = read_sif(images.tiny_sif)
    listing = run(("siftool", "list", images.tiny_sif)).ok().stdout
    rows = [line.split("|") for line in listing.splitlines() if line[:1].isdigit()]
    places = [(int(row[0]), *map(int, row[3].split("-"))) for row in rows]
    assert [(found.id, found.offset, found.offset + found.size) for found in info.descriptors] == places
    assert (info.arch, info.size) == ("amd64", images.tiny_sif.stat().st_size)
    assert info.primary in info.descriptors
    assert check_sif(images.tiny_sif, "amd64") == info


def test_another_architecture_is_refused(images: Images) -> None:
    foreign = images.foreign("arm64")
    assert read_sif(foreign).arch == "arm64"
    assert "expected amd64, its header says arm64" in message(foreign)
    assert check_sif(foreign, "arm64").arch == "arm64"
    assert "expected arm64" in message(images.tiny_sif, "arm64")


def test_an_architecture_forged_in_either_place_is_refused(images: Images, tmp_path: Path) -> None:
    tiny = images.tiny_sif
    inner = primary_row(tiny) + EXTRA + 8
    outside = forged(tmp_path, tiny, (ARCH_IN_HEADER, b"04\0"))
    assert "arm64" in run(("siftool", "header", outside)).ok().stdout
    assert "its header has architecture arm64 and its primary partition amd64" in message(outside)
    assert "its header has architecture amd64 and its primary partition arm64" in message(
        forged(tmp_path, tiny, (inner, b"04\0"))
    )
    both = forged(tmp_path, tiny, (ARCH_IN_HEADER, b"04\0"), (inner, b"04\0"))
    assert "expected amd64, its header says arm64" in message(both)
    assert check_sif(forged(tmp_path, tiny, (inner, b"00\0")), "amd64").arch == "amd64"
    silent = forged(tmp_path, tiny, (ARCH_IN_HEADER, b"00\0"), (inner, b"00\0"))
    assert check_sif(silent, "amd64").arch == "unknown"
    run((RUNTIME.path, "-q", "exec", silent, "true")).ok()


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.999])
def test_a_truncated_image_says_how_much_there_is(images: Images, tmp_path: Path, fraction: float) -> None:
    content = images.tiny_sif.read_bytes()
    end = max(found.offset + found.size for found in read_sif(images.tiny_sif).descriptors)
    path = tmp_path / "truncated.sif"
    path.write_bytes(content[: int(end * fraction)])
    assert f"is truncated: {int(end * fraction)} bytes" in message(path)
    assert f"of at least {end} " in message(path)


@QUICK
@given(st.data())
def test_no_cut_is_ever_accepted(images: Images, tmp_path: Path, data: st.DataObject) -> None:
    content = images.tiny_sif.read_bytes()
    end = max(found.offset + found.size for found in read_sif(images.tiny_sif).descriptors)
    cut = data.draw(st.integers(0, end - 1) | st.integers(0, 40_000))
    path = tmp_path / "cut.sif"
    path.write_bytes(content[:cut])
    assert "truncated" in message(path) or cut < 32


@QUICK
@given(st.data())
def test_damaged_headers_are_accepted_or_refused_but_never_crash(
    images: Images, tmp_path: Path, data: st.DataObject
) -> None:
    size = images.tiny_sif.stat().st_size
    places = st.integers(0, HEADER - 1) | st.integers(TABLE, TABLE + 4 * DESCRIPTOR)
    path = forged(tmp_path, images.tiny_sif, (data.draw(places), data.draw(st.binary(min_size=1, max_size=8))))
    try:
        info = read_sif(path)
    except ImageError as error:
        assert str(path) in error.message
    else:
        assert all(found.offset + found.size <= size for found in info.descriptors)


@QUICK
@given(st.binary(max_size=2000))
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random.sif"
    path.write_bytes(content)
    assert "is not a SIF: it is" in message(path)


PAGE = b"\n<!DOCTYPE html>\n<html lang=en><head><title>\n Sign in \xc3\xbc </title></head><body>Please</body></html>"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it is empty"),
        (b"\0" * 5000, "only zero bytes"),
        (PAGE, "an HTML page ('Sign in ü')"),
        (b"<html><body>404</body></html>", "an HTML page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (json.dumps({"errors": [{"code": "DENIED"}]}).encode(), 'a JSON document ({"errors": [{"code": "DENIED"}]})'),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "a Git LFS pointer"),
        (b"Not Found\n", "a text (Not Found)"),
        (gzip.compress(b"x" * 5000, mtime=0), "a gzip file"),
        (b"#!/usr/bin/env run-singularity\n\0SIF", "a truncated SIF of 35 bytes"),
        (random.Random(1).randbytes(5000), "unknown data that starts with the bytes f5 b1 65 22"),
    ],
)
def test_what_is_no_sif_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        read_sif(path, "fetched.sif")
    assert what in caught.value.message
    assert "\n" not in caught.value.message
    assert what.partition(" (")[0].partition(" that")[0] in message(path)
    assert file_kind(content[:START]) != ""


def test_a_file_of_the_users_is_not_quoted(tmp_path: Path) -> None:
    """An easyconfig of another user may name it, and others may read where the error goes."""
    path = tmp_path / "id_rsa"
    for content in ("token=s3cret", '{"auth": "s3cret"}', "<html><title>s3cret</title></html>", "s3cret\x01"):
        path.write_text(content)
        said = message(path).removeprefix(f"{path} is not a SIF: it is ")
        assert said in ("a text", "a JSON document", "an HTML page", "unknown data")


def test_real_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    directory, squashfs, archive = tmp_path / "d", tmp_path / "x.squashfs", tmp_path / "x.tar"
    directory.mkdir()
    (directory / "file").write_text("text")
    run(("mksquashfs", directory, squashfs, "-quiet", "-no-progress")).ok()
    run(("tar", "-cf", archive, "-C", directory, "file")).ok()
    assert "a bare squashfs image without a SIF" in message(squashfs)
    assert "a tar archive" in message(archive)
    assert "a program" in message(Path("/bin/busybox"))


def test_damage_inside_is_seen(images: Images, tmp_path: Path) -> None:
    tiny = images.tiny_sif
    row, partition = primary_row(tiny), read_sif(tiny).primary
    assert "unknown version '02'" in message(forged(tmp_path, tiny, (42, b"02")))
    assert "is not a squashfs" in message(forged(tmp_path, tiny, (partition.offset, b"hsqX")))
    too_long = forged(tmp_path, tiny, (partition.offset + 40, struct.pack("<Q", partition.size + 1)))
    assert f"a squashfs of {partition.size + 1} bytes in a partition of {partition.size}" in message(too_long)
    assert "0 primary partitions" in message(forged(tmp_path, tiny, (row + USED, b"\0")))
    assert "-1 descriptors" in message(forged(tmp_path, tiny, (TOTAL, struct.pack("<q", -1))))
    huge = forged(tmp_path, tiny, (TOTAL, struct.pack("<q", 1 << 40)))
    assert f"{1 << 40} descriptors" in message(huge)
    assert "OCI-SIF" in message(forged(tmp_path, tiny, (row, struct.pack("<i", 0x400A))))


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.sif", tmp_path):
        with pytest.raises(FetchError) as caught:
            read_sif(path)
        assert caught.value.message.startswith(f"cannot read {path}: ")
