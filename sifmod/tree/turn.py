"""Turns: among the waiting processes of one user on one node, only one at a time polls a lock's lease.

Polling a lease (lease.py) takes several requests to the file server, and 64 tasks of a job may wait at once. filelock
decides between them, on files of this node. It does not protect the tree; the lease does that. So a stopped process, an
unusable directory, or a full disk costs additional polls, but never a lock.
"""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.digest import sha256_bytes
from sifmod.system import own_directory

if TYPE_CHECKING:
    from filelock import FileLock

_POLL = 0.05  # seconds between two polls of a file of this node
_FIRST, _LONGEST = 0.02, 0.5  # seconds between two polls of a lease


class LockQueue:
    """A place in the queue for one lock of a tree, until `leave`.

    Until `wait` is called nothing is created or imported, since most locks are free.
    """

    def __init__(self, chain: Path) -> None:
        self._chain = chain
        self._looking: FileLock | None = None  # held by the process that polls
        self._holding: FileLock | None = None  # held by the process that waited and now has the lock
        self._queued = False
        self._pause = _FIRST

    def leave(self) -> None:
        """Leave the queue, with or without the lock."""
        for one in (self._looking, self._holding):
            if one:
                one.release()

    def wait(self, patience: float) -> None:
        """Return when it is time to poll the lease again.

        The process whose turn it is polls after a pause that grows to 0.75 s at most, or as soon as a holder on this
        node releases the lock. The others wait for their turn; after `patience` seconds without one they poll too,
        since the process ahead may be stopped.
        """
        from filelock import Timeout

        if not self._queued:
            self._queue()
        pause = self._pause * (1 + os.urandom(1)[0] / 512)  # processes that started together would poll together
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
        except (OSError, NotImplementedError):  # a file system without flock: each waiter looks at the lease itself
            self._looking = self._holding = None

    def taken(self) -> None:
        """Mark the lock as held here: the next process may poll, and is notified when the lock is released."""
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
