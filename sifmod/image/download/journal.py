"""A partial file that several threads write, and its journal of the written bytes, so that a later run can resume."""

import json
import os
import stat
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from sifmod.image.disk import reserve, stripe, writing
from sifmod.image.settings import Striping

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # another user may have planted a link
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # or a pipe, which would block
_LARGEST = 1 << 20  # bytes; a journal has a few spans

Span = tuple[int, int]
"""A range of bytes: the first one, and the one after its last."""


def mode_within(directory: Path) -> int:
    """The mode to create a file with: its directory's, without execution; the umask still applies."""
    return directory.stat().st_mode & 0o666


class PartialFile:
    """The file at `path`, created if missing. Its `epoch` counts how often it was emptied."""

    def __init__(self, path: Path, striping: Striping | None = None) -> None:
        self.path = path
        self.epoch = 0
        self._lock = threading.Lock()
        stripe(path, striping)
        with writing(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path, flags, mode_within(path.parent))

    def reserve(self, size: int) -> None:
        """Reserve disk space and quota for `size` bytes, unless the file is closed. Raises as disk.py's `reserve`."""
        with self._lock:
            if self._file >= 0:
                reserve(self._file, self.path, size)

    def write(self, epoch: int, offset: int, data: bytes) -> bool:
        """Write all of `data`; False, without writing, if the epoch is over or the file closed. Raises as `writing`."""
        view = memoryview(data)
        with self._lock, writing(self.path):
            if epoch != self.epoch or self._file < 0:
                return False
            while view:
                done = os.pwrite(self._file, view, offset)
                view, offset = view[done:], offset + done
        return True

    def sync(self) -> None:
        """Sync the written data, so that it survives a crash of the node."""
        with self._lock:
            file = os.dup(self._file) if self._file >= 0 else -1
        if file >= 0:
            with writing(self.path):
                try:
                    os.fdatasync(file)
                finally:
                    os.close(file)

    def start_over(self) -> None:
        """Empty the file; late writes of the previous epoch are ignored."""
        with self._lock, writing(self.path):
            self.epoch += 1
            if self._file >= 0:
                os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close the file; later writes are ignored. Idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close the file, and remove it from its directory."""
        self.close()
        with writing(self.path):
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Record:
    """The state of a partial file. `validator` identifies its content: see `Head` in pieces.py."""

    size: int  # bytes of the complete file
    digest: str  # sha256:…, "" if the download has no expected digest
    validator: str
    spans: tuple[Span, ...]
    format: Literal[2] = 2  # 1: the validator might have a date of the same minute


def journal_path(partial: Path) -> Path:
    return partial.with_name(partial.name + ".journal")


def save(partial: Path, record: Record) -> None:
    """Replace the journal of `partial`, whose data is already synced. Raises as `writing` does."""
    path = journal_path(partial)
    new = path.with_name(path.name + ".new")
    try:
        with writing(path):
            new.unlink(missing_ok=True)
            descriptor = os.open(new, _NEW, mode_within(new.parent))
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(json.dumps(asdict(record)).encode())
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):  # forgotten meanwhile, since the bytes that it names were discarded
                new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def load(partial: Path) -> Record | None:
    """The journal of `partial`; None if it is missing, unreadable or damaged, or does not fit the file."""
    try:
        descriptor = os.open(journal_path(partial), _READ)
        with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            record = TypeAdapter(Record).validate_json(file.read(_LARGEST), strict=True)
        length = partial.stat().st_size
    except (OSError, ValueError):
        return None
    return record if all(0 <= start < end <= min(length, record.size) for start, end in record.spans) else None


def forget(partial: Path) -> None:
    """Remove the journal of `partial`; idempotent."""
    path = journal_path(partial)
    for gone in (path, path.with_name(path.name + ".new")):
        with writing(gone):
            gone.unlink(missing_ok=True)
