"""Durable changes to the disk, and what it means when one fails."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sifmod.errors import FullError, InstallError, PermissionsError, SifmodError
from sifmod.system import FILE_LIMIT, meaning, reason, user_name

Parsed = TypeVar("Parsed")
READ_ONLY = 0o444
READ_ONLY_EXECUTABLE = 0o555

_WRITABLE = (
    "choose a directory that you may write to with --prefix or SIFMOD_PREFIX, for a file of its own with -o FILE"
)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # which may be one that this user can enter and not list
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST = 1 << 24  # bytes; a receipt of some thousand files
_REFUSED = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO),
    *(errno.ENAMETOOLONG, None),  # None: what `read` itself refuses
)
_ATTEMPTS = 100  # at a directory that other runs make and remove


def explain(error: OSError, doing: str) -> SifmodError:
    """The error to show for `error`, which happened while `doing`: disk full, not allowed, or what the system says."""
    name = error.filename2 if error.filename2 is not None else error.filename
    place = f" ({os.fsdecode(name)})" if isinstance(name, str | bytes) else ""
    message = f"{doing}: {reason(error)}{place}"
    match meaning(error):
        case "full":
            return FullError(
                f"{message}; what was installed before is unchanged",
                "free some space or quota there (`sifmod gc` shows what can go), then repeat the command",
            )
        case "denied":
            owner = _foreign_owner(os.fsdecode(name)) if isinstance(name, str | bytes) else ""
            return PermissionsError(message, f"{owner}{_WRITABLE}")
        case "too many files":
            return InstallError(message, FILE_LIMIT)
        case "other":
            return InstallError(message)


def _foreign_owner(path: str) -> str:
    """Whose the directory is that is closed on the way to an absolute path; "" where that is not another user's."""
    while path.startswith("/") and path != "/":
        path = os.path.dirname(path)  # noqa: PTH120 (a text)
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            if os.access(path, os.W_OK | os.X_OK) or status.st_uid == os.geteuid():
                return ""
            return f"{path} belongs to {user_name(status.st_uid)}: ask for a change there, or "
    return ""


def check_readable(prefix: Path) -> None:
    """Raise PermissionsError where a tree is there and this user may not look into it: nothing in it is known then."""
    for place in (prefix, prefix / "software", prefix / "modules"):
        if os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK):  # noqa: PTH112 (False behind a closed one)
            hint = "ask its owner, or name another tree with --prefix; `sharing` in the site file opens one to others"
            raise PermissionsError(f"the tree {prefix} cannot be read: {place} is closed to this user", hint)


@contextmanager
def reported(doing: str) -> Iterator[None]:
    """Raise what the block raises, an OSError as the SifmodError that explains it."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing) from error


class LinkInPrefixError(OSError):
    """A symlink is where a directory of the prefix should be."""


@contextmanager
def opened(directory: Path, top: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of `directory`, which is `top` or below it, reached from there through no symlink.

    Others may write in a prefix, and put a link in the place of any directory of it. `make`: as far as it is not
    there it is made, subject to the umask; another run may remove any of it meanwhile, because it is empty. Raises
    OSError, one that says so for a link.
    """
    names = _parts_below(directory, top)
    if ".." in names:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    for attempt in range(_ATTEMPTS):
        try:
            descriptor = _descend(top, names, make=make)
        except FileNotFoundError:
            if not make or attempt + 1 == _ATTEMPTS:
                raise
            with suppress(FileNotFoundError, FileExistsError):  # where another run removes one of them meanwhile
                top.mkdir(parents=True, exist_ok=True)
            continue
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return


def _parts_below(directory: Path, top: Path) -> Sequence[str]:
    """The names between; as texts, since an install asks for dozens. Raises ValueError for what is not below."""
    path, above = str(directory), str(top)
    if path.startswith(f"{above}/"):
        return path[len(above) + 1 :].split("/")
    return directory.relative_to(top).parts


def make_directory(path: Path, top: Path) -> None:
    """Make `path` and what is between, as `opened` does."""
    with opened(path, top, make=True):
        pass


def _descend(top: Path, names: Sequence[str], *, make: bool) -> int:
    here = os.open(top, _WAY if names else DIRECTORY)
    for number, name in enumerate(names, 1):
        try:
            below = _below(here, name, _WAY if number < len(names) else DIRECTORY, make=make)
        except OSError as error:
            place = top.joinpath(*names[:number])
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and place.is_symlink():
                raise LinkInPrefixError(f"{place} is a symlink, and inside a prefix none is followed") from error
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
    """All of a file that others may have put there: a link is not followed, and a pipe not waited for.

    With `top` its directory is reached from there through no link either. Raises OSError, also for more than
    `most` bytes and for what is no regular file.
    """
    if top is None:
        descriptor = os.open(path, _READ)
    else:
        with opened(Path(path).parent, top) as directory:
            descriptor = os.open(Path(path).name, _READ, dir_fd=directory)
    with _naming(path):
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise OSError(f"{path} is no regular file of at most {most} bytes")
            return os.read(descriptor, status.st_size)
        finally:
            os.close(descriptor)


@contextmanager
def regular(path: Path, top: Path) -> Iterator[int]:
    """A descriptor of a file that others may have put there, reached from `top` through no link. Raises OSError."""
    with opened(path.parent, top) as directory:
        descriptor = os.open(path.name, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def content(path: Path | str, *, top: Path | None = None) -> bytes | None:
    """As `read`; None for what is not there, closed, or no file of ours. Raises OSError where the disk fails."""
    try:
        return read(path, top=top)
    except OSError as error:
        if not is_refused(error):
            raise
    return None


def parsed(path: Path | str, parse: Callable[[bytes], Parsed], *, top: Path | None = None) -> Parsed | None:
    """What `parse` makes of `content`; None too for what it refuses, since others may have written it."""
    data = content(path, top=top)
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None if data is None else parse(data)
    return None


@contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Put the path into an OSError of the block that has none: a failing disk is told when a file is read or closed."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write(path: Path, data: bytes, top: Path, mode: int = 0o666, *, durable: bool = True) -> None:
    """Write a new file, which must not exist; its directory must. `mode` is subject to the umask."""
    with opened(path.parent, top) as directory:
        descriptor = new_file(directory, path, data, mode)
    try:
        if durable:
            sync(descriptor, path)
    finally:
        os.close(descriptor)


def new_file(directory: int, path: Path | str, data: bytes, mode: int) -> int:
    """A descriptor of the new file `path`, which lies in the open `directory`, with this content; not durable yet."""
    descriptor = os.open(os.path.basename(path), _NEW, mode, dir_fd=directory)  # noqa: PTH119 (thousands are made)
    try:
        with _naming(path):
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(descriptor: int, path: Path | str) -> None:
    """Make what is in an open file durable."""
    with _naming(path):
        os.fsync(descriptor)


def sync_file(path: Path | str) -> None:
    """Make what is in a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor, path)
    finally:
        os.close(descriptor)


def sync_directory(path: Path | str | int) -> None:
    """Make the names in a directory, or in an open one, durable; a file system that cannot is left alone."""
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
    """Rename `source` over `target` in one step, durably; the directories above `target` are made if need be.

    Both are below `top`, and reached through no symlink.
    """
    for attempt in range(_ATTEMPTS):
        with opened(source.parent, top) as start, opened(target.parent, top, make=True) as end:
            try:
                os.rename(source.name, target.name, src_dir_fd=start, dst_dir_fd=end)
            except FileNotFoundError:
                # A run for another module may have removed the directory between the two calls, because it was empty.
                if attempt + 1 == _ATTEMPTS or not is_there(source):
                    raise
            else:
                sync_directory(end)
                return


def take(source: Path, target: Path, top: Path) -> None:
    """Rename `source` to `target`, durably, both below `top` and reached through no symlink.

    Makes no directory: a holder's directory that was removed must stay removed.
    """
    with opened(source.parent, top) as start, opened(target.parent, top) as end:
        os.rename(source.name, target.name, src_dir_fd=start, dst_dir_fd=end)
        sync_directory(start)


def is_there(path: Path) -> bool:
    """Tell whether the name exists, also of a dangling link. Raises OSError where that cannot be told.

    For what is changed or removed where it is there: os.path.lexists says no where a failing disk gives an error.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def names(directory: Path, top: Path | None = None) -> list[str]:
    """What is in a directory, sorted; nothing where there is none. As `read` it follows no symlink below `top`."""
    try:
        if top is None:
            return sorted(os.listdir(directory))  # noqa: PTH208 (plain names)
        with opened(directory, top) as place:
            return sorted(os.listdir(place))  # noqa: PTH208 (a descriptor)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if top is None:
            return []
        raise


def is_refused(error: OSError) -> bool:
    """Whether the file is not there, closed, or none of ours, rather than that the disk does not give it."""
    return error.errno in _REFUSED


def is_full(error: OSError) -> bool:
    """Whether the disk or a quota has no room."""
    return meaning(error) == "full"


def is_directory(path: Path) -> bool:
    """Tell whether `path` is a directory itself, not a symlink to one."""
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False
