"""Pipeline: threads compress blocks in batches, which are written to the file in the order of submission."""

import os
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Self

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.compression import Buffer, Compression
from sifmod.image.convert.squashfs.superblock import BLOCK, STORED

Block = Buffer | list[bytes]
"""One block: its data, or pieces for a thread to join."""

_BLOCKS_AT_ONCE = 256  # total in all running batches, of 128 KiB each
MOST_BLOCKS = 1 << 25  # 4 TiB of files in blocks of 128 KiB, 128 MiB of memory


class Written:
    """Sizes of all blocks in order (0 for holes), offsets of those that are no holes, and the fragments."""

    def __init__(self, block_size: int = BLOCK) -> None:
        self.block_size = block_size  # bytes
        self.sizes = array("I")
        self.starts = array("Q")  # of stored blocks
        self.fragment_starts = array("Q")
        self.fragment_sizes = array("I")

    def reserve(self, count: int) -> None:
        """Add `count` blocks, which are holes until `note`. Raises ImageError if there are too many."""
        if len(self.sizes) + count > MOST_BLOCKS:
            most = f"{MOST_BLOCKS} blocks of {self.block_size} bytes"
            raise ImageError(f"the image's files have more than {most} in total, including holes")
        self.sizes.frombytes(bytes(4 * count))

    def note(self, place: int, position: int, word: int) -> None:
        """Note one stored block, or a fragment for a negative place, in the order of the file."""
        if place < 0:
            self.fragment_starts.append(position)
            self.fragment_sizes.append(word)
        else:
            self.sizes[place] = word
            self.starts.append(position)


class Pipeline:
    """Compresses blocks in threads, and writes them in order; a context manager, which ends its threads on exit.

    Memory is bounded: `submit` waits while too many batches are unwritten. The file does not depend on the number of
    threads.
    """

    def __init__(self, file: BinaryIO, offset: int, compression: Compression, processors: int) -> None:
        self.written = Written()
        self.position = 0  # position of the next byte, relative to `offset`
        self._fd = file.fileno()
        self._offset = offset
        self._compression = compression
        threads = max(1, processors)
        self._most = threads * 2 + 1  # batches under way
        self.batch = max(4, min(32, _BLOCKS_AT_ONCE // self._most))  # blocks
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(threads, "compress", self._begin)
        self._writer = ThreadPoolExecutor(1, "write")  # takes the batches in their order
        self._under_way: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for threads in (self._threads, self._writer):
            threads.shutdown(cancel_futures=kind is not None)  # then queued blocks need no compression

    def submit(self, blocks: list[Block], places: list[int]) -> None:
        """Submit blocks for compression, to be written after all earlier ones. Raises errors of the threads.

        A place is a block's index, or ~index of a fragment.
        """
        if len(self._under_way) == self._most:
            self._under_way.popleft().result()
        compressed = self._threads.submit(self._compress, blocks)
        self._under_way.append(self._writer.submit(self._write_batch, compressed, places))

    def finish(self) -> None:
        """Wait until everything is written, and end the threads. Raises errors of the threads."""
        while self._under_way:
            self._under_way.popleft().result()
        self._threads.shutdown()
        self._writer.shutdown()

    def append(self, data: Buffer | bytearray) -> int:
        """Append from the caller's thread after `finish`; returns the offset."""
        place = self.position
        self._write([memoryview(data)])
        return place

    def _begin(self) -> None:
        """Called once in each thread, which gets its own compressor."""
        self._own.compress = self._compression.compressor()

    def _compress(self, blocks: list[Block]) -> tuple[list[Buffer], Sequence[Buffer]]:
        whole = [b"".join(block) if isinstance(block, list) else block for block in blocks]
        blocks.clear()
        return whole, self._own.compress(whole)

    def _write_batch(self, compressed: Future[tuple[list[Buffer], Sequence[Buffer]]], places: list[int]) -> None:
        """Write the compressed form of each block if it is shorter; note sizes and offsets."""
        chosen: list[Buffer] = []
        position = self.position
        for block, result, place in zip(*compressed.result(), places, strict=True):
            word = len(result)
            if word >= len(block):
                result, word = block, len(block) | STORED
            chosen.append(result)
            self.written.note(place, position, word)
            position += len(result)
        self._write(chosen)

    def _write(self, pieces: list[Buffer]) -> None:
        """Append pieces in sequence. Raises OSError."""
        size = sum(map(len, pieces))
        done = os.pwritev(self._fd, pieces, self._offset + self.position)
        if done < size:  # a full disk is reported only on the next write
            rest = memoryview(b"".join(pieces))
            while done < size:
                done += os.pwrite(self._fd, rest[done:], self._offset + self.position + done)
        self.position += size
