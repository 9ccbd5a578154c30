"""Pipeline: blocks are compressed by threads, in batches, and written to the file in the order they were given."""

import os
import threading
from array import array
from collections.abc import Sequence
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple, Self

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.compression import Buffer, Compress, Compression
from sifmod.image.convert.squashfs.superblock import BLOCK, STORED

Block = Buffer | list[bytes]
"""One block: its data, or pieces of it that a thread joins."""

_BLOCKS_AT_ONCE = 256  # in all batches under way, of 128 KiB each
MOST_BLOCKS = 1 << 25  # 4 TiB of files in blocks of 128 KiB, 128 MiB of memory


class Written:
    """Sizes of all blocks in the order given (holes have 0), starts of those stored, and the fragments."""

    def __init__(self, block_size: int = BLOCK) -> None:
        self.block_size = block_size  # bytes
        self.sizes = array("I")
        self.starts = array("Q")  # of stored blocks
        self.fragment_starts = array("Q")
        self.fragment_sizes = array("I")

    def reserve(self, count: int) -> None:
        """Add blocks; they are holes until they are noted. Raises ImageError when there are too many."""
        if len(self.sizes) + count > MOST_BLOCKS:
            raise ImageError("the image's files have more than 4 TiB in all, holes included")
        self.sizes.frombytes(bytes(4 * count))

    def note(self, place: int, position: int, word: int) -> None:
        """Note one stored block, or for a place below 0 a fragment, in the order of the file."""
        if place < 0:
            self.fragment_starts.append(position)
            self.fragment_sizes.append(word)
        else:
            self.sizes[place] = word
            self.starts.append(position)


class Batch(NamedTuple):
    """Blocks that one thread compresses together; a place is a block's index, or ~index of a fragment."""

    number: int
    blocks: list[Block]
    places: list[int]


class Pipeline:
    """A context manager; on leaving it the threads have ended.

    Memory is bounded: `submit` waits while too many batches are not yet written. The bytes of the file do not depend
    on the number of threads.
    """

    def __init__(self, file: BinaryIO, offset: int, compression: Compression, processors: int) -> None:
        self.written = Written()
        self.position = 0  # of the next byte, counted from `offset`
        self._fd = file.fileno()
        self._offset = offset
        self._compression = compression
        self._processors = max(1, processors)
        under_way = self._processors * 2 + 1
        self.batch = max(4, min(32, _BLOCKS_AT_ONCE // under_way))  # blocks
        self._room = threading.Semaphore(under_way)
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._order = threading.Lock()
        self._ready: dict[int, tuple[Batch, Sequence[Buffer]]] = {}
        self._writing = False
        self._given = 0
        self._next = 0
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._failure = self._failure or RuntimeError("stopped")  # what is queued is not worth compressing
        self._join()

    def submit(self, blocks: list[Block], places: list[int]) -> None:
        """Have blocks compressed and written after all that were given before. Raises what a thread has raised."""
        if not self._threads:
            self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._processors)]
            for thread in self._threads:
                thread.start()
        self._room.acquire()
        if self._failure is not None:
            self._room.release()
            raise self._failure
        self._queue.put(Batch(self._given, blocks, places))
        self._given += 1

    def finish(self) -> None:
        """Wait until everything is written, and end the threads. Raises what a thread has raised."""
        self._join()
        if self._failure is not None:
            raise self._failure

    def append(self, data: Buffer | bytearray) -> int:
        """Write at the end, from the caller's own thread, once `finish` has returned; give the place."""
        place = self.position
        self._write([memoryview(data)])
        return place

    def _join(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _work(self) -> None:
        compress = self._compression.compressor()
        while self._serve(compress):
            pass

    def _serve(self, compress: Compress) -> bool:
        """Compress one batch; False at the end. Nothing of it stays in memory while the thread waits for the next."""
        batch = self._queue.get()
        if batch is None:
            return False
        try:
            if self._failure is None:
                whole = [b"".join(block) if type(block) is list else block for block in batch.blocks]
                batch.blocks[:] = whole
                self._commit(batch, compress(whole))  # type: ignore[arg-type]
                return True
        except BaseException as error:  # goes to the thread that submits
            self._failure = error
        self._room.release(self._processors * 4)  # batches that waited for this one are never written
        return True

    def _commit(self, batch: Batch, results: Sequence[Buffer]) -> None:
        """Write all batches whose turn has come, unless another thread is about it."""
        with self._order:
            self._ready[batch.number] = batch, results
            if self._writing:
                return
            self._writing = True
        while True:
            with self._order:
                turn = self._ready.pop(self._next, None)
                if turn is None:
                    self._writing = False
                    return
                self._next += 1
            self._write(self._take(*turn))
            self._room.release()

    def _take(self, batch: Batch, results: Sequence[Buffer]) -> list[Buffer]:
        """Choose for each block its compressed form or, where that is no shorter, its own; note sizes and places."""
        chosen: list[Buffer] = []
        position = self.position
        for block, result, place in zip(batch.blocks, results, batch.places, strict=True):
            word = len(result)
            if word >= len(block):
                result, word = block, len(block) | STORED  # type: ignore[assignment] # joined by now
            chosen.append(result)
            self.written.note(place, position, word)
            position += len(result)
        return chosen

    def _write(self, pieces: list[Buffer]) -> None:
        """Write pieces one after the other at the end. Raises OSError."""
        size = sum(map(len, pieces))
        done = os.pwritev(self._fd, pieces, self._offset + self.position)
        if done < size:  # a full disk says so only on the next try
            rest = memoryview(b"".join(pieces))
            while done < size:
                done += os.pwrite(self._fd, rest[done:], self._offset + self.position + done)
        self.position += size
