"""Compressions: how they are written, what they make of blocks, and that nothing larger than asked for comes out."""

import lzma
import subprocess
import zlib
from pathlib import Path

import pytest
import zstandard
from isal import isal_zlib

from sifmod.errors import ImageError, OptionError
from sifmod.image.convert.inode import Directory
from sifmod.image.convert.squashfs.compression import Compression, decompressor, parse
from support.squashfs_trees import FOLDER, build, noise

TEXTS = {
    "zstd": ("zstd:3", 6),
    "zstd:22": ("zstd:22", 6),
    "gzip": ("gzip:2", 1),
    "gzip:9": ("gzip:9", 1),
    "lz4": ("lz4", 5),
    "lz4hc": ("lz4hc:12", 5),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_compression_has_one_full_name(text: str) -> None:
    found = parse(text)
    assert (found.text, found.number) == TEXTS[text]
    assert parse(found.text) == found


@pytest.mark.parametrize(
    "text",
    ("", "xz", "zstd:", "zstd:0", "zstd:23", "zstd:x", "zstd:3:4", "zstd:-1", "gzip:0", "gzip:10", "lz4:1"),
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="compression"):
        parse(text)


@pytest.mark.parametrize("text", ("zstd:1", "zstd:3", "gzip:1", "gzip:3", "gzip:4", "gzip:9", "lz4", "lz4hc:4"))
def test_blocks_come_back_and_do_not_depend_on_their_neighbours(text: str) -> None:
    blocks = [b"a", bytes(131072), noise(131072), b"some text " * 10_000, noise(7) * 100]
    how = parse(text)
    together = [bytes(result) for result in how.compressor()(list(blocks))]
    assert together == [bytes(how.compressor()([memoryview(block)])[0]) for block in blocks]
    expand = decompressor(how.number)
    assert [expand(result, 131072) for result in together] == blocks
    with pytest.raises(ImageError):
        expand(together[1], 131071)
    for cut in (together[3][:-1], together[3][: len(together[3]) // 2], b""):
        with pytest.raises(ImageError):
            if len(expand(cut, 131072)) < len(blocks[3]):  # lz4 has no end: the reader knows what size to expect
                raise ImageError("cut")


@pytest.mark.parametrize("size", (1 << 40, 131073))
def test_a_bomb_is_not_blown_up(size: int) -> None:
    for number, bomb in ((6, zstandard.ZstdCompressor().compress(bytes(200_000))), (4, lzma.compress(bytes(1 << 24)))):
        with pytest.raises(ImageError):
            decompressor(number)(bomb, 131072)
    frame = bytearray(zstandard.ZstdCompressor(level=1).compress(bytes(300_000)))
    frame[4] |= 0xC0  # a header of eight bytes of size
    frame[5:9] = size.to_bytes(8, "little")
    with pytest.raises(ImageError):
        decompressor(6)(bytes(frame), 131072)


@pytest.mark.parametrize("number", (0, 2, 3, 7, 65535))
def test_a_compression_that_is_not_supported_is_named(number: int) -> None:
    with pytest.raises(ImageError, match="not supported"):
        decompressor(number)


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("zstd:7", ("Compression zstd", "compression-level 7")),
        ("gzip:5", ("Compression gzip", "compression-level 5")),
        ("lz4", ("Compression lz4",)),
        ("lz4hc", ("Compression lz4", "High Compression option specified (-Xhc)")),
    ),
)
def test_unsquashfs_names_the_compression_and_its_level(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    build(tmp_path / "image", lambda _: Directory(*FOLDER), text)
    done = subprocess.run(["unsquashfs", "-s", str(tmp_path / "image")], capture_output=True, text=True, check=True)
    assert set(expected) <= {line.strip() for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("how", "library"),
    (
        (Compression("zstd", 3), "libzstd"),
        (Compression("gzip", 1), "isa-l"),
        (Compression("gzip", 2), "isa-l"),
        (Compression("gzip", 3), "zlib"),
        (Compression("gzip", 6), "zlib"),
        (Compression("lz4", 0), "lz4"),
    ),
)
def test_what_decides_the_bytes_is_named(how: Compression, library: str) -> None:
    (own, number), (name, version) = how.versions()
    assert (own, name) == ("squashfs-format", library) and number.isdigit() and version[0].isdigit()


@pytest.mark.parametrize("level", range(1, 10))
def test_only_the_levels_whose_bytes_are_the_same_on_every_processor_are_isals(level: int) -> None:
    block = noise(1000) * 100
    ours = bytes(Compression("gzip", level).compressor()([block])[0])
    assert ours == (isal_zlib.compress(block, level) if level < 3 else zlib.compress(block, level))
