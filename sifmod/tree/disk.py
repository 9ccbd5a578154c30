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
READ_ONLY_DIRECTORY = 0o555

_FULL = (errno.ENOSPC, errno.EDQUOT)
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
        return PermissionsError(message, "choose a directory that you may write to with --prefix or SIFMOD_PREFIX")
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


def move(source: Path, target: Path) -> None:
    """Rename `source` over `target` in one step, durably."""
    source.rename(target)
    sync_directory(target.parent)


def put(source: Path, target: Path, data: bytes, mode: int = 0o666) -> None:
    """Give `target` the content `data` in one step, by way of the new file `source` on the same file system."""
    write(source, data, mode)
    target.parent.mkdir(parents=True, exist_ok=True)
    move(source, target)


def is_directory(path: Path) -> bool:
    """Tell whether `path` is a directory itself, not a symlink to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, read-only directories too; idempotent, follows no symlink."""
    for directory, _, _ in os.walk(path):
        with suppress(OSError):
            Path(directory).chmod(0o700)
    for directory, directories, files in os.walk(path, topdown=False):
        for name in files:
            Path(directory, name).unlink(missing_ok=True)
        for name in directories:
            child = Path(directory, name)
            if is_directory(child):
                _remove_directory(child)
            else:
                child.unlink(missing_ok=True)
    _remove_directory(path)


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


def _remove_directory(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.rmdir()
