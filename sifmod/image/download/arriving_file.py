"""An arriving file: read, hashed and certified while its bytes still come."""

import hashlib
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.layers.stream import Replaced
from sifmod.image.disk import reading

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STEP = 1 << 20  # bytes; how far the front moves before those that wait are woken


class Shared:
    """What the threads of one download share: `changed` guards it, and the first `failure` ends them all."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self, job: Callable[[], None]) -> None:
        """Run `job` in a thread: what it raises ends everything, and is raised in the threads that wait."""
        try:
            job()
        except BaseException as error:
            with self.changed:
                self.failure = self.failure or error
                self.stop()

    def stop(self) -> None:
        with self.changed:
            self.stopping.set()
            self.changed.notify_all()


class ArrivingFile:
    """Bytes of the file `path`, from `base` on; `front` of them are there without a gap, `size` in all.

    `digest` (sha256:…) is what they must have, "" without a promise. `epoch` counts how often the content
    was thrown away. Attributes are read and changed under the shared lock. `name` is what messages call it.
    """

    def __init__(self, shared: Shared, name: str, path: Path, size: int | None, digest: str, base: int = 0) -> None:
        self.shared = shared
        self.name = name
        self.path = path
        self.size = size
        self.digest = digest
        self.front = 0
        self.epoch = 0
        self.note = ""  # what it waits for
        self.sha256 = ""  # of all bytes, once a reader has certified them
        self._base = base

    @property
    def received(self) -> int:
        """How many bytes are there, gaps or not."""
        return self.front

    def open(self) -> "Reader":
        """The bytes from the start, as they come. It may be opened more than once."""
        with reading(self.path):
            return Reader(self, self.path.open("rb", buffering=0), self._base)

    def seekable(self) -> "SeekableReader":
        """The bytes in any order. What is read counts only once a Reader of the same epoch has certified it."""
        with reading(self.path):
            return SeekableReader(self, self.path.open("rb", buffering=0), self._base)

    def verify(self) -> None:
        """Read the bytes to their end, unless a reader has certified them before. Raises what a Reader raises."""
        buffer = bytearray(STEP)
        while not self.sha256:
            try:
                with self.open() as file:
                    while file.readinto(buffer):
                        pass
            except Replaced:
                continue

    def wait(self, position: int, epoch: int | None) -> tuple[int, int]:
        """The front, once it has passed `position` or reached the end, and the epoch that it belongs to.

        Raises what ended the download, and Replaced where that epoch is not `epoch`; None wants none.
        """
        with self.shared.changed:
            while self.shared.failure is None and not self.shared.stopping.is_set():
                if epoch not in (None, self.epoch):
                    raise Replaced
                if self.front > position or self.front == self.size:
                    return self.front, self.epoch
                self.shared.changed.wait()
            if self.shared.failure is not None:
                raise self.shared.failure
            raise FetchError(f"{self.name}: the download was stopped")

    def is_replaced(self, epoch: int) -> bool:
        with self.shared.changed:
            return epoch != self.epoch

    def certify(self, sha256: str, epoch: int) -> None:
        """A reader has read everything in `epoch`, and `sha256` is the digest of what it was given.

        Raises ImageError where that is not the promised one, and Replaced where another attempt may give it.
        """
        with self.shared.changed:
            if epoch != self.epoch:
                raise Replaced
            if self.digest not in ("", f"sha256:{sha256}"):
                raise self._reject(sha256)
            self.sha256 = sha256

    def _reject(self, sha256: str) -> ImageError | Replaced:
        """The error for wrong bytes. Called with the lock."""
        return ImageError(
            f"the SHA-256 of {self.name} is not the promised one, and nothing of it was kept\n"
            f"    expected {self.digest.removeprefix('sha256:')}\n    got      {sha256}",
            "the file was replaced at its source, or damaged on its way;"
            " correct the promise (`sha256:` or the digest in the source) only if you know why it changed",
        )


class Reader(io.RawIOBase):
    """The bytes from the first on: a read waits until the next bytes are there.

    It hashes what it gives. The read that finds the end certifies the digest: until then no byte that was read counts.
    Reads raise what ended the download, ImageError where the bytes that were given are not the promised ones, and
    Replaced where they have to be read again from the start.
    """

    def __init__(self, arriving: ArrivingFile, file: io.FileIO, base: int) -> None:
        self._arriving = arriving
        self._file = file
        self._base = base
        self._position = 0
        self._epoch: int | None = None  # of what was read; None before anything was
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        if not view:
            return 0
        while True:
            front, epoch = self._arriving.wait(self._position, self._epoch)
            wanted = view[: max(0, front - self._position)]
            if not wanted:
                self._arriving.certify(self._hash.hexdigest(), epoch)
                return 0
            if done := self._read(wanted):
                self._hash.update(wanted[:done])
                self._epoch = epoch
                return done
            if not self._arriving.is_replaced(epoch):
                raise ImageError(f"{self._arriving.name} is cut: it ends after {self._position} bytes")

    def _read(self, wanted: memoryview) -> int:
        """Read at the position and move on; 0 at the end of the file."""
        with reading(self._arriving.path):
            done = os.preadv(self._file.fileno(), [wanted], self._base + self._position) if wanted else 0
        self._position += done
        return done


class SeekableReader(Reader):
    """The bytes in any order: a read waits for the bytes that it wants, and certifies nothing."""

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Raises ValueError for a place before the start, and counts from the end only where the size is known."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._arriving.size or 0}
        if (position := starts[whence] + offset) < 0:
            raise ValueError(f"{position} is before the start")
        self._position = position
        return position

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        front, self._epoch = self._arriving.wait(self._position, self._epoch)
        return self._read(view[: max(0, front - self._position)])
