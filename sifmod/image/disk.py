"""The disk: reserve space before a write, hash files during the write, give clear errors for failures."""

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.errors import FetchError, InstallError, PermissionsError, SifmodError
from sifmod.image.settings import Striping
from sifmod.system import limit_hint, meaning, reason, size_text

_LUSTRE = 0x0BD00BD0  # f_type of statfs(2)
_LONGEST = 30.0  # seconds for lfs
_HINT = (
    "free some space (`sifmod gc` shows what it could remove), or choose another location with --prefix PATH or the "
    "variable SIFMOD_PREFIX; for a single file use -o FILE, for temporary files set TMPDIR"
)
NOTHING_WRITTEN = "nothing was written"
KEPT = "downloaded data is kept"
_KEEP_SIZE = 1  # linux/falloc.h: allocate blocks, keep the size
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM)


class Sink:
    """A new file at `path`; `size` and `sha256` cover the data written so far.

    A failed write raises as `writing` does. The caller removes leftovers; the store syncs the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        with writing(path):
            self._file = path.open("xb")

    def __enter__(self) -> "Sink":
        return self

    def write(self, chunk: bytes) -> None:
        with writing(self.path):
            self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    @property
    def sha256(self) -> str:
        """The digest of the data written so far, as lower-case hexadecimal."""
        return self._hash.hexdigest()

    def fileno(self) -> int:
        return self._file.fileno()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the file; a delayed write can still fail here."""
        if kind is None:
            with writing(self.path):
                self._file.close()
        else:
            with suppress(OSError):
                self._file.close()


class NoSpaceError(FetchError):
    """The file system of a write, the user's quota or a limit has too little space; another source would not help."""

    exit_code = InstallError.exit_code


def check_space(directory: Path, needed: int, parts: str = "", done: str = NOTHING_WRITTEN) -> None:
    """Raise NoSpaceError when `needed` bytes do not fit into the file system of `directory`.

    Also raises what `writing` raises. Quotas are not checked here; `writing` reports an exceeded quota.
    """
    with writing(directory):
        status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise _no_space(directory, needed, f"{size_text(free)} free", parts, done)


def reserve(file: int, path: Path, size: int, parts: str = "", done: str = "") -> None:
    """Reserve `size` bytes of disk and quota for the file `path`, open as `file`, before they are written.

    If the file system cannot reserve, only its free space is checked. The file's size stays; idempotent. Raises
    NoSpaceError, and then reserves nothing; else what `writing` raises. For the message, `parts` describes the bytes
    and `done` the data written before.
    """
    if size <= 0:
        return
    status = os.fstat(file)
    wanting = max(0, size - status.st_blocks * 512)
    done = done or (KEPT if status.st_size else NOTHING_WRITTEN)
    number = _fallocate(file, size)
    if number in _NO_FALLOCATE:
        check_space(path.parent, wanting, parts, done)
    elif number in (errno.ENOSPC, errno.EDQUOT):
        with writing(path):
            os.ftruncate(file, status.st_size)  # releases a partial reservation
        free = os.statvfs(path.parent)
        limit = f"{size_text(free.f_bavail * free.f_frsize)} free"
        limit = limit if number == errno.ENOSPC else "your quota allows less"
        raise _no_space(path.parent, wanting, limit, parts, done)
    elif number:
        with writing(path):
            raise OSError(number, os.strerror(number))


def check_holes(paths: Iterable[Path], place: Path, hint: str) -> None:
    """Raise FetchError for one of `paths` that is larger than the free space at `place`, and less than half allocated.

    Reading a hole of petabytes takes hours, making one costs nothing. Also raises what `reading` raises.
    """
    free = shutil.disk_usage(place).free
    for path in paths:
        with reading(path):
            status = path.lstat()
        there = status.st_blocks * 512
        if stat.S_ISREG(status.st_mode) and status.st_size > free and there < status.st_size // 2:
            sizes = f"{size_text(status.st_size)}, of which {size_text(there)} are allocated"
            raise FetchError(f"{path} has {sizes}, and {size_text(free)} are free for the image", hint)


def _no_space(directory: Path, needed: int, limit: str, parts: str, done: str) -> NoSpaceError:
    wanted = f"{size_text(needed)} needed{f' ({parts})' if parts else ''}"
    return NoSpaceError(f"not enough space in {directory}: {wanted}, {limit}; {done}", _HINT)


def _fallocate(file: int, size: int) -> int:
    """Call Linux's fallocate; returns the errno, 0 for success.

    The C library's posix_fallocate would write zeros on a file system without it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    call = library.fallocate64 if hasattr(library, "fallocate64") else library.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(file, _KEEP_SIZE, 0, size) != 0:
        if (number := ctypes.get_errno()) != errno.EINTR:
            return number
    return 0


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError while reading `path` into a PermissionsError or FetchError."""
    try:
        yield
    except OSError as error:
        raise _explained(error, f"cannot read {path}: {reason(error)}") from error


@contextmanager
def writing(path: Path, denied: str = "", after: str = "the partial file was removed") -> Iterator[None]:
    """Raise NoSpaceError, PermissionsError (its hint: `denied`) or FetchError where `path` cannot be written.

    `after`: what is done with the part that was written before the disk was full.
    """
    try:
        yield
    except OSError as error:
        message = f"cannot write {path}: {reason(error)}"
        if meaning(error) == "full":
            raise NoSpaceError(f"{message}; {after}", _HINT) from error
        if error.errno == errno.EFBIG:  # nor would another source help
            raise NoSpaceError(f"{message}; {after}", limit_hint(error)) from error
        raise _explained(error, message, denied) from error


def _explained(error: OSError, message: str, denied: str = "") -> SifmodError:
    if meaning(error) == "denied":
        return PermissionsError(message, denied)
    return FetchError(message, limit_hint(error))


def stripe(path: Path, striping: Striping | None) -> None:
    """Create the file `path` with `striping` if its directory is on Lustre and `lfs` exists.

    An existing file is not changed. Best effort: otherwise the directory's striping applies.
    """
    if striping is None or path.exists() or not is_lustre(path.parent) or (lfs := shutil.which("lfs")) is None:
        return
    try:
        command = (lfs, "setstripe", "-c", str(striping.count), "-S", str(striping.size), str(path))
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LONGEST)
    except (OSError, subprocess.TimeoutExpired):
        return


def is_lustre(directory: Path) -> bool:
    """Whether `directory` is on Lustre; False if unknown. Python's statvfs has no file system type."""
    found = ctypes.create_string_buffer(256)  # struct statfs, which begins with f_type
    library = ctypes.CDLL(None, use_errno=True)
    if library.statfs(ctypes.c_char_p(os.fsencode(directory)), found) != 0:
        return False
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF == _LUSTRE
