"""The operating system: errors by meaning, texts for people, users, own directories."""

import errno
import grp
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

Meaning = Literal["full", "denied", "limited", "other"]

_FILES = "allow more open files (`ulimit -n 1024`), then repeat the command"
_LIMITS = {  # of this process, with their hints
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EFBIG: "allow larger files (`ulimit -f` shows the limit; a file system may have one too)",
}

_MEANINGS: dict[int, Meaning] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    **dict.fromkeys(_LIMITS, "limited"),
}
# control characters, surrogates, and invisible or direction-changing characters
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_BREAK = re.compile("[\t\n]")


def escape_controls(text: str) -> str:
    """The text, which others may have written, with invisible characters and those that control a terminal escaped.

    Line breaks and tabs stay.
    """
    return _STEERING.sub(_spelled, text)


def one_line(name: str) -> str:
    """A name on one line: like `escape_controls`, but line breaks and tabs are escaped too."""
    return _BREAK.sub(_spelled, escape_controls(name))


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def meaning(error: OSError) -> Meaning:
    """The kind of failure: disk or quota full, not permitted, a limit of the process, or another."""
    return _MEANINGS.get(error.errno or 0, "other")


def limit_hint(error: OSError) -> str:
    """What to do about a limit of the process; "" for another failure."""
    return _LIMITS.get(error.errno or 0, "")


def reason(error: OSError) -> str:
    """The system's message, such as `No space left on device`; without a number the error's own text."""
    return os.strerror(error.errno) if error.errno else str(error)


def size_text(size: int) -> str:
    """A number of bytes: `812 B`, `1.4 MB`, `20.3 GB` (powers of ten)."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def abbreviated(names: Sequence[str], most: int) -> str:
    """The first `most` names with commas between them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def login_name(uid: int) -> str:
    """The name of a user, or the number if the machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def user_name(uid: int) -> str:
    """The name of a user for messages; `user 1234` if the machine does not know it."""
    name = login_name(uid)
    return f"user {name}" if name == str(uid) else name


def group_name(gid: int) -> str:
    """The name of a group, or the number if the machine does not know it."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def groups_of(uid: int) -> list[int]:
    """The groups of a user; none if the machine does not know it."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)


def cache_home() -> Path:
    """The user's cache directory. Raises RuntimeError if there is no home directory."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if given.startswith("/") else Path.home() / ".cache"


def subordinate_ids(file: str = "/etc/subuid") -> tuple[range, ...]:
    """The ranges of this user's subordinate ids (subuid(5)) in `file`; () if it cannot be read."""
    users = (str(os.geteuid()), login_name(os.geteuid()))
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return ()
    found = re.findall(r"^([^:\n]+):([0-9]{1,10}):([0-9]{1,10})\s*$", text, re.MULTILINE)
    return tuple(range(int(first), int(first) + int(count)) for who, first, count in found if who in users)


def not_own(place: Path) -> str:
    """Why a path is not a directory that only this user can change; "" if it is. Raises OSError if it is missing."""
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{place} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{place} belongs to {user_name(status.st_uid)}"
    return f"other users can write {place}" if status.st_mode & 0o022 else ""


def planted_by(path: Path, trusted: int) -> str:
    """The user who made `path`, or a directory above it, where all may write, as in /tmp; "" for nobody.

    Nobody is root, this user, and the `trusted` one. Also "" for a path that is gone or closed.
    """
    known = (0, os.geteuid(), trusted)
    for start in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
        for place in (*reversed(start.parents), start):
            with suppress(OSError):
                owner = place.lstat().st_uid
                if owner not in known and place.parent.stat().st_mode & stat.S_IWOTH:
                    return user_name(owner)
    return ""


def open_to_others(place: Path) -> bool:
    """Whether other users can add files to a directory. A group named like its only member is that user's own."""
    status, me = place.stat(), user_name(os.geteuid())
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o002:
        return True
    if not status.st_mode & 0o020:
        return False
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return True
    return group.gr_name != me or not set(group.gr_mem) <= {me}


def starts_programs(place: Path) -> bool:
    """Whether programs below an existing directory can start: its file system is not mounted noexec."""
    return not os.statvfs(place).f_flag & os.ST_NOEXEC


def own_directory(place: Path) -> Path:
    """A directory where only this user may write, created if missing. Raises OSError if it is not that."""
    with suppress(FileExistsError):
        place.mkdir(0o700)
    if why := not_own(place):
        raise PermissionError(why)
    return place


def walk(
    top: Path | str, onerror: Callable[[OSError], object] | None = None, *, follow: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like os.walk, for directories of any depth: before Python 3.12 os.walk recurses into each.

    `onerror` gets the OSError for a directory that cannot be read. `follow`: also below links to directories.
    """
    waiting = [os.fspath(top)]
    while waiting:
        place = waiting.pop()
        directories: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    try:
                        below = directories if entry.is_dir() else files
                    except OSError:  # a link into a closed directory
                        below = files
                    below.append(entry.name)
        except OSError as error:
            if onerror:
                onerror(error)
            continue
        yield place, directories, files
        deeper = [f"{place.rstrip('/')}/{name}" for name in reversed(directories)]
        waiting += deeper if follow else (path for path in deeper if not os.path.islink(path))  # noqa: PTH114 (texts)


_SCRATCH = "sifmod-scratch-"
_FRESH = 60  # seconds in which a new directory may not be locked yet


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, which the processes that it starts inherit, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new temporary directory, which is removed afterwards.

    Also removes such directories of this user's killed runs: a minute old or more, and not locked.
    """
    import fcntl
    import tempfile

    top = Path(tempfile.gettempdir())
    for old in top.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            _remove_left(old)
    place = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=top))
    held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: nor can another run lock it, which then leaves it alone
            fcntl.flock(held, fcntl.LOCK_EX)
        yield place
    finally:
        remove_directory(place)
        os.close(held)


def _remove_left(place: Path) -> None:
    """Remove a directory of this user that is not new. Raises OSError if its process still holds the lock."""
    import fcntl
    import time

    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _FRESH:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_directory(place)
    finally:
        os.close(descriptor)


def remove_directory(place: Path) -> None:
    """Remove a directory that no other user can change, however deep it is; what cannot be removed stays."""
    import shutil

    with suppress(RecursionError):
        shutil.rmtree(place, ignore_errors=True)
    if place.exists():  # deeper than Python's stack, or than the limit of open files
        import subprocess

        subprocess.run(("rm", "-rf", "--", place), stdin=subprocess.DEVNULL, capture_output=True, check=False)
