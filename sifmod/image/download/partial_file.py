"""A partial file: several threads write it, others read it, and it is emptied when its content is wrong."""

import os
import threading
from pathlib import Path

from sifmod.image.disk import reserve, stripe, writing
from sifmod.image.settings import Striping


def mode_within(directory: Path) -> int:
    """The mode of a new file: as open as its directory, as far as the umask allows."""
    return directory.stat().st_mode & 0o666


class PartialFile:
    """The file at `path`, made where it is not there. Its `epoch` counts how often it was started over."""

    def __init__(self, path: Path, striping: Striping | None = None) -> None:
        self.path = path
        self.epoch = 0
        self._lock = threading.Lock()
        stripe(path, striping)
        with writing(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path, flags, mode_within(path.parent))

    def reserve(self, size: int) -> None:
        """Take the disk and the quota of `size` bytes. Raises NoSpaceError."""
        with self._lock:
            if self._file >= 0:
                reserve(self._file, self.path, size)

    def write(self, epoch: int, offset: int, data: bytes) -> bool:
        """Write all of `data`; False, and nothing is written, where that epoch is over or the file was closed."""
        view = memoryview(data)
        with self._lock, writing(self.path):
            if epoch != self.epoch or self._file < 0:
                return False
            while view:
                done = os.pwrite(self._file, view, offset)
                view, offset = view[done:], offset + done
        return True

    def sync(self) -> None:
        """What was written survives a crash of the node."""
        with self._lock:
            file = os.dup(self._file) if self._file >= 0 else -1
        if file >= 0:
            with writing(self.path):
                try:
                    os.fdatasync(file)
                finally:
                    os.close(file)

    def start_over(self) -> None:
        """Empty the file; what a thread still writes of the epoch before is not written."""
        with self._lock, writing(self.path):
            self.epoch += 1
            if self._file >= 0:
                os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Nothing is written any more; idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close it, and remove it from its directory."""
        self.close()
        with writing(self.path):
            self.path.unlink(missing_ok=True)
