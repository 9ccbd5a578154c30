"""Sparse files in tars: holes reach the writer as holes."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.inode import File, Plain, unpacked
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import SquashfsWriter
from support.layers import EPOCH, Memory, Stored, merged
from support.tars import gnu_tar, header, records, refused

POSIX = "--format=posix --sparse-version="
SPARSE = ("--format=oldgnu", "--format=gnu", f"{POSIX}0.0", f"{POSIX}0.1", f"{POSIX}1.0")


@pytest.mark.parametrize("way", SPARSE)
def test_sparse_files(way: str, tmp_path: Path) -> None:
    """Holes at the start, between and at the end; small, large, over 8 GiB: told as holes, never as zeros."""
    root = tmp_path / "root"
    root.mkdir()
    make_sparse(root / "large", 10 << 30, {1 << 20: b"x" * 5000, 9 << 30: os.urandom(200_000)})
    make_sparse(root / "small", 100_000, {8192: b"y" * 4096, 65536: b"z" * 10})
    make_sparse(root / "many", 100 << 20, {each << 20: b"%d" % each for each in range(60)})
    make_sparse(root / "hole", 1 << 30, {})
    (root / "solid").write_bytes(b"solid")
    archive = gnu_tar(root, "-S", *way.split())
    assert len(archive) < 3 << 20
    data = Memory()
    entries = merged([Stored(archive)], data).root.entries
    for name in ("large", "many", "hole"):
        node = entries[name.encode()]
        assert isinstance(node, File)
        assert node.content.size == (root / name).stat().st_size
        check_parts(root / name, data.parts_of(node.content))
    small = entries[b"small"]
    assert isinstance(small, File)
    assert data.bytes_of(small.content) == (root / "small").read_bytes()
    assert isinstance(solid := entries[b"solid"], Plain)
    assert data.bytes_of(unpacked(solid).content) == b"solid"


def make_sparse(path: Path, size: int, content: Mapping[int, bytes]) -> None:
    with path.open("wb") as file:
        for offset, data in content.items():
            file.seek(offset)
            file.write(data)
        file.truncate(size)


def check_parts(path: Path, parts: list[bytes | int]) -> None:
    assert sum(len(part) for part in parts if isinstance(part, bytes)) < 2 << 20
    with path.open("rb") as file:
        for part in parts:
            if isinstance(part, bytes):
                assert file.read(len(part)) == part
            else:
                here = file.tell()
                try:
                    following = os.lseek(file.fileno(), here, os.SEEK_DATA)
                except OSError:  # no more data
                    following = path.stat().st_size
                assert following >= here + part or not any(file.read(part))
                file.seek(here + part)


@pytest.mark.parametrize(
    ("sparse", "why"),
    (
        ({"GNU.sparse.map": "0,5,3,1"}, "out of order"),
        ({"GNU.sparse.map": "0,11"}, "exceeds its"),
        ({"GNU.sparse.map": "0,5"}, "but 0 are stored"),
        ({"GNU.sparse.map": "0"}, "without a length"),
        ({"GNU.sparse.map": "0,x"}, "not a number"),
        ({"GNU.sparse.map": "0,-1"}, "not a number"),
        ({"GNU.sparse.size": str(1 << 50)}, "(`limits: {sparse_file_size: N}`"),
    ),
)
def test_sparse_maps_that_lie(sparse: dict[str, str], why: str) -> None:
    assert why in refused(records({"GNU.sparse.size": "10", **sparse}) + header())


def test_sparse_files_cannot_claim_any_size_together(tmp_path: Path) -> None:
    one = records({"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": ""})
    layer = Stored(b"".join(one + header(name=b"%d" % each) for each in range(5)))
    with (
        (tmp_path / "x").open("wb") as file,
        pytest.raises(ImageError, match=r"more than [0-9]+ blocks of 131072 bytes in total, including holes"),
        SquashfsWriter(file, 0, parse("gzip"), 1, EPOCH) as writer,
    ):
        merge_layers([layer], writer, epoch=EPOCH, progress=lambda _read, _total: None)
