"""Durable changes to the disk, and what it means when one fails."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.errors import InstallError, PermissionsError, SifmodError

READ_ONLY = 0o444
READ_ONLY_EXECUTABLE = 0o555

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITABLE = (
    "choose a directory that you may write to with --prefix or SIFMOD_PREFIX, for a file of its own with -o FILE"
)
_ATTEMPTS = 100  # at a directory that other runs make and remove
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def explain(error: OSError, doing: str) -> SifmodError:
    """The error to show for `error`, which happened while `doing`: disk full, not allowed, or what the system says."""
    name = error.filename2 if error.filename2 is not None else error.filename
    place = f" ({os.fsdecode(name)})" if isinstance(name, str | bytes) else ""
    why = os.strerror(error.errno) if error.errno else str(error)
    message = f"{doing}: {why}{place}"
    if error.errno in _FULL:
        return InstallError(
            f"{message}; what was installed before is unchanged",
            "free some space or quota there (`sifmod gc` shows what can go), then repeat the command",
        )
    if error.errno in _DENIED:
        return PermissionsError(message, _WRITABLE)
    return InstallError(message)


@contextmanager
def reported(doing: str) -> Iterator[None]:
    """Raise what the block raises, an OSError as the SifmodError that explains it."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing) from error


def write(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a new file, durably; it must not exist. `mode` is subject to the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 (a descriptor)
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Make what is in a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; a file system that cannot is left alone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make a directory and those above it, as far as they are not there; `mode` is its own, subject to the umask.

    Another run may remove any of them meanwhile, because it is empty: they are then made again.
    """
    for attempt in range(_ATTEMPTS):
        last = attempt + 1 == _ATTEMPTS
        try:
            path.mkdir(mode)
        except FileNotFoundError:
            if last:
                raise
            make_directory(path.parent)
        except OSError as error:  # where nothing may be written it can be EACCES or EROFS
            if path.is_dir():
                return
            # It may have gone since: Path.mkdir(exist_ok=True) raises then.
            if last or error.errno != errno.EEXIST:
                raise
        else:
            return


def move(source: Path, target: Path) -> None:
    """Rename `source` over `target` in one step, durably; the directories above `target` are made if need be."""
    for attempt in range(_ATTEMPTS):
        make_directory(target.parent)
        try:
            source.rename(target)
        except FileNotFoundError:
            # A run for another module may have removed the directory between the two calls, because it was empty.
            if attempt + 1 == _ATTEMPTS or not os.path.lexists(source):
                raise
        else:
            sync_directory(target.parent)
            return


def take(source: Path, target: Path) -> None:
    """Rename `source` to `target`, durably. Makes no directory: a holder's that was taken away must stay away."""
    source.rename(target)
    sync_directory(source.parent)


def is_directory(path: Path) -> bool:
    """Tell whether `path` is a directory itself, not a symlink to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, read-only directories too; idempotent, follows no symlink."""
    if not is_directory(path):
        path.unlink(missing_ok=True)
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):  # another user's cannot be changed, and may need no change
        path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o700)
    for child in path.iterdir():
        remove_tree(child)
    with suppress(FileNotFoundError):
        path.rmdir()


def prune(path: Path, top: Path) -> None:
    """Remove `path` and its parents below `top`, as far as they are empty."""
    while path != top and top in path.parents:
        try:
            path.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        path = path.parent
