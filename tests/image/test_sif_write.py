"""The SIFs that we write, read by siftool and apptainer."""

import io
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from support.command import run
from support.hand_made import EPOCH, our_metadata, our_sif
from support.runtime import RUNTIME

OBJECTS = (
    DataObject("deffile", "", b"bootstrap: docker\nfrom: x\n"),
    DataObject("labels", "", b"{}"),
    DataObject("json", "oci-config.json", b'{"a": 1}'),
    DataObject("json", "empty.json", b""),
)
ARCHES = (
    "386",
    "amd64",
    "arm",
    "arm64",
    "ppc64",
    "ppc64le",
    "mips",
    "mipsle",
    "mips64",
    "mips64le",
    "s390x",
    "riscv64",
)


def written(objects: tuple[DataObject, ...] = OBJECTS, arch: str = "amd64", created: int = EPOCH) -> bytes:
    """A SIF around the beginning of a squashfs, which is all that a reader of headers looks at."""
    squashfs = struct.pack("<4s36xQ", b"hsqs", 8192).ljust(8192, b"\1")
    file = io.BytesIO()
    file.seek(partition_offset(objects))
    file.write(squashfs)
    write_header(file, objects, len(squashfs), arch, created)
    return file.getvalue()


def test_siftool_reads_what_was_written(tmp_path: Path) -> None:
    sif = tmp_path / "x.sif"
    sif.write_bytes(written())
    header = run(("siftool", "header", sif)).ok().stdout
    found = dict(re.findall(r"^([^:\n]+): +(.*)$", header, re.MULTILINE))
    assert found["Launch Script"] == "#!/usr/bin/env run-singularity"
    assert (found["Version"], found["Primary Architecture"]) == ("01", "amd64")
    assert (found["Descriptors Free"], found["Descriptors Total"]) == ("43", "48")
    assert (found["Descriptors Offset"], found["Data Offset"]) == ("4096", "32176")
    assert found["Created At"] == found["Modified At"] == "2025-01-02 03:04:05 +0000 UTC"
    listing = run(("siftool", "list", sif)).ok().stdout
    rows = [[cell.strip() for cell in line.split("|")] for line in listing.splitlines() if line[:1].isdigit()]
    assert [row[4] for row in rows] == [
        "Def.FILE",
        "JSON.Labels",
        "JSON.Generic",
        "JSON.Generic",
        "FS (Squashfs/*System/amd64)",
    ]
    assert {(row[1], row[2]) for row in rows} == {("1", "NONE")}
    assert rows[-1][3] == "32768-40960"
    for number, entry in enumerate(OBJECTS, 1):
        assert run(("siftool", "dump", str(number), sif)).ok().stdout.encode() == entry.content
    assert "oci-config.json" in run(("siftool", "info", "3", sif)).ok().stdout


@pytest.mark.parametrize("arch", ARCHES)
def test_every_architecture_is_named_as_siftool_names_it(tmp_path: Path, arch: str) -> None:
    sif = tmp_path / "x.sif"
    sif.write_bytes(written(arch=arch))
    assert f"Primary Architecture: {arch}\n" in run(("siftool", "header", sif)).ok().stdout
    assert f"(Squashfs/*System/{arch})" in run(("siftool", "list", sif)).ok().stdout
    info = read_sif(sif)
    assert (info.arch, info.primary.offset, info.primary.size) == (arch, partition_offset(OBJECTS), 8192)


def test_an_architecture_that_no_sif_can_name_is_refused() -> None:
    with pytest.raises(ImageError, match=r"cannot have the architecture 'wasm': expected one of 386, amd64"):
        written(arch="wasm")


def test_a_sif_can_be_taken_apart_and_extended_by_siftool(tmp_path: Path) -> None:
    sif, extra = tmp_path / "x.sif", tmp_path / "extra.json"
    sif.write_bytes(written())
    extra.write_bytes(b"{}")
    before = run(("siftool", "dump", "5", sif)).ok().stdout
    run(("siftool", "add", sif, extra, "--datatype", "6")).ok()
    added = read_sif(sif).descriptors[-1]
    assert len(read_sif(sif).descriptors) == 6
    # right behind the partition: where the header says that the data ends
    assert (added.offset, sif.stat().st_size) == (len(written()), len(written()) + 2)
    run(("siftool", "del", "6", sif)).ok()
    assert len(read_sif(sif).descriptors) == 5
    assert run(("siftool", "dump", "5", sif)).ok().stdout == before


@given(st.lists(st.binary(max_size=6000), max_size=20))
def test_the_partition_begins_at_the_first_multiple_of_4096_after_the_objects(contents: list[bytes]) -> None:
    objects = tuple(DataObject("json", f"{number}.json", content) for number, content in enumerate(contents))
    offset, end = partition_offset(objects), 32176 + sum(map(len, contents))
    assert offset % 4096 == 0
    assert end <= offset < end + 4096
    sif = written(objects)
    assert len(sif) == offset + 8192
    assert sif[32176:offset] == b"".join(contents).ljust(offset - 32176, b"\0")


def test_the_same_arguments_give_the_same_bytes() -> None:
    assert written() == written()


def test_the_uuid_is_of_the_content() -> None:
    def uuid(sif: bytes) -> bytes:
        return sif[48:64]

    other = (*OBJECTS[:-1], DataObject("json", "empty.json", b" "))
    moved = (
        *OBJECTS[:2],
        DataObject("json", "a", OBJECTS[2].content[:4]),
        DataObject("json", "b", OBJECTS[2].content[4:]),
    )
    found = {
        uuid(sif) for sif in (written(), written(other), written(moved), written(arch="arm64"), written(created=1))
    }
    assert len(found) == 5
    assert all(value[6] >> 4 == 8 and value[8] >> 6 == 2 for value in found)  # RFC 9562


def test_more_objects_than_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        written(tuple(DataObject("json", str(number), b"") for number in range(48)))


def test_apptainer_signs_and_verifies_it(tmp_path: Path) -> None:
    sif = our_sif(tmp_path / "x.sif", {"Cmd": ["true"]})
    names = ("--name", "Somebody", "--email", "somebody@example.org", "--password", "", "--push=false")
    run((RUNTIME.path, "key", "newpair", "--bit-length", "2048", *names)).ok()
    run((RUNTIME.path, "sign", sif)).ok()
    verified = run((RUNTIME.path, "verify", "--local", sif)).ok()
    assert "Somebody" in verified.stdout + verified.stderr
    assert len(read_sif(sif).descriptors) == len(our_metadata({}).objects) + 2
    assert run((RUNTIME.path, "-q", "exec", sif, "echo", "signed")).ok().stdout == "signed\n"
