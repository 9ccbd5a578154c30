"""The disk: room asked for before a write, and clear errors when a read or a write fails."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.errors import FetchError, InstallError, PermissionsError

_HINT = "free some space (`sifmod gc` shows what it could remove), or choose another place with --prefix PATH"


class NoSpaceError(FetchError):
    """The store's file system is full, or the user's quota is used up; another source would not help."""

    exit_code = InstallError.exit_code


def size_text(size: int) -> str:
    """A number of bytes for people: `812 bytes`, `1.4 MB`, `20.3 GB` (powers of ten)."""
    value, unit = float(size), ""
    for next_unit in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, next_unit
    return f"{value:.1f} {unit}" if unit else f"{size} bytes"


def check_space(directory: Path, needed: int) -> None:
    """Raise NoSpaceError when `needed` bytes do not fit into the file system of `directory`.

    A quota is not seen here; running into it is told by `writing`.
    """
    with writing(directory):
        status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise NoSpaceError(
            f"not enough space in {directory}: {size_text(needed)} needed, {size_text(free)} free; nothing was written",
            _HINT,
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into PermissionsError or FetchError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PermissionsError(f"cannot read {path}: {reason}") from error
        raise FetchError(f"cannot read {path}: {reason}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what goes wrong while `path` is written into NoSpaceError, PermissionsError or FetchError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(f"cannot write {path}: {reason}; what was written of it was removed", _HINT) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise PermissionsError(f"cannot write {path}: {reason}") from error
        raise FetchError(f"cannot write {path}: {reason}") from error
