"""SIFs that say something wrong in one place, and what is not a SIF, in every message to the last word."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import (
    ARCHES,
    KINDS,
    arch_code,
    check_sif,
    file_kind,
    kind_of,
    read_sif,
)
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.signature.signatures import signatures
from support.inside import EPOCH, sif

OBJECTS = (DataObject("deffile", "", b"bootstrap"), DataObject("json", "a.json", b"{}"))
TABLE, ROW, EXTRA = 4096, 585, 201
PARTITION_ROW = TABLE + 2 * ROW
LAUNCH = b"#!/usr/bin/env run-singularity\n"
MAGIC = b"SIF_MAGIC\0"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return sif(tmp_path / "x.sif", {"/bin/x": "#!"}, OBJECTS)


def change(path: Path, at: int, form: str, *values: int | bytes) -> Path:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(form, *values))
    return path


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ImageError) as caught:
        call(*arguments)
    return caught.value.message


def test_what_was_written_is_read(path: Path) -> None:
    info = read_sif(path)
    offset, size = partition_offset(OBJECTS), path.stat().st_size
    assert (info.arch, info.size, len(info.descriptors)) == ("amd64", size, 3)
    assert [(one.type, one.id, one.offset, one.size, one.name) for one in info.descriptors] == [
        (0x4001, 1, 32176, 9, ""),
        (0x4006, 2, 32185, 2, "a.json"),
        (0x4004, 3, offset, size - offset, ""),
    ]
    assert info.primary == info.descriptors[2]


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (88, "<q", 0, "is a damaged SIF: its header has 0 descriptors at 4096"),
        (88, "<q", 4097, "is a damaged SIF: its header has 4097 descriptors at 4096"),
        (96, "<q", 127, "is a damaged SIF: its header has 48 descriptors at 127"),
        (42, "2s", b"02", "is not a SIF: it is a SIF of the unknown version '02'"),
        (TABLE + 17, "<q", 127, "is a damaged SIF: object 1 has 9 bytes at 127"),
        (TABLE + 25, "<q", -1, "is a damaged SIF: object 1 has -1 bytes at 32176"),
        (PARTITION_ROW + EXTRA + 4, "<i", 1, "is a SIF with 0 primary partitions instead of one"),
        (PARTITION_ROW, "<i", 0x400A, "is an OCI-SIF"),
        (45, "3s", b"04\0", "is a damaged SIF: its header has architecture arm64 and its primary partition amd64"),
    ],
)  # fmt: skip
def test_a_damaged_header(path: Path, at: int, form: str, value: int | bytes, message: str) -> None:
    assert refusal(read_sif, change(path, at, form, value)) == f"{path} {message}"
    assert refusal(read_sif, path, "the image") == f"the image {message}"


def test_numbers_that_are_just_right(path: Path) -> None:
    read_sif(change(path, TABLE + 17, "<qq", 128, 0))
    size = path.stat().st_size
    change(path, TABLE + 17, "<qq", 0, 128)
    read_sif(change(path, TABLE + 17, "<qq", size, 0))
    read_sif(change(path, TABLE + 17, "<qq", size - 1, 1))
    assert "is truncated" in refusal(read_sif, change(path, TABLE + 17, "<qq", size - 1, 2))


def test_as_many_descriptors_as_a_header_is_believed(path: Path) -> None:
    many = 4096
    content = path.read_bytes().ljust(TABLE + many * ROW, b"\0")
    path.write_bytes(content)
    assert "its header has" not in refusal(read_sif, change(path, 88, "<q", many))
    table = TABLE + many * ROW
    path.write_bytes(content[: table - 1])
    change(path, 88, "<q", many)
    assert refusal(read_sif, path).startswith(f"{path} is truncated: {table - 1} bytes (")
    assert f"of at least {table} (" in refusal(read_sif, path)


def test_two_primary_partitions(path: Path) -> None:
    row = path.read_bytes()[PARTITION_ROW : PARTITION_ROW + ROW]
    change(path, PARTITION_ROW + ROW, f"{ROW}s", row)
    assert refusal(read_sif, path) == f"{path} is a SIF with 2 primary partitions instead of one"
    change(path, TABLE, "<i", 0x400A)
    assert refusal(read_sif, path) == f"{path} is an OCI-SIF"


def test_an_object_that_is_not_used_says_nothing(path: Path) -> None:
    change(path, TABLE + 4, "<B", 0)
    change(path, TABLE + 17, "<qq", -5, -5)
    assert [one.id for one in read_sif(path).descriptors] == [2, 3]


def test_the_root_must_be_a_whole_squashfs(path: Path) -> None:
    offset, size = partition_offset(OBJECTS), path.stat().st_size
    whole = path.read_bytes()
    none = f"{path} is a damaged SIF: its primary partition is not a squashfs"
    length = size - offset
    read_sif(change(path, offset + 40, "<Q", length))
    message = f"{path} is a damaged SIF: a squashfs of {length + 1} bytes in a partition of {length}"
    assert refusal(read_sif, change(path, offset + 40, "<Q", length + 1)) == message
    assert refusal(read_sif, change(path, offset, "4s", b"sqsh")) == none
    read_sif(change(path, PARTITION_ROW + EXTRA, "<i", 2))  # of another file system nothing is known
    path.write_bytes(whole[: offset + 47])
    assert refusal(read_sif, change(path, PARTITION_ROW + 25, "<q", 47)) == none


@pytest.mark.parametrize("arch", ARCHES)
def test_each_architecture_in_either_place(path: Path, arch: str) -> None:
    change(path, 45, "3s", arch_code(arch))
    change(path, PARTITION_ROW + EXTRA + 8, "3s", arch_code(arch))
    assert check_sif(path, arch).arch == arch
    for at in (45, PARTITION_ROW + EXTRA + 8):
        before = path.read_bytes()
        assert check_sif(change(path, at, "3s", b"00\0"), arch).arch == arch
        path.write_bytes(before)


def test_an_architecture_that_is_not_wanted(path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        check_sif(path, "arm64", "the image")
    wanted = "the image is for another architecture: expected arm64, its header says amd64"
    assert (caught.value.message, "`arch:`" in caught.value.hint) == (wanted, True)
    assert refusal(check_sif, path, "arm64").startswith(f"{path} is for another")
    change(path, 45, "3s", b"99\0")
    change(path, PARTITION_ROW + EXTRA + 8, "3s", b"99\0")
    assert check_sif(path, "arm64").arch == "unknown"


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o140600)
    assert refusal(read_sif, path) == f"{path} is not a SIF: it is not a regular file"


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"", "empty"),
        (b"\0", "only zero bytes"),
        (LAUNCH.ljust(127, b"\0"), "a truncated SIF of 127 bytes"),
        (LAUNCH.ljust(32, b"\0") + MAGIC + b"01\0", "a truncated SIF of 45 bytes"),
        (LAUNCH.ljust(128, b"\0"), "a SIF without its magic"),
        (b"#!/usr/bin/env run-apptainer", "a truncated SIF of 28 bytes"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"\xfd7zXZ\0", "an xz file"),
        (b"BZh9", "a bzip2 file"),
        (b"PK\3\4", "a zip file"),
        (b"\x7fELF", "a program"),
        (b"hsqs", "a bare squashfs image without a SIF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file itself"),
        (b"%PDF-1.4", "a PDF document"),
        (b"name".ljust(257, b"\0") + b"ustar\0", "a tar archive"),
        (b"\xef\xbb\xbf \r\n<!DOCTYPE\n html>", "an HTML page"),
        (b"<HTML lang=en><Title id=x>  Sign\n in </title>", "an HTML page ('Sign in')"),
        (b"<head>", "an HTML page"),
        (b"<body><title></title>", "an HTML page"),
        (b"<title>" + b"x" * 81, "a text (<title>" + "x" * 73 + ")"),
        (b"<html><title>" + b"x" * 81, f"an HTML page ({'x' * 80!r})"),
        (b"\n<?XML version='1.0'?>", "an XML document"),
        (b"[1]\n", "a JSON document ([1])"),
        (b' {"a": 1}', 'a JSON document ({"a": 1})'),
        (b"x" * 81 + b"\nmore", f"a text ({'x' * 80})"),
        (b"a\tb\r\nc", "a text (a\tb)"),
        (b" \n", "unknown data that starts with the bytes 20 0a"),
        (b"text \xff", "unknown data that starts with the bytes 74 65 78 74 20 ff"),
        (bytes(range(1, 20)), "unknown data that starts with the bytes 01 02 03 04 05 06 07 08"),
        (bytes(32) + MAGIC + b"01\0".ljust(86, b"\0"), ""),
        (bytes(32) + MAGIC + b"1\xff\0".ljust(86, b"\0"), "a SIF of the unknown version '1\ufffd'"),
    ],
)
def test_what_a_file_is(start: bytes, what: str) -> None:
    assert file_kind(start) == what


def test_every_kind_of_object_has_its_name() -> None:
    assert [kind_of(number) for number in range(0x4001, 0x400C)] == [
        *("definition", "environment", "labels", "partition", "signature", "JSON", "data"),
        *("key for an encrypted partition", "bill of materials", "OCI index", "OCI blob"),
    ]
    assert kind_of(0x400C) == "object of type 0x400c"
    assert len(KINDS) == 11


def test_every_architecture_has_its_number() -> None:
    assert [arch_code(arch) for arch in ("386", "amd64", "arm", "arm64", "ppc64le", "s390x", "riscv64", "loong64")] == [
        *(b"01\0", b"02\0", b"03\0", b"04\0", b"06\0", b"11\0", b"12\0", b"13\0"),
    ]


def test_the_table_in_full(path: Path) -> None:
    table = read_sif(path)
    assert [(one.id, one.group, one.link, one.links_group) for one in table.descriptors] == [
        (number, 1, 0, False) for number in (1, 2, 3)
    ]
    assert [one.title for one in table.descriptors] == [
        *("definition (object 1)", "JSON a.json (object 2)", "partition (object 3)"),
    ]
    content = path.read_bytes()
    assert table.header == content[:45] + content[48:64]
    raw = content[TABLE + ROW : TABLE + 2 * ROW]
    assert table.descriptors[1].raw == raw
    covered = raw[:5] + struct.pack("<I", 7) + raw[13:17] + raw[25:33] + raw[41:49] + raw[57:]
    assert table.descriptors[1].covered(7) == covered


def test_groups_and_links(path: Path) -> None:
    change(path, TABLE + ROW + 9, "<II", 0xF0000005, 0xF0000001)
    change(path, TABLE + 2 * ROW + 9, "<II", 0xF0000005, 3)
    change(path, TABLE + 2 * ROW + 73, "3s", b"a\nb")
    first, second, third = read_sif(path).descriptors
    assert (second.group, second.link, second.links_group) == (5, 1, True)
    assert (third.group, third.link, third.links_group, third.title) == (5, 3, False, "partition (object 3)")
    assert first.group == 1


def test_two_objects_of_one_number(path: Path) -> None:
    info = read_sif(change(path, TABLE + 5, "<I", 2))
    with pytest.raises(ImageError, match="is a damaged SIF: two of its objects have the same number"):
        signatures(path, info)


def test_names_that_fit_into_a_descriptor(tmp_path: Path) -> None:
    path = sif(tmp_path / "x.sif", {}, (DataObject("json", "x" * 128, b""),))
    assert read_sif(path).descriptors[0].name == "x" * 128
    with path.open("r+b") as file, pytest.raises(ValueError, match="does not fit in a SIF's table"):
        write_header(file, (DataObject("json", "x" * 129, b""),), 0, "amd64", EPOCH)
    most = tuple(DataObject("json", str(number), b"") for number in range(47))
    assert len(read_sif(sif(tmp_path / "y.sif", {}, most)).descriptors) == 48
