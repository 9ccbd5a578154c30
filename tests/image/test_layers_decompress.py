"""Compressed layers: gzip of one or many members, zstd of one or many frames, plain; whole, cut and damaged."""

import bz2
import gzip
import hashlib
import lzma
import os
import random
import sys
import tarfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import zstandard

from sifmod.config.limits import Limits, use_limits
from sifmod.errors import ImageError
from sifmod.image.convert.budget import Budget
from sifmod.image.convert.layers import decompress
from sifmod.image.convert.layers.decompress import CHUNK, chunks
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.layers.stream import Malformed
from support.command import run
from support.layers import EPOCH, Entry, Memory, Seen, Stored, merged, packed, seen, tar
from support.lazily import Lazily

CONTENT = random.Random(1).randbytes(300_000) + b"text " * 100_000
LAYER = tar([Entry("f", content=CONTENT), Entry("g", content=b"last")])
HALF = len(LAYER) // 2

PROGRAM = """
import resource, sys
from pathlib import Path
from support.layers import EPOCH, Stored
from sifmod.image.convert.inode import Content
from sifmod.image.convert.layers.merge_layers import merge_layers
class Counter:
    def start(self): self.size = 0
    def write(self, chunk): self.size += len(chunk)
    def hole(self, size): raise AssertionError
    def finish(self): return Content(self.size)
    def small(self, data): raise AssertionError
blob = Stored(Path(sys.argv[1]).read_bytes())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
root = merge_layers([blob], Counter(), epoch=EPOCH, progress=lambda *_: None).root
print(root.entries[b"zeros"].content.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def zstd(data: bytes, *, checksum: bool = True, known: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=known).compress(data)


def skippable(size: int) -> bytes:
    return b"\x5e\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(size)


def uncompressed(data: bytes) -> bytes:
    return b"".join(chunks(Stored(data), lambda _size: None))


WAYS = Lazily(
    plain=lambda: LAYER,
    gzip=lambda: gzip.compress(LAYER, 1, mtime=0),
    stored=lambda: gzip.compress(LAYER, 0, mtime=0),
    members=lambda: gzip.compress(LAYER[:HALF]) + gzip.compress(b"") + gzip.compress(LAYER[HALF:]),
    many_members=lambda: b"".join(gzip.compress(LAYER[at : at + 5000]) for at in range(0, len(LAYER), 5000)),
    named=lambda: b"\x1f\x8b\x08\x18\0\0\0\0\0\3layer.tar\0comment\0" + gzip.compress(LAYER, mtime=0)[10:],
    padded=lambda: gzip.compress(LAYER) + bytes(512),
    zstd=lambda: zstd(LAYER),
    frames=lambda: (
        zstd(LAYER[:HALF], checksum=False) + skippable(1000) + zstd(LAYER[HALF:], known=False) + skippable(0)
    ),
    skippable_first=lambda: skippable(5) + zstd(LAYER),
    repeated=lambda: zstd(LAYER + bytes(1 << 20)),
    xz=lambda: lzma.compress(LAYER, preset=0),
    xz_streams=lambda: (
        lzma.compress(LAYER[:HALF], preset=0) + bytes(8) + lzma.compress(LAYER[HALF:], preset=0) + bytes(4)
    ),
    bzip2=lambda: bz2.compress(LAYER, 1),
    bzip2_streams=lambda: bz2.compress(LAYER[:HALF], 1) + bz2.compress(LAYER[HALF:], 1),
)


@pytest.mark.parametrize("way", WAYS)
def test_the_content_says_how_it_is_compressed(way: str) -> None:
    assert uncompressed(WAYS[way]).rstrip(b"\0") == LAYER.rstrip(b"\0")
    data = Memory()
    tree = seen(merged([Stored(WAYS[way])], data).root, data)
    assert tree[b"./f"].content == CONTENT


@pytest.mark.parametrize("way", ["gzip", "stored", "named", "zstd", "frames", "skippable first", "repeated"])
def test_every_cut_is_seen(way: str) -> None:
    """But where nothing of a member or frame is left."""
    whole = WAYS[way]
    ends = {0, len(whole)}
    if way == "frames":
        first = len(zstd(LAYER[:HALF], checksum=False))
        ends |= {first, first + 1008, len(whole) - 8}
    if way == "skippable first":
        ends |= {13}
    for length in {*range(1, 64), *range(len(whole) - 64, len(whole)), *range(0, len(whole), 9973)} - ends:
        if length > 3:  # less is no magic number yet: a plain tar, which is cut too
            with pytest.raises(Malformed, match="truncated"):
                uncompressed(whole[:length])
        with pytest.raises(ImageError, match=r"truncated|damaged"):
            merged([Stored(whole[:length])])


@pytest.mark.parametrize("way", ("xz", "bzip2"))
def test_cuts_of_what_is_slow_to_read_are_seen(way: str) -> None:
    whole = WAYS[way]
    for length in (12, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(Malformed, match="truncated"):
            uncompressed(whole[:length])


def test_a_tar_whose_first_name_begins_like_bzip2_is_a_tar() -> None:
    data = Memory()
    assert b"./BZh91AY" in seen(merged([Stored(tar([Entry("BZh91AY", content=b"x")]))], data).root, data)


@pytest.mark.parametrize("way", ("gzip", "zstd", "xz", "bzip2"))
def test_damage_is_seen(way: str) -> None:
    generator = random.Random(2)
    for _ in range(200 if way in ("gzip", "zstd") else 10):
        broken = bytearray(WAYS[way])
        at = generator.randrange(len(broken))
        broken[at] ^= 1 << generator.randrange(8)
        with suppress(Malformed):
            assert uncompressed(bytes(broken)) == LAYER  # some bits of the headers mean nothing


@pytest.mark.parametrize("way", ("gzip", "zstd", "xz"))
def test_what_follows_is_not_overlooked(way: str) -> None:
    with pytest.raises(Malformed):
        uncompressed(WAYS[way] + b"more than the layer")


@pytest.mark.parametrize("size", [0, 1, CHUNK - 65, CHUNK - 64, CHUNK - 1, CHUNK, CHUNK + 1])
def test_zstd_gives_all_and_no_more(size: int) -> None:
    content = random.Random(size).randbytes(size)
    read: list[int] = []
    pieces = list(chunks(Stored(zstd(content)), read.append))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= CHUNK
    assert sum(read) == len(zstd(content))


@pytest.mark.parametrize("size", range(1, 100))
def test_a_cut_in_bytes_that_are_stored_is_seen(size: int) -> None:
    """However much is missing there: what follows would be taken for it."""
    with pytest.raises(Malformed, match="truncated"):
        uncompressed(window(20)[:-size])


def test_what_follows_a_frame_is_a_frame() -> None:
    for size in range(1, 100):
        with pytest.raises(Malformed):
            uncompressed(WAYS["zstd"] + b"x" * size)


def test_chunks_are_bounded_and_counted() -> None:
    data = gzip.compress(bytes(50 << 20))
    read: list[int] = []
    assert max(len(chunk) for chunk in chunks(Stored(data), read.append)) <= CHUNK
    assert sum(read) == len(data)


def window(log: int) -> bytes:
    """The layer in one frame of raw blocks, whose header asks for a window of 2**log bytes (RFC 8878, 3.1.1.1.2)."""
    pieces = [LAYER[at : at + 100_000] for at in range(0, len(LAYER), 100_000)]
    blocks = ((len(piece) << 3 | (piece is pieces[-1])).to_bytes(3, "little") + piece for piece in pieces)
    return b"\x28\xb5\x2f\xfd\0" + bytes([(log - 10) << 3]) + b"".join(blocks)


def test_windows_of_512_mib_are_read() -> None:
    assert uncompressed(window(29)) == LAYER


def test_windows_that_take_too_much_memory_are_refused() -> None:
    with pytest.raises(Malformed, match="too much memory"):
        uncompressed(window(30))


@pytest.mark.parametrize("how", ("gzip", "zstd"))
def test_a_bomb_takes_time_but_no_memory(how: str, tmp_path: Path) -> None:
    """Two GiB of zeros in one file, of a few hundred KiB."""
    pieces, piece = 128, bytes(16 << 20)
    info = tarfile.TarInfo("zeros")
    info.size = pieces * len(piece)
    compress = gzip.compress if how == "gzip" else zstd
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compress(info.tobuf()) + compress(piece) * pieces)
    assert bomb.stat().st_size < 3 << 20
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = run((sys.executable, "-c", PROGRAM, bomb), env=environment).ok()
    size, grown = map(int, done.stdout.split())
    assert size == 2 << 30
    assert grown < 64 << 10  # KiB


def test_a_failure_ends_the_thread() -> None:
    before = threading.active_count()
    layers = [packed(tar([Entry("f", content=bytes(20 << 20))]), "gzip")] * 3 + [Stored(b"no tar" * 1000)]
    with pytest.raises(ImageError):
        merged(layers)
    for thread in threading.enumerate():
        if thread.name == "decompress":
            thread.join()
    assert threading.active_count() == before


@cache
def large() -> bytes:
    """A layer of 30 MB."""
    parts = (random.Random(each).randbytes(1 << 20) + bytes(1 << 19) for each in range(20))
    return tar([Entry(f"{each}", content=part) for each, part in enumerate(parts)])


LARGE_WAYS = Lazily(
    one_member=lambda: gzip.compress(large(), 1, mtime=0),
    members=lambda: gzip.compress(large()[: len(large()) // 2], 1) + gzip.compress(large()[len(large()) // 2 :], 1),
    padded=lambda: gzip.compress(large(), 1, mtime=0) + bytes(700),
    zstd=lambda: zstd(large()),
)


@pytest.mark.parametrize("way", LARGE_WAYS)
def test_several_threads_give_the_same(way: str) -> None:
    """Also of a stream that rapidgzip gives up, at whose end isa-l takes over."""
    read: list[int] = []
    assert b"".join(chunks(Stored(LARGE_WAYS[way]), read.append, 4)) == large()
    assert sum(read) == len(LARGE_WAYS[way])


def merge_with(budget: Budget, layers: list[Stored]) -> tuple[dict[bytes, Seen], list[list[bytes | int]]]:
    data = Memory()
    root = merge_layers(layers, data, epoch=EPOCH, progress=lambda *_: None, budget=budget).root
    return seen(root, data), data.files


@pytest.mark.parametrize("at", (0.3, 0.7, 0.999999))
def test_several_threads_see_damage_and_cuts(at: float) -> None:
    """The diff_id is what sees them all: rapidgzip takes some cuts for an end."""
    whole, diff_id = LARGE_WAYS["one member"], "sha256:" + hashlib.sha256(large()).hexdigest()
    place = int(len(whole) * at)
    broken = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
    for data in (broken, whole[:place]):
        with pytest.raises(ImageError, match=r"truncated|damaged|diff_id"):
            merge_layers(
                [Stored(data, diff_id=diff_id)], Memory(), epoch=EPOCH, progress=lambda *_: None, budget=Budget(8, None)
            )


@pytest.mark.parametrize("processors", (3, 8, 16))
def test_the_result_does_not_depend_on_processors(processors: int) -> None:
    layers = [
        *(packed(tar([Entry(f"small-{each}", content=bytes(each))]), how) for each in range(9) for how in ("gzip", "")),
        *(Stored(data) for data in LARGE_WAYS.values()),
    ]
    assert merge_with(Budget(processors, None), layers) == merge_with(Budget(1, None), layers)


def test_a_name_in_the_header_that_is_longer_than_what_is_read_at_once() -> None:
    data = b"\x1f\x8b\x08\x08\0\0\0\0\0\3" + b"n" * (2 << 20) + b"\0" + gzip.compress(LAYER, 1, mtime=0)[10:]
    with pytest.raises(Malformed, match="is truncated, damaged or not supported: Gzip header exceeds"):
        uncompressed(data)


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, zstd])
def test_a_small_layer_that_unpacks_to_terabytes(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bzip2 of 226 kB took over ten minutes; `layer_ratio` is the bound beyond the first bytes."""
    monkeypatch.setattr(decompress, "FREE", 16 << 20)
    data = pack(bytes(48 << 20))
    with pytest.raises(Malformed, match=r"unpacks to over 2000 times its size \(`limits: \{layer_ratio: N\}`"):
        uncompressed(data)
    use_limits(Limits(layer_ratio=1 << 30))
    try:
        assert len(uncompressed(data)) == 48 << 20
    finally:
        use_limits(Limits())
    monkeypatch.setattr(decompress, "FREE", 1 << 30)
    assert len(uncompressed(data)) == 48 << 20
