"""A Growing: a file that grows from the front, hashed and read while it does."""

import hashlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import reading
from sifmod.image.download.board import Board

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STEP = 1 << 20  # bytes; how far the front moves between two calls to those who wait


class Growing:
    """Bytes of the file `path`, from `base` on; `front` of them are there without a gap, `size` in all.

    `digest` (sha256:…) is what they must have, "" where nobody promises one. Whoever reads or changes an attribute
    holds the board's lock. `name` is what messages call it.
    """

    def __init__(self, board: Board, name: str, path: Path, size: int | None, digest: str, base: int = 0) -> None:
        self.board = board
        self.name = name
        self.path = path
        self.size = size
        self.digest = digest
        self.front = 0
        self.opened = False
        self.finished = False
        self.sha256 = ""  # of everything, when it is finished
        self._base = base
        self._epoch = 0
        self._position = 0
        self._hash = hashlib.sha256()
        self._file: io.FileIO | None = None

    @property
    def received(self) -> int:
        """How many bytes are there, gaps or not."""
        return self.front

    @property
    def hashable(self) -> bool:
        """Whether there is enough to go on hashing, or nothing left to hash."""
        if self.finished:
            return False
        return self.front == self.size or self.front - self._position >= STEP

    def hash_on(self, buffer: bytearray) -> None:
        """Hash the next bytes, at most what fits into `buffer`, and judge when there are no more. For one thread."""
        with self.board.changed:
            epoch, position, digest = self._epoch, self._position, self._hash
            wanted = min(self.front - position, len(buffer))
        if self._file is None:
            self._file = self._open_file()
        done = 0
        if wanted:
            view = memoryview(buffer)[:wanted]
            with reading(self.path):
                done = os.preadv(self._file.fileno(), [view], self._base + position)
            digest.update(view[:done])
        with self.board.changed:
            if epoch == self._epoch:
                if wanted and not done:
                    raise ImageError(f"{self.name} is cut: it ends after {position} of {self.size} bytes")
                self._position += done
                if self._position == self.size:
                    self._judge(digest.hexdigest())

    def _hash_again(self, epoch: int) -> None:
        """Hash from the beginning, of other content. Called with the lock."""
        self._epoch = epoch
        self.front = self._position = 0
        self._hash = hashlib.sha256()

    def stop_hashing(self) -> None:
        """Give the file back. For the thread that hashed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def open(self) -> BinaryIO:
        """The bytes from the start, as they come: a read waits for the front. It may be opened more than once."""
        with self.board.changed:
            self.opened = True
        return io.BufferedReader(_Reader(self, self._open_file(), self._base), STEP >> 2)

    def wait(self, position: int) -> int:
        """The front, once it has passed `position` or reached the end. Raises what ended the download."""
        with self.board.changed:
            while self.board.failure is None and not self.board.stopping.is_set():
                if self.front > position or self.front == self.size:
                    return self.front
                self.board.changed.wait()
            if self.board.failure is not None:
                raise self.board.failure
            raise FetchError(f"{self.name}: the download was stopped")

    def _judge(self, sha256: str) -> None:
        """Everything is there and hashed. Called with the lock."""
        if self.digest not in ("", f"sha256:{sha256}"):
            raise self._wrong(sha256)
        self._finish(sha256)

    def _finish(self, sha256: str) -> None:
        self.sha256 = sha256
        self.finished = True
        self.board.changed.notify_all()

    def _wrong(self, sha256: str) -> ImageError:
        return ImageError(
            f"the SHA-256 of {self.name} is not the promised one, and nothing of it was kept\n"
            f"    expected {self.digest.removeprefix('sha256:')}\n    got      {sha256}",
            "the file was replaced at its source, or damaged on its way;"
            " correct the promise (`sha256:` or the digest in the source) only if you know why it changed",
        )

    def _open_file(self) -> io.FileIO:
        with reading(self.path):
            return self.path.open("rb", buffering=0)


class _Reader(io.RawIOBase):
    """What `open` gives, below its buffer."""

    def __init__(self, growing: Growing, file: io.FileIO, base: int) -> None:
        self._growing = growing
        self._file = file
        self._base = base
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        while (wanted := min(self._growing.wait(self._position) - self._position, len(view))) > 0:
            with reading(self._growing.path):
                done = os.preadv(self._file.fileno(), [view[:wanted]], self._base + self._position)
            if done:
                self._position += done
                return done
            if self._growing.finished:
                raise ImageError(f"{self._growing.name} is cut: it ends after {self._position} bytes")
        return 0  # where the transfer has just started over, the loop has waited for it

    def close(self) -> None:
        self._file.close()
        super().close()
