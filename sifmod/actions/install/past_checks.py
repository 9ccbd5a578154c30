"""A cache of sanity check results in the user's cache directory, so that a check need not be repeated."""

import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.system import cache_home
from sifmod.tree.durable import DIRECTORY, closing, new_file

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_COUNTS = 30 * 24 * 3600.0  # seconds that an answer is valid
_MOST = 4096 - 256  # answers to keep, besides the locks (`alone`)
_LARGEST = 1 << 20  # bytes per answer
_PATIENCE = 120.0  # seconds to wait for another check; after that, start a second container
_LOCK = ".lock"


@dataclass(frozen=True)
class PastChecks:
    """The results of this user's earlier checks, one file for all that decides a result (`sanity_check.question`).

    Results older than `since` do not count.
    Results that cannot be kept or read (full disk, unsafe directory) are checked again.
    """

    since: float = 0.0
    others: tuple[str, ...] = ()  # commands and paths that other modules of this run need in the same image

    def found(self, question: str) -> frozenset[str]:
        """The words that earlier checks of this question found; empty without a valid result."""
        name = sha256_bytes(question.encode())
        try:
            with _opened() as directory:
                return _read(directory, name, self.since)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError):  # RuntimeError: no home, or JSON too deep
            return frozenset()

    def keep(self, question: str, found: frozenset[str]) -> None:
        """Add words to the result of this question, and remove outdated results."""
        name = sha256_bytes(question.encode())
        data = json.dumps({"of": name, "found": sorted(self.found(question) | found)}).encode()
        if len(data) > _LARGEST:
            return
        with suppress(OSError, RuntimeError), _opened() as directory:
            _write(directory, name, data)
            _tidy(directory)

    @contextmanager
    def alone(self, question: str) -> Iterator[None]:
        """Hold the lock for this question, if it can be had in time; else two processes may answer the question."""
        from filelock import FileLock  # not imported by checks whose answer is cached

        # few names for all questions, because lock files must stay
        name = sha256_bytes(question.encode())[:2]
        with ExitStack() as held:
            with suppress(OSError, RuntimeError), _opened():
                lock = FileLock(_place() / f"{name}{_LOCK}", timeout=_PATIENCE, fallback_to_soft=False)
                held.enter_context(lock)
            yield


def _place() -> Path:
    return cache_home() / f"sifmod-checks-{os.geteuid()}"


@contextmanager
def _opened() -> Iterator[int]:
    """A descriptor of the directory, which is created if missing. Raises OSError if others can change it."""
    place = _place()
    above = next(path for path in place.parents if path.is_dir())
    status = above.stat()
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:  # also a sticky one such as /tmp, as root too
        raise PermissionError(f"{above} belongs to another user")
    place.parent.mkdir(0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(0o700)
    with closing(os.open(place, DIRECTORY | os.O_NOFOLLOW)) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{place} is open to others")
        yield descriptor


def _read(directory: int, name: str, since: float) -> frozenset[str]:
    with closing(os.open(name, _READ, dir_fd=directory)) as descriptor:
        status = os.fstat(descriptor)
        age = time.time() - status.st_mtime
        mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= _LARGEST
        if not mine or status.st_mtime < since or not -1.0 <= age <= _COUNTS:
            return frozenset()
        data = json.loads(os.read(descriptor, status.st_size))
    if data["of"] != name or not all(isinstance(word, str) for word in data["found"]):
        return frozenset()
    return frozenset(data["found"])


def _write(directory: int, name: str, data: bytes) -> None:
    new = f".{name}-{secrets.token_hex(8)}"
    try:
        with closing(new_file(directory, new, data, 0o600)) as descriptor:
            now = time.time()  # instead of the file server's clock
            os.utime(descriptor, (now, now))
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise


def _tidy(directory: int) -> None:
    """Remove outdated answers, leftovers of killed runs, and the oldest answers above the limit."""
    ages: list[tuple[float, str]] = []
    for name in os.listdir(directory):
        if not name.endswith(_LOCK):
            with suppress(FileNotFoundError):
                ages.append((os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime, name))
    ages.sort()
    for number, (changed, name) in enumerate(ages):
        if len(ages) - number > _MOST or abs(time.time() - changed) > _COUNTS:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
