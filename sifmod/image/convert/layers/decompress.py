"""Decompress a blob in chunks, for all supported compressions; a truncated stream is an error."""

import bz2
import io
import lzma
import os
import re
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard

from sifmod.config.limits import limits, raised
from sifmod.image.convert.deflate import DAMAGED, gzip_stream
from sifmod.image.convert.layers.stream import Blob, Malformed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
CHUNK = 1 << 20  # bytes
_DAMAGED: tuple[type[Exception], ...] = (*DAMAGED, zstandard.ZstdError, lzma.LZMAError)
_WINDOW = 1 << 29  # bytes; the largest window of a zstd frame, and its memory
_GZIP, _XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\0"
_XZ = 1 << 29  # memory limit of an xz stream in bytes
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # with the magic after it: a tar's first name may be BZh1
HEAD = 10  # bytes that identify a blob's compression
FREE = 16 << 30  # bytes that a layer, or an image, of any size may unpack to
_WORTH = 16 << 20  # bytes; rapidgzip's threads do not pay off for smaller gzip blobs
_FEWEST, _MOST = 4, 8  # threads: it takes twice the processor time of isa-l, and about 40 MB of memory per thread


def threads_for(blob: Blob, processors: int) -> int:
    """The number of threads for `blob`: half of `processors`, since the others merge and compress, at most 8; or 1.

    It is 1 for a small blob, for few processors, and without rapidgzip, which has no wheel for ppc64le.
    """
    wanted = min(processors // 2, _MOST)
    return wanted if wanted >= _FEWEST and blob.size >= _WORTH and find_spec("rapidgzip") else 1


def chunks(blob: Blob, count: Callable[[int], None], threads: int = 1) -> Iterator[bytes]:
    """The uncompressed bytes of `blob` in chunks; `count` gets the number of compressed bytes of each read.

    The blob is read to its end, even if damaged. `threads` is the limit for a gzip blob; others take one.
    Raises Malformed for a stream that is damaged, truncated or too large, and errors of `blob`, as for a wrong digest.
    """
    if threads > 1:
        with blob.seekable() as file:
            threads = threads if file.read(len(_GZIP)) == _GZIP else 1
    if threads == 1:
        with blob.open() as file:
            yield from uncompressed(file, count)
        return
    done = yield from _in_threads(blob, count, threads)
    if done is not None:  # a padded or damaged stream: one thread reads it again
        with blob.open() as file:
            for chunk in uncompressed(file, lambda _size: None):
                if rest := chunk[done:]:
                    yield rest
                done = max(0, done - len(chunk))


def _in_threads(blob: Blob, count: Callable[[int], None], threads: int) -> Generator[bytes, None, int | None]:
    """The chunks of a gzip `blob` by rapidgzip; returns None, or after a failure the number of correct bytes.

    rapidgzip reads the blob in its own order, so another thread reads it sequentially for its digest.
    """
    import rapidgzip  # type: ignore[import-not-found] # 8 MB of code, for few machines

    beside = ThreadPoolExecutor(1, "certify")
    certified = beside.submit(_certify, blob, count)
    beside.shutdown(wait=False)
    done, failed = 0, False
    try:
        with blob.seekable() as file, rapidgzip.RapidgzipFile(file, parallelization=threads) as stream:
            while chunk := stream.read(CHUNK):
                done += len(chunk)
                yield chunk
    except (RuntimeError, ValueError, OSError):  # raised by its C++ code, also for errors of the blob in its threads
        failed = True
    certified.result()
    return done if failed else None


def _certify(blob: Blob, count: Callable[[int], None]) -> None:
    with blob.open() as file:
        while data := file.read(CHUNK):
            count(len(data))


def uncompressed(file: BinaryIO, count: Callable[[int], None]) -> Iterator[bytes]:
    """The uncompressed bytes of `file` in chunks, in one thread; `count` is as for `chunks`. Raises Malformed."""
    compressed, done = _Compressed(file, count), 0
    try:
        for chunk in _uncompressed(compressed):
            done += len(chunk)
            if done > FREE and done > limits().layer_ratio * compressed.taken:
                raise Malformed(f"unpacks to over {limits().layer_ratio} times its size{raised('layer_ratio')}")
            yield chunk
    except Malformed:
        compressed.skip()
        raise
    except _DAMAGED as error:  # some of isal's errors outlive this, and their traceback would keep all buffers
        compressed.skip()
        raise Malformed(f"is truncated, damaged or not supported: {error}") from error.with_traceback(None)
    compressed.skip()


def _uncompressed(compressed: "_Compressed") -> Iterator[bytes]:
    head = compressed.head
    if head.startswith(_GZIP):
        return _read(gzip_stream(cast(BinaryIO, compressed)))
    if is_zstd(head):
        return _zstd(compressed)
    if head.startswith(_XZ_MAGIC):
        return _xz(compressed)
    if _BZIP2.match(head):
        return _bzip2(compressed)
    return iter(compressed.read, b"")


def _read(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk


def _xz(compressed: "_Compressed") -> Iterator[bytes]:
    data = compressed.read()
    while data:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ)
        while not stream.eof:
            if chunk := stream.decompress(data, CHUNK):
                yield chunk
            data = compressed.read() if stream.needs_input else b""
            if stream.needs_input and not data:
                raise EOFError("it ends inside an xz stream")
        data = stream.unused_data.lstrip(b"\0")  # streams may be separated by zeros
        while not data and (more := compressed.read()):
            data = more.lstrip(b"\0")


def _bzip2(compressed: "_Compressed") -> Iterator[bytes]:
    try:
        yield from _read(cast(BinaryIO, bz2.BZ2File(compressed)))
    except OSError as error:  # bz2's own; a blob raises no OSError
        raise Malformed(f"is truncated or damaged: {error}") from error


def _zstd(compressed: "_Compressed") -> Iterator[bytes]:
    """The chunks of a zstd stream. libzstd does not report a truncated frame.

    So a marker frame is appended, which only decodes if the last frame was complete; else Malformed is raised.
    """
    mark = os.urandom(16) * 4  # repeated, so that its compressed frame does not contain it
    compressed.behind = zstandard.compress(mark)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    stream = decompressor.stream_reader(cast(BinaryIO, compressed), read_across_frames=True, closefd=False)
    last = b""
    for chunk in _read(stream):
        if len(chunk) < len(mark):
            last += chunk
            continue
        if last:
            yield last
        last = chunk
    if not last.endswith(mark):
        raise Malformed("is truncated: it ends inside a zstd frame")
    yield last.removesuffix(mark)


class _Compressed(io.RawIOBase):
    """A blob's file from its first byte, including the peeked head; counts bytes. `behind` is appended at its end."""

    def __init__(self, file: BinaryIO, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count
        self.behind = b""
        self.head = b""
        while len(self.head) < HEAD and (more := file.read(HEAD - len(self.head))):
            self.head += more
        self._unread = self.head
        self.taken = 0  # bytes

    def skip(self) -> None:
        while data := self._file.read(CHUNK):
            self._count(len(data))

    def readable(self) -> bool:
        return True

    def read(self, size: int = CHUNK) -> bytes:
        data = self._unread or self._file.read(size)
        self._unread = b""
        self.taken += len(data)
        self._count(len(data))
        if not data:
            data, self.behind = self.behind, b""
        return data

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        if self._unread or not isinstance(self._file, io.RawIOBase | io.BufferedIOBase):
            data = self.read(len(view))
            view[: len(data)] = data
            return len(data)
        size = self._file.readinto(view) or 0
        self.taken += size
        self._count(size)
        return size


def is_compressed(head: bytes) -> bool:
    """Whether data that starts with `head` (HEAD bytes) has a supported compression."""
    return head.startswith((_GZIP, _XZ_MAGIC)) or is_zstd(head) or bool(_BZIP2.match(head))


def is_zstd(head: bytes) -> bool:
    magic = int.from_bytes(head[:4], "little")
    return len(head) >= 4 and (magic == _MAGIC or magic & ~0xF == _SKIPPABLE)
