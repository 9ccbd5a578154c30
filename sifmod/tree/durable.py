"""Durable changes to the disk."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar

from sifmod.errors import LinkInPrefixError
from sifmod.system import meaning

Parsed = TypeVar("Parsed")
READ_ONLY = 0o444
READ_ONLY_EXECUTABLE = 0o555

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # this user may be able to enter it but not list it
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST = 1 << 24  # bytes; a receipt of several thousand files
_REFUSED = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO),
    *(errno.ENAMETOOLONG, None),  # None: rejected by `read`
)
_ATTEMPTS = 100  # when other runs create and remove the directory


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """The descriptor, which is closed at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened(directory: Path, top: Path, *, make: bool = False, inside: Path | None = None) -> Iterator[int]:
    """A descriptor of `directory`, which is `top` or below it, opened without following symlinks.

    Other users may be able to write to a prefix and replace any directory by a link. `make`: missing directories are
    created, subject to the umask; other runs may remove them meanwhile, because they are empty. `inside`, a holder's
    own directory, and those above it are not created: after the fence it must stay away. Raises OSError, with its own
    message for a link, and ValueError for a path that is not below `top`.
    """
    path, above = str(directory), f"{top}/"  # texts for speed
    names = path[len(above) :].split("/") if path.startswith(above) else directory.relative_to(top).parts
    if ".." in names:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    existing = len(inside.relative_to(top).parts) if inside else 0
    for attempt in range(_ATTEMPTS):
        try:
            descriptor = _descend(top, names, existing if make else len(names))
        except FileNotFoundError:
            if not make or inside or attempt + 1 == _ATTEMPTS:
                raise
            with suppress(FileNotFoundError, FileExistsError):  # another run may remove one of them meanwhile
                top.mkdir(parents=True, exist_ok=True)
            continue
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return


def make_directory(path: Path, top: Path) -> None:
    """Create the directory `path` and the missing ones above it, also `top`; no symlink below `top` is followed."""
    with opened(path, top, make=True):
        pass


def _descend(top: Path, names: Sequence[str], existing: int) -> int:
    """A descriptor of the directory with these names below `top`; those after the `existing` ones are created."""
    here = os.open(top, _WAY if names else DIRECTORY)
    for number, name in enumerate(names, 1):
        try:
            below = _below(here, name, _WAY if number < len(names) else DIRECTORY, make=number > existing)
        except OSError as error:
            place = top.joinpath(*names[:number])
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and place.is_symlink():
                raise LinkInPrefixError(f"{place} is a symlink, which sifmod does not follow") from error
            error.filename = str(place)
            raise
        finally:
            os.close(here)
        here = below
    return here


def _below(directory: int, name: str, flags: int, *, make: bool) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)


def read(path: Path | str, most: int = _LARGEST, *, top: Path | None = None) -> bytes:
    """Read a file that other users may have created: never follow a link, never wait for a pipe.

    With `top`, its directory is also opened without following links. Raises OSError, also for more than `most` bytes
    and for a file that is not regular.
    """
    with naming(path), regular(path, top, most) as descriptor:
        return os.read(descriptor, min(most, os.fstat(descriptor).st_size))


@contextmanager
def regular(path: Path | str, top: Path | None, most: int | None = None, *, writing: bool = False) -> Iterator[int]:
    """A descriptor of a file that `read` can read, with the errors of `read`; `most`: its largest size in bytes."""
    flags = _READ | (os.O_RDWR if writing else 0)
    if top is None:
        descriptor = os.open(path, flags)
    else:
        with opened(Path(path).parent, top) as directory:
            descriptor = os.open(Path(path).name, flags, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or (most is not None and status.st_size > most):
            raise OSError(f"{path} is not a regular file{'' if most is None else f' of at most {most} bytes'}")
        yield descriptor
    finally:
        os.close(descriptor)


def content(path: Path | str, *, top: Path | None = None) -> bytes | None:
    """Like `read`, but None for a file that is missing, closed to this user, or rejected by `read`.

    Raises OSError if the disk fails.
    """
    try:
        return read(path, top=top)
    except OSError as error:
        if is_refused(error):
            return None
        raise


def parsed(path: Path | str, parse: Callable[[bytes], Parsed], *, top: Path | None = None) -> Parsed | None:
    """The `content` of a file, parsed; None without content, and if it is invalid: other users may have written it."""
    data = content(path, top=top)
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None if data is None else parse(data)
    return None


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add `path` to an OSError of the block that names no file, or a descriptor, as a failing disk reports it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not isinstance(error.filename, str):
            error.filename = str(path)
        raise


def write(path: Path, data: bytes, top: Path, mode: int = 0o666, *, durable: bool = True) -> None:
    """Write a new file, which must not exist; its directory must. The umask limits `mode`. `durable`: sync the file."""
    with opened(path.parent, top) as directory:
        descriptor = new_file(directory, path, data, mode)
    with closing(descriptor):
        if durable:
            sync(descriptor, path)


def new_file(directory: int, path: Path | str, data: bytes, mode: int) -> int:
    """A descriptor of the new file `path` in the open `directory`, with this content and mode; not durable yet."""
    descriptor = os.open(os.path.basename(path), _NEW, mode, dir_fd=directory)  # noqa: PTH119 (thousands are made)
    try:
        with naming(path):
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(descriptor: int, path: Path | str) -> None:
    """Make the content of an open file durable."""
    with naming(path):
        os.fsync(descriptor)


def sync_file(path: Path | str) -> None:
    """Make the content of a file durable."""
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        sync(descriptor, path)


def sync_directory(path: Path | str | int) -> None:
    """Make the names in a directory, or in an open one, durable, if the file system supports it."""
    descriptor = path if isinstance(path, int) else os.open(path, DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        if descriptor is not path:
            os.close(descriptor)


def move(source: Path, target: Path, top: Path) -> None:
    """Rename `source` over `target` in one step, durably; missing directories above `target` are created.

    Both are below `top`, and symlinks are not followed.
    """
    for attempt in range(_ATTEMPTS):
        with opened(source.parent, top) as start, opened(target.parent, top, make=True) as end:
            try:
                _rename(source, target, start, end)
            except FileNotFoundError:
                # A run for another module may have removed the directory between the two calls, because it was empty.
                if attempt + 1 == _ATTEMPTS or not is_there(source):
                    raise
            else:
                sync_directory(end)
                return


def take(source: Path, target: Path, top: Path) -> None:
    """Rename `source` to `target`, both below `top`, without following symlinks; syncs the directory of `source`.

    Creates no directory: a holder's directory that was removed must stay removed.
    """
    with opened(source.parent, top) as start, opened(target.parent, top) as end:
        _rename(source, target, start, end)
        sync_directory(start)


def _rename(source: Path, target: Path, start: int, end: int) -> None:
    """Rename between the open directories of two paths, which an error names."""
    try:
        os.rename(source.name, target.name, src_dir_fd=start, dst_dir_fd=end)
    except OSError as error:
        error.filename, error.filename2 = str(source), str(target)
        raise


def is_there(path: Path) -> bool:
    """Whether the name exists, also as a dangling link. Raises OSError if that cannot be determined.

    Use it before changes and removals: os.path.lexists returns False on disk errors.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def names(directory: Path, top: Path | None = None) -> list[str]:
    """The names in a directory, sorted; none if it is missing. With `top`, a symlink below that raises OSError."""
    try:
        with nullcontext(directory) if top is None else opened(directory, top) as place:
            return sorted(os.listdir(place))  # noqa: PTH208 (plain names)
    except (FileNotFoundError, NotADirectoryError) as error:
        if top is None or isinstance(error, FileNotFoundError):
            return []
        raise


def is_refused(error: OSError) -> bool:
    """Whether the error means a missing, closed or rejected file (a link, a pipe, a large one), not a failing disk."""
    return error.errno in _REFUSED


def is_full(error: OSError) -> bool:
    """Whether the disk or a quota is full."""
    return meaning(error) == "full"


def is_directory(path: Path) -> bool:
    """Whether `path` is a directory, and not a symlink to one."""
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False
