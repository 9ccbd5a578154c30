"""Whether the site's runtime starts a SIF, and what is said where it does not, or only slowly."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.errors import UnstartableError
from sifmod.image.artifact import FetchRequest, no_progress
from sifmod.image.convert.sif.header import SifInfo, read_sif
from sifmod.image.convert.sif.write import partition_offset, write_header
from sifmod.image.program import Program
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from sifmod.image.startable import (
    can_start,
    check_startable,
    refusal_here,
    refusal_reason,
    slow_start_cost,
)
from sifmod.module.plan import Runtime
from support.fetching import Prefix, plan
from support.hand_made import our_metadata

GZIP, LZ4, ZSTD = 1, 5, 6


def sif(path: Path, compression: int) -> tuple[Path, SifInfo]:
    """One whose squashfs is a superblock."""
    objects = our_metadata({}).objects
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.seek(partition_offset(objects))
        file.write(struct.pack("<4s16xH74x", b"hsqs", compression))
        write_header(file, objects, 96, "amd64", 0)
    return path, read_sif(path)


def runtime(directory: Path, says: str = "singularity-ce version 4.3.1") -> Runtime:
    program = directory / "runtime"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return Runtime("singularity", str(program))


def request(source: str, by: Runtime, prefix: Path, *, startable: bool = False) -> FetchRequest:
    with Prefix(prefix).store() as store:
        wanted = plan(source).required_image
        return FetchRequest(parse(source), wanted, by, store, no_progress, Settings(startable=startable))


@pytest.mark.parametrize(("number", "name"), [(GZIP, "gzip"), (4, "xz"), (LZ4, "lz4"), (ZSTD, "zstd"), (77, "unknown")])
def test_the_compression_of_a_sif(tmp_path: Path, number: int, name: str) -> None:
    assert sif(tmp_path / "x.sif", number)[1].compression == name


def test_another_file_system_has_none(tmp_path: Path) -> None:
    path, info = sif(tmp_path / "x.sif", ZSTD)
    row = info.primary.raw
    for content in (b"EXT3".ljust(96, b"\0"), b"hsq"):
        ext3 = row.replace(struct.pack("<ii", 1, 2), struct.pack("<ii", 2, 2))
        path.write_bytes(path.read_bytes().replace(row, ext3)[: info.primary.offset] + content.ljust(96, b"\0"))
        info = read_sif(path)
        assert info.compression == ""
        assert refusal_here(info, runtime(tmp_path)) == ""


def test_why_a_sif_does_not_start_here(tmp_path: Path) -> None:
    _, info = sif(tmp_path / "x.sif", ZSTD)
    why = "SingularityCE 4.3 without setuid refuses an image whose squashfs is compressed with zstd"
    assert refusal_here(info, runtime(tmp_path)) == f"its squashfs is compressed with zstd; {why}"
    assert refusal_here(info, Runtime("singularity", "")) == ""
    assert refusal_here(sif(tmp_path / "y.sif", GZIP)[1], runtime(tmp_path)) == ""


def test_a_sif_that_does_not_start_is_a_note_or_refused(tmp_path: Path) -> None:
    path, info = sif(tmp_path / "a dir" / "x.sif", ZSTD)
    by = runtime(tmp_path)
    (note,) = check_startable(info, request(str(path), by, tmp_path / "prefix"))
    assert note.startswith(f"{path} cannot be started here: its squashfs is compressed with zstd; SingularityCE 4.3 ")
    with pytest.raises(UnstartableError) as caught:
        check_startable(info, request(str(path), by, tmp_path / "prefix", startable=True))
    assert caught.value.message == note
    build = "-d image.root '{}' && singularity build image-gzip.sif image.root\nand use image-gzip.sif as the source"
    assert f":\n  unsquashfs -o {info.primary.offset} {build.format(path)}" in caught.value.hint


def test_one_that_is_elsewhere_is_fetched_first(tmp_path: Path) -> None:
    _, info = sif(tmp_path / "x.sif", ZSTD)
    source = "https://host.invalid/x.sif;y"
    with pytest.raises(UnstartableError) as caught:
        check_startable(info, request(source, runtime(tmp_path), tmp_path / "prefix", startable=True))
    first = f"sifmod fetch -o image.sif '{source}' && unsquashfs -o {info.primary.offset} -d image.root image.sif && "
    assert f":\n  {first}singularity build " in caught.value.hint


@pytest.mark.parametrize("startable", [True, False])
def test_what_costs_much_is_a_note(tmp_path: Path, startable: bool) -> None:
    path, info = sif(tmp_path / "x.sif", LZ4)
    asked = request(str(path), runtime(tmp_path), tmp_path / "prefix", startable=startable)
    cost = "SingularityCE 4.3 without setuid extracts the whole image before each command if the image has lz4"
    (note,) = check_startable(info, asked)
    assert note == f"{path} is slow to start: {cost} and the runtime's squashfuse does not support it"
    assert check_startable(sif(tmp_path / "y.sif", GZIP)[1], asked) == ()
    assert check_startable(info, replace(asked, runtime=Runtime("apptainer", ""))) == ()


def test_who_starts_what() -> None:
    ce, apptainer = Program("singularity-ce", (4, 3)), Program("apptainer", (1, 4), setuid=True)
    assert [can_start(each, ce) for each in ("gzip", "lz4", "xz", "", "zstd")] == [True, True, True, True, False]
    assert [can_start(each, apptainer) for each in ("gzip", "lz4", "zstd")] == [True, True, None]
    for nobody in (None, Program("unknown", (0, 0)), Program("singularity-pro", (4, 1))):
        assert [can_start(each, nobody) for each in ("gzip", "lz4", "zstd", "")] == [True, None, None, None]
        assert [refusal_reason(each, nobody) for each in ("gzip", "lz4", "zstd")] == [""] * 3
        assert slow_start_cost("lz4", nobody) == ""
    assert refusal_reason("lz4", ce) == ""
    assert slow_start_cost("zstd", ce) == ""
