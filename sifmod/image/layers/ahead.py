"""Reading ahead: layers are decompressed in a thread while the one before is merged."""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from sifmod.image.layers.blob import Blob
from sifmod.image.layers.decompress import chunks

_AHEAD = 6  # chunks that wait at most

Progress = Callable[[int, int], None]
"""Is told compressed bytes read so far, and in all."""


class ReadAhead:
    """The layers' uncompressed bytes, one layer after the other, in the order given.

    A context manager: leaving it ends the thread at its next chunk. What a blob raises is raised by the layer that
    meets it.
    """

    def __init__(self, blobs: Sequence[Blob], progress: Progress) -> None:
        self._blobs = blobs
        self._progress = progress
        self._total = sum(blob.size for blob in blobs)
        self._read = 0
        self._stopped = False
        self._filled: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(_AHEAD):
            self._places.put(None)
        self._thread = threading.Thread(target=self._run, name="decompress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stopped = True
        self._places.put(None)  # the thread may wait for one; it may also wait for a download, so nobody waits for it

    def layer(self) -> Iterator[bytes]:
        """The chunks of the next layer; to be read to their end before the layer after it."""
        while (item := self._filled.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            self._places.put(None)
            self._progress(self._read, self._total)
            yield item
        self._progress(self._read, self._total)

    def _run(self) -> None:
        try:
            for blob in self._blobs:
                for chunk in chunks(blob, self._count):
                    self._places.get()
                    if self._stopped:
                        return
                    self._filled.put(chunk)
                self._filled.put(None)
        except BaseException as error:
            self._filled.put(error)

    def _count(self, size: int) -> None:
        self._read += size
