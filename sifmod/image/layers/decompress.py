"""Decompression: a blob's uncompressed bytes in chunks, whichever way it is compressed; a cut stream is an error."""

import io
from collections.abc import Callable, Iterator
from gzip import BadGzipFile
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard
from isal import igzip, igzip_lib

from sifmod.image.layers.blob import Blob
from sifmod.image.layers.malformed import Malformed
from sifmod.image.layers.zstd_frames import Frames, is_zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 20  # bytes
_ISAL = cast(type[Exception], igzip_lib.IsalError)  # its stub has an instance
_DAMAGED = (EOFError, BadGzipFile, _ISAL, zstandard.ZstdError)
_WINDOW = 1 << 27  # bytes; the largest window of a zstd frame, libzstd's own limit


def chunks(blob: Blob, count: Callable[[int], None]) -> Iterator[bytes]:
    """The uncompressed bytes in chunks of at most CHUNK; `count` is told how many compressed bytes were read.

    Raises Malformed for a stream that is damaged or cut, and what `blob` raises.
    """
    with blob.open() as file:
        compressed = _Compressed(file, count)
        head = compressed.head
        try:
            if head.startswith(b"\x1f\x8b"):
                yield from _gzip(compressed)
            elif is_zstd(head):
                yield from _zstd(compressed)
            else:
                while chunk := compressed.read(CHUNK):
                    yield chunk
        except _DAMAGED as error:  # some of isal's outlive this, and would keep all buffers with their traceback
            raise Malformed(f"is cut or damaged: {error}") from error.with_traceback(None)


def _gzip(compressed: "_Compressed") -> Iterator[bytes]:
    with igzip.open(compressed, "rb") as file:  # type: ignore[no-untyped-call]
        while chunk := file.read(CHUNK):
            yield chunk


def _zstd(compressed: "_Compressed") -> Iterator[bytes]:
    compressed.frames = Frames()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    with decompressor.stream_reader(cast(BinaryIO, compressed), read_across_frames=True, closefd=False) as file:
        while chunk := file.read(CHUNK):
            yield chunk
    while compressed.read(CHUNK):  # what libzstd left unread
        pass
    if not compressed.frames.whole:
        raise Malformed("is cut: it ends inside a zstd frame")


class _Compressed(io.RawIOBase):
    """A blob's file from its first byte, which was looked at; counts, and follows zstd's frames."""

    def __init__(self, file: BinaryIO, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count
        self.frames: Frames | None = None
        self.head = b""
        while len(self.head) < 4 and (more := file.read(4 - len(self.head))):
            self.head += more
        self._unread = self.head

    def readable(self) -> bool:
        return True

    def read(self, size: int = CHUNK) -> bytes:
        data = self._unread or self._file.read(size)
        self._unread = b""
        self._count(len(data))
        if self.frames is not None:
            self.frames.feed(data)
        return data

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        if self._unread or not isinstance(self._file, io.RawIOBase | io.BufferedIOBase):
            data = self.read(len(view))
            view[: len(data)] = data
            return len(data)
        size = self._file.readinto(view) or 0
        self._count(size)
        return size
