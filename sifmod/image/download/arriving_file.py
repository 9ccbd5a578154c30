"""A file that is read, hashed and verified while it is still being downloaded."""

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

STEP = 1 << 20  # bytes; how far the front moves before waiting threads are woken


class Shared:
    """State shared by the threads of one download, guarded by `changed`; the first `failure` ends all threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self, job: Callable[[], None]) -> None:
        """Run `job` in this thread; the first error of any job ends the download, and is raised in waiting threads."""
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
    """The bytes of the file `path` from `base` on; the first `front` of `size` bytes (None: unknown) have arrived.

    `digest` (sha256:…) is the expected one, or "". `epoch` counts how often the content was discarded. A download
    changes `size`, `front`, `epoch` and `sha256` only while it holds `shared.changed`. `name` is used in messages.
    """

    def __init__(self, shared: Shared, name: str, path: Path, size: int | None, digest: str, base: int = 0) -> None:
        self.shared = shared
        self.name = name
        self.path = path
        self.size = size
        self.digest = digest
        self.front = 0
        self.epoch = 0
        self.note = ""  # what the download waits for
        self.sha256 = ""  # of all bytes, after a reader has verified them
        self._base = base

    @property
    def received(self) -> int:
        """The number of downloaded bytes, those after a gap included."""
        return self.front

    def open(self) -> "Reader":
        """A stream of the bytes from the start, as they arrive. May be called more than once. Raises like `reading`."""
        with reading(self.path):
            return Reader(self, self.path.open("rb", buffering=0), self._base)

    def seekable(self) -> "SeekableReader":
        """The bytes in any order, valid only once a Reader has verified the epoch in which they were read."""
        with reading(self.path):
            return SeekableReader(self, self.path.open("rb", buffering=0), self._base)

    def verify(self) -> None:
        """Read all bytes, again after Replaced, until a reader has verified them. Raises a Reader's other errors."""
        buffer = bytearray(STEP)
        while not self.sha256:
            try:
                with self.open() as file:
                    while file.readinto(buffer):
                        pass
            except Replaced:
                continue

    def wait(self, position: int, epoch: int | None) -> tuple[int, int]:
        """Wait until the front has passed `position` or reached the end; return the front and its epoch.

        Raises Replaced if the epoch is not `epoch` (None: any), the error that ended the download, and FetchError if it
        was stopped.
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
        """Verify `sha256`, the digest of all data that a reader was given in `epoch`.

        Raises ImageError for a wrong digest, and Replaced if `epoch` is over or the download starts over instead.
        """
        with self.shared.changed:
            if epoch != self.epoch:
                raise Replaced
            if self.digest not in ("", f"sha256:{sha256}"):
                raise self._reject(sha256)
            self.sha256 = sha256

    def _reject(self, sha256: str) -> ImageError | Replaced:
        """The error for wrong content. Called with the lock held."""
        return ImageError(
            f"{self.name} has a wrong SHA-256 and was refused\n    expected "
            f"{self.digest.removeprefix('sha256:')}\n    got      {sha256}",
            "the file was replaced at its source or damaged in transit; correct the expected digest (`sha256:` or "
            "the digest in the source) only if you know why it changed",
        )


class Reader(io.RawIOBase):
    """A sequential reader: a read waits until the next bytes arrive.

    It hashes the data. The read that reaches the end verifies the digest; until then no data is valid. Reads raise the
    error that ended the download, ImageError for wrong content, and Replaced if the caller must read again from the
    start.
    """

    def __init__(self, arriving: ArrivingFile, file: io.FileIO, base: int) -> None:
        self._arriving = arriving
        self._file = file
        self._base = base
        self._position = 0
        self._epoch: int | None = None  # epoch of the data read so far; None before the first read
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
                raise ImageError(f"{self._arriving.name} is truncated: it ends after {self._position} bytes")

    def _read(self, wanted: memoryview) -> int:
        """Read at the position and advance; 0 at the end of the file."""
        with reading(self._arriving.path):
            done = os.preadv(self._file.fileno(), [wanted], self._base + self._position) if wanted else 0
        self._position += done
        return done


class SeekableReader(Reader):
    """A random-access reader: a read waits until bytes at its position arrive, and verifies nothing."""

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set and return the position; from the end only if the size is known. Raises ValueError if it is negative."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._arriving.size or 0}
        if (position := starts[whence] + offset) < 0:
            raise ValueError(f"{position} is before the start")
        self._position = position
        return position

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        front, self._epoch = self._arriving.wait(self._position, self._epoch)
        return self._read(view[: max(0, front - self._position)])
