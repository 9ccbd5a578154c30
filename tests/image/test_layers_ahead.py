"""Layers on their way: how many at once, what is read of them whatever happens, and that their threads end."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard

from sifmod.errors import ImageError
from sifmod.image.convert import budget as watching
from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.layers import decompress
from sifmod.image.convert.layers.ahead import ReadAhead
from sifmod.image.convert.layers.decompress import CHUNK, chunks, threads_for
from sifmod.image.convert.layers.stream import Malformed, Stream, Warnings
from sifmod.image.convert.layers.tar import TarReader
from support.layers import Memory, Stored
from support.lazily import Lazily

BLOCK = 131072
LONG = bytes(8 * CHUNK)  # of more chunks than wait
NOTHING: Callable[[int, int], None] = lambda _read, _total: None  # noqa: E731


def at_work(name: str = "decompress") -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.fixture(autouse=True)
def all_threads_end() -> Iterator[None]:
    yield
    for name in ("decompress", "hash", "certify"):
        for thread in at_work(name):
            thread.join(20)
            assert not thread.is_alive()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.parametrize(("processors", "begun"), [(1, 1), (2, 2), (3, 3), (12, 8)])
def test_as_many_layers_at_once_as_there_are_processors(processors: int, begun: int) -> None:
    layers = [Stored(LONG)] * 10
    with ReadAhead(layers, NOTHING, processors) as ahead:
        before = at_work()
        assert len(before) == begun
        with ahead.layer() as first:
            assert len(b"".join(first)) == len(LONG)
        before[0].join(20)  # of the layer that was read
        assert len(at_work()) == begun  # another one has taken its place


def test_layers_come_in_their_order_and_progress_is_told() -> None:
    layers = [Stored(gzip.compress(bytes([each]) * 3_000_000)) for each in range(5)]
    told: list[tuple[int, int]] = []
    found = []
    with ReadAhead(layers, lambda read, total: told.append((read, total)), 3) as ahead:
        for _ in layers:
            with ahead.layer() as data:
                found.append(b"".join(data)[0])
    total = sum(layer.size for layer in layers)
    assert found == [0, 1, 2, 3, 4]
    assert told == sorted(told)
    assert told[-1] == (total, total)
    assert len(told) == 5 * (3 + 1)


def test_what_a_block_leaves_is_read() -> None:
    layers = [Stored(LONG), Stored(b"second")]
    with ReadAhead(layers, NOTHING) as ahead:
        with ahead.layer():
            pass
        with ahead.layer() as data:
            assert list(data) == [b"second"]


def test_leaving_early_ends_the_threads() -> None:
    with pytest.raises(KeyError), ReadAhead([Stored(LONG)] * 3, NOTHING, 2) as ahead, ahead.layer() as data:
        next(data)
        raise KeyError


def test_a_small_layer_that_is_named_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1 MB that was named 5000 times was unpacked to 5 TB: only each by itself had a bound."""
    monkeypatch.setattr(decompress, "FREE", CHUNK)
    blob = Stored(gzip.compress(bytes(20 * CHUNK)))
    most = 2000 * blob.size // (20 * CHUNK)
    with ReadAhead([Stored(LONG), *[blob] * 2 * most], NOTHING) as ahead, ahead.layer() as first:
        assert len(b"".join(first)) == len(LONG)  # whose own size lets more be unpacked
    with ReadAhead([blob] * 2 * most, NOTHING) as ahead:
        for _ in range(most):
            with ahead.layer() as data:
                deque(data, maxlen=0)
        said = r"and those below unpack to over 2000 times their size \(`limits: "
        with pytest.raises(Malformed, match=said), ahead.layer() as data:
            deque(data, maxlen=0)


def test_a_layer_that_is_not_what_the_config_states() -> None:
    for diff_id in (sha256(b"x"), ""):
        with ReadAhead([Stored(b"x", diff_id=diff_id)], NOTHING) as ahead, ahead.layer() as data:
            assert list(data) == [b"x"]
    other = Stored(b"y", diff_id=sha256(b"x"))
    with pytest.raises(Malformed) as caught, ReadAhead([other], NOTHING) as ahead, ahead.layer():
        pass
    expected = f"expected the diff_id {sha256(b'x')}, got {sha256(b'y')}"
    assert str(caught.value) == f"does not match the image's config: {expected}"


@dataclass(frozen=True)
class Unpromised(Stored):
    """A blob that has another digest than was promised, which the read that finds the end says."""

    def open(self) -> BinaryIO:
        return cast(BinaryIO, Ending(self.data))

    def seekable(self) -> BinaryIO:
        return io.BytesIO(self.data)


class Ending(io.RawIOBase):
    """Gives few bytes at a time, and an error at the end."""

    def __init__(self, data: bytes) -> None:
        self.left = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self.left.read(min(len(view), 50_000))
        if not data:
            raise ImageError("it has a wrong digest")
        view[: len(data)] = data
        return len(data)


def test_what_a_blob_says_at_its_end_counts_more_than_what_is_in_it() -> None:
    blob = Unpromised(bytes(3 * CHUNK))
    with pytest.raises(ImageError, match="wrong digest"), ReadAhead([blob], NOTHING) as ahead, ahead.layer() as data:
        next(data)
        raise Malformed("is odd")


def test_what_is_in_it_is_told_where_the_blob_is_right() -> None:
    error = Malformed("is odd")
    with pytest.raises(Malformed) as caught, ReadAhead([Stored(LONG)], NOTHING) as ahead, ahead.layer() as data:
        next(data)
        raise error
    assert caught.value is error


def test_a_damaged_layer_is_told_where_its_block_found_it_malformed() -> None:
    blob = Stored(LONG, diff_id=sha256(b"other"))
    with pytest.raises(Malformed, match="is odd"), ReadAhead([blob], NOTHING) as ahead, ahead.layer() as data:
        next(data)
        raise Malformed("is odd")


@pytest.mark.parametrize(
    ("processors", "size", "expected"),
    [
        (1, 1 << 30, 1),
        (7, 1 << 30, 1),
        (8, 1 << 30, 4),
        (9, 16 << 20, 4),
        (10, 16 << 20, 5),
        (16, 1 << 30, 8),
        (17, 1 << 30, 8),
        (128, 1 << 30, 8),
        (128, (16 << 20) - 1, 1),
    ],
)
def test_how_many_threads_a_large_layer_is_worth(processors: int, size: int, expected: int) -> None:
    @dataclass(frozen=True)
    class Sized(Stored):
        @property
        def size(self) -> int:
            return size

    assert threads_for(Sized(b""), processors) == expected


NOISE = random.Random(1).randbytes(3_000_000)
PACKED = Lazily(
    plain=lambda: NOISE,
    gzip=lambda: gzip.compress(NOISE, 1),
    zstd=lambda: zstandard.ZstdCompressor(level=1, write_checksum=True).compress(NOISE),
    xz=lambda: lzma.compress(NOISE, preset=0),
    bzip2=lambda: bz2.compress(NOISE, 1),
)


@dataclass(frozen=True)
class Dribbling(Stored):
    """Whose first reads give a byte each; of one sort or another of file."""

    raw: bool = True

    def open(self) -> BinaryIO:
        return cast(BinaryIO, RawDribble(self.data) if self.raw else Dribble(self.data))


class Dribble:
    """A file that is just read, as a download is."""

    def __init__(self, data: bytes) -> None:
        self.left, self.first = io.BytesIO(data), 20

    def __enter__(self) -> "Dribble":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int = -1) -> bytes:
        self.first -= 1
        return self.left.read(1 if self.first > 0 else size)


class RawDribble(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self.inner = Dribble(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self.inner.read(len(view))
        view[: len(data)] = data
        return len(data)


@pytest.mark.parametrize("raw", (True, False))
@pytest.mark.parametrize("way", PACKED)
def test_a_file_that_gives_few_bytes_at_a_time(way: str, raw: bool) -> None:
    read: list[int] = []
    assert b"".join(chunks(Dribbling(PACKED[way], raw=raw), read.append)) == NOISE
    assert sum(read) == len(PACKED[way])


@pytest.mark.parametrize("way", ("gzip", "zstd", "xz"))
@pytest.mark.parametrize("at", (20, 1_500_000))
def test_a_damaged_stream_is_read_to_its_end(way: str, at: int) -> None:
    data = bytearray(PACKED[way])
    data[at : at + 2000] = bytes(2000)
    read: list[int] = []
    with pytest.raises(Malformed):
        for _ in chunks(Stored(bytes(data)), read.append):
            pass
    assert sum(read) == len(data)
    with pytest.raises(ImageError, match="a wrong digest"):
        list(chunks(Unpromised(bytes(data)), read.append))


@pytest.mark.parametrize("way", ("gzip", "zstd"))
def test_what_follows_a_stream_is_read_and_refused(way: str) -> None:
    data = PACKED[way] + b"more" * CHUNK
    read: list[int] = []
    with pytest.raises(Malformed, match=r"damaged"):
        list(chunks(Stored(data), read.append))
    assert sum(read) == len(data)


def test_zeros_between_xz_streams_may_be_many() -> None:
    part = lzma.compress(NOISE[:CHUNK], preset=0)
    for zeros in (4, CHUNK, 3 * CHUNK + 4):
        for data, expected in ((part + bytes(zeros) + part, 2), (part + bytes(zeros), 1)):
            assert b"".join(chunks(Stored(data), lambda _size: None)) == NOISE[:CHUNK] * expected


def test_no_chunk_is_larger_than_it_may_be() -> None:
    for data in (bytes(5 * CHUNK), gzip.compress(bytes(5 * CHUNK)), lzma.compress(bytes(5 * CHUNK), preset=0)):
        sizes = [len(chunk) for chunk in chunks(Stored(data), lambda _size: None)]
        assert max(sizes) <= CHUNK
        assert sum(sizes) == 5 * CHUNK


def source(data: bytes) -> TarReader:
    """A reader of tars that stands before these bytes of a member."""
    return TarReader(Stream(iter((data[:1000], data[1000:]))), Warnings())


@pytest.mark.parametrize("size", (0, 1, BLOCK - 1, BLOCK, BLOCK + 1))
def test_a_file_is_handed_over(size: int) -> None:
    data = Memory()
    content = source(NOISE).copy(size, None, data)
    assert (content.size, data.bytes_of(content)) == (size, NOISE[:size])
    assert len(data.files) == 1


@pytest.mark.parametrize("size", (BLOCK - 1, BLOCK))
def test_a_sparse_file_is_handed_over_with_its_holes(size: int) -> None:
    for extents in ((), ((0, 10),), ((5, 10), (15, 3), (100, 7)), ((size - 4, 4),), ((0, size),)):
        data, expected, at = Memory(), bytearray(size), 0
        for offset, length in extents:
            expected[offset : offset + length] = NOISE[at : at + length]
            at += length
        content = source(NOISE).copy(size, extents, data)
        assert data.bytes_of(content) == expected
        assert sum(part for part in data.parts_of(content) if isinstance(part, int)) == size - at


def test_members_are_looked_at_in_runs() -> None:
    runs = [list(run) for run in CpuWatch(None).runs(iter(range(600)))]
    assert [len(run) for run in runs] == [256, 256, 88]
    assert [each for run in runs for each in run] == list(range(600))
    assert list(CpuWatch(1).runs(iter(()))) == []


def test_the_memory_of_a_process_is_what_it_has_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, status = os.sysconf("SC_PAGE_SIZE"), tmp_path / "statm"
    status.write_text("1000 50 20 3 0 4 0\n")
    monkeypatch.setattr(watching, "_STATUS", status)

    def read_with(limit: int | None) -> int:
        return sum(len(list(run)) for run in CpuWatch(limit).runs(iter(range(300))))

    assert read_with(40 * page) == read_with(None) == 300
    with pytest.raises(ImageError, match="after about 256 of its entries"):
        read_with(40 * page - 1)
    status.unlink()
    assert read_with(4) == 300
