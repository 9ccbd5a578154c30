"""Turns: of all waiting processes of one user on one node, one at a time asks the tree who holds a lock.

A look at a lease (lease.py) is several requests to the file server, and 64 tasks of a job may wait at once. filelock
decides between them, on files of this node. It excludes nobody from the tree: the lease does that. So a stopped
process, a directory that cannot be used, or a full disk costs looks, and never a lock.
"""

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sifmod.digest import sha256_bytes
from sifmod.system import user_name

if TYPE_CHECKING:
    from filelock import FileLock

_POLL = 0.05  # seconds between two looks at a file of this node
_FIRST, _LONGEST = 0.02, 0.5  # seconds between two looks at a lease


class Turn:
    """A place in the queue for one lock of a tree; a context manager that leaves the queue at the end.

    Until `wait` is called nothing is made or imported, since most locks are free.
    """

    def __init__(self, chain: Path) -> None:
        self._chain = chain
        self._looking: FileLock | None = None  # held by the process whose turn it is
        self._holding: FileLock | None = None  # held by the process that has waited and now has the lock
        self._queued = False
        self._pause = _FIRST

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._looking, self._holding):
            if one:
                one.release()

    def wait(self, patience: float) -> None:
        """Return when it is time to look at the lease again.

        The process whose turn it is looks after half a second, and at once where a holder on this node gives the lock
        up. The others wait for their turn. After `patience` seconds without one they look, since the process in front
        may be stopped.
        """
        from filelock import Timeout

        if not self._queued:
            self._queue()
        pause = self._pause * (1 + os.urandom(1)[0] / 512)  # processes that began together would look together
        self._pause = min(_LONGEST, self._pause * 1.3)
        try:
            if self._looking and self._holding and not self._looking.is_locked:
                began = time.monotonic()
                self._looking.acquire(timeout=patience, poll_interval=_POLL)
                if time.monotonic() - began > _POLL:
                    self._pause = _LONGEST
                    return
            if self._holding and not self._holding.is_locked:
                self._holding.acquire(timeout=pause, poll_interval=_POLL)
            else:
                time.sleep(pause)
        except Timeout:
            pass
        except (OSError, NotImplementedError):  # a file system without flock: each waiter looks by itself
            self._looking = self._holding = None

    def taken(self) -> None:
        """The lock is this process's: the next one may look, and learns at once when the lock is given up."""
        from filelock import Timeout

        if self._looking and self._holding:
            with suppress(Timeout, OSError):
                self._holding.acquire(timeout=0)
            self._looking.release()

    def _queue(self) -> None:
        from filelock import FileLock

        self._queued = True
        with suppress(OSError):
            place = own_directory(Path(tempfile.gettempdir(), f"sifmod-locks-{os.geteuid()}"))
            name = place / sha256_bytes(os.fsencode(self._chain.resolve()))[:32]
            self._looking, self._holding = FileLock(f"{name}.look"), FileLock(f"{name}.hold")


def own_directory(place: Path) -> Path:
    """A directory where this user alone may write, made where it is not there. Raises OSError where it is another's."""
    with suppress(FileExistsError):
        place.mkdir(0o700)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{place} is no directory of {user_name(os.geteuid())} alone")
    return place
