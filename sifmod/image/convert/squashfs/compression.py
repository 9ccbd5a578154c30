"""Compression: how the blocks of a squashfs are compressed, by name, level and library."""

import lzma
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zstandard

from sifmod.errors import ImageError, OptionError
from sifmod.image.convert import deflate
from sifmod.image.convert.squashfs.superblock import COMPRESSIONS

Buffer = bytes | memoryview
Compress = Callable[[list[Buffer]], Sequence[Buffer]]
Decompress = Callable[[bytes, int], bytes]

FORMAT = 1  # format of sifmod's writer: increased by every change of its bytes
_RANGES = {"gzip": (1, 9), "zstd": (1, 22), "lz4": (0, 0), "lz4hc": (1, 12)}
_DEFAULTS = {"gzip": 2, "zstd": 3, "lz4": 0, "lz4hc": 12}
# gzip levels up to this are isal's, which is several times faster; the rest zlib's. Its level 3 gives other bytes on a
# processor with AVX-512 than on one without
_ISAL = 2
_LEAST_DICTIONARY = 4096  # bytes, of xz
_LZ4_LEGACY = 1  # the only version of lz4 blocks that kernels know


_FAILURES: tuple[type[Exception], ...] = (
    *deflate.DAMAGED,
    lzma.LZMAError,
    zstandard.ZstdError,
    ValueError,
    EOFError,
    MemoryError,
)


@dataclass(frozen=True)
class Compression:
    """A compression: `name` is gzip, zstd, lz4, lz4hc or, only for extending such a squashfs, xz."""

    name: str
    level: int  # for xz the size of its dictionary in bytes

    @property
    def text(self) -> str:
        """The compression in configuration and receipts, e.g. `zstd:3`."""
        return self.name if self.name == "lz4" else f"{self.name}:{self.level}"

    @property
    def number(self) -> int:
        return {"gzip": 1, "xz": 4, "lz4": 5, "lz4hc": 5, "zstd": 6}[self.name]

    @property
    def squashfs(self) -> str:
        """The name of the format in a squashfs: gzip, xz, lz4 (also for lz4hc) or zstd."""
        return COMPRESSIONS[self.number]

    @property
    def options(self) -> bytes:
        """The compressor options that follow the superblock of a new squashfs; not for xz."""
        if self.name == "zstd":
            return struct.pack("<I", self.level)
        if self.name == "gzip":
            return struct.pack("<IHH", self.level, 15, 0)  # level, window, strategies
        return struct.pack("<II", _LZ4_LEGACY, int(self.name == "lz4hc"))

    def versions(self) -> tuple[tuple[str, str], ...]:
        """The tools that decide an image's bytes: the writer's format and the library, with versions; not for xz."""
        if self.name == "zstd":
            library = "libzstd", ".".join(map(str, zstandard.ZSTD_VERSION))
        elif self.name == "gzip":
            by_isal = deflate.ISAL_VERSION and self.level <= _ISAL
            library = ("isa-l", deflate.ISAL_VERSION) if by_isal else ("zlib", zlib.ZLIB_RUNTIME_VERSION)
        else:
            library = "lz4", str(_lz4().library_version_string())
        return (("squashfs-format", str(FORMAT)), library)

    def compressor(self) -> Compress:
        """Return a function that compresses each block of a list. Do not share it between threads.

        The result does not depend on the neighbours of a block. It may be longer than its block. Raises ImageError for
        lz4 without its library.
        """
        if self.name == "zstd":
            return _zstd(self.level)
        if self.name == "gzip":
            pack = deflate.compress if self.level <= _ISAL else zlib.compress
            return lambda blocks: [pack(block, self.level) for block in blocks]
        if self.name == "xz":  # as kernels need it: with CRC32, and a dictionary not larger than announced
            filters = [{"id": lzma.FILTER_LZMA2, "dict_size": self.level}]
            return lambda blocks: [lzma.compress(block, check=lzma.CHECK_CRC32, filters=filters) for block in blocks]
        mode = {"mode": "high_compression", "compression": self.level} if self.name == "lz4hc" else {}
        block_of = _lz4().block
        return lambda blocks: [block_of.compress(block, store_size=False, **mode) for block in blocks]


def _lz4() -> Any:
    """The library of lz4, which has no wheel for ppc64le. Raises ImageError where it is not installed."""
    try:
        import lz4.block  # type: ignore[import-untyped]
    except ImportError:
        raise ImageError(
            "a squashfs with lz4 needs the Python package lz4, which is not installed here",
            "install sifmod with it (`pip install 'sifmod[lz4]'`), or convert the image to zstd or gzip",
        ) from None
    return lz4


def _zstd(level: int) -> Compress:
    """A function that compresses a whole list, without the GIL if zstandard's backend supports it."""
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=False)
    if "multi_compress_to_buffer" not in zstandard.backend_features:
        return lambda blocks: [compressor.compress(block) for block in blocks]

    def compress(blocks: list[Buffer]) -> Sequence[Buffer]:
        together = compressor.multi_compress_to_buffer(blocks, threads=1)  # type: ignore[arg-type]
        return [memoryview(together[i]) for i in range(len(together))]  # type: ignore[arg-type]

    return compress


def parse(text: str) -> Compression:
    """Read `zstd:3`, `zstd`, `gzip:6`, `gzip`, `lz4` or `lz4hc`; a name alone means its default level.

    Raises OptionError for anything else.
    """
    name, colon, level = text.partition(":")
    if name not in _RANGES or (colon and name == "lz4"):
        raise OptionError(f"compression {text!r} is not known", "use zstd:1-22, gzip:1-9, lz4 or lz4hc:1-12")
    if not colon:
        return Compression(name, _DEFAULTS[name])
    low, high = _RANGES[name]
    if not (level.isascii() and level.isdigit() and low <= int(level[:4]) <= high):
        raise OptionError(f"compression level {level!r} of {name} is not in {low}…{high}", f"use {name}:{low}")
    return Compression(name, int(level))


def of_squashfs(number: int, options: bytes, block_size: int) -> Compression:
    """The compression to add blocks to a squashfs of compression `number` with `options`, at sifmod's default level."""
    if (name := COMPRESSIONS[number]) != "xz":
        return parse(name)
    dictionary = int.from_bytes(options[:4], "little") if options else block_size
    return Compression("xz", min(max(dictionary, _LEAST_DICTIONARY), block_size))


def decompressor(number: int) -> Decompress:
    """Return a decompression function (data, maximum bytes) for a superblock's compression number.

    The function raises ImageError if the data is damaged or larger. Raises ImageError for an unsupported compression.
    """
    known: dict[str, Decompress] = {
        "gzip": lambda data, most: _whole(deflate.decompressobj(), data, most),
        "xz": lambda data, most: _whole(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=64 << 20), data, most),
        "lz4": _unlz4,
        "zstd": _unzstd,
    }
    name = COMPRESSIONS.get(number, str(number))
    if name not in known:
        raise ImageError(f"squashfs compression {name} is not supported", "convert the image to gzip or zstd")
    if name == "lz4":
        _lz4()
    expand = known[name]

    def decompress(data: bytes, most: int) -> bytes:
        try:
            return expand(data, most)
        except _FAILURES as error:
            raise ImageError(f"damaged squashfs: a {name} block cannot be decompressed: {error}") from None

    return decompress


def _whole(stream: Any, data: bytes, most: int) -> bytes:
    result: bytes = stream.decompress(data, most + 1)
    if not stream.eof or len(result) > most:
        raise ValueError("it is truncated or too large")
    return result


def _unlz4(data: bytes, most: int) -> bytes:
    block = _lz4().block
    try:
        return bytes(block.decompress(data, uncompressed_size=most))
    except block.LZ4BlockError as error:
        raise ValueError(error) from None


def _unzstd(data: bytes, most: int) -> bytes:
    frame = zstandard.get_frame_parameters(data)
    if frame.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR) and (
        frame.content_size > most
    ):
        raise ValueError("it is too large")
    return zstandard.ZstdDecompressor(max_window_size=8 << 20).decompress(data, max_output_size=most)
