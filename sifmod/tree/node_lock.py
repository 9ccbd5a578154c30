"""The queue of one node: filelock's flock, or its soft lock where the file system has none.

It decides who goes first on a node, without polling the disk of all nodes; who really holds the lock is the lease.
"""

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.tree.disk import make_directory

if TYPE_CHECKING:
    from filelock import BaseFileLock


class NodeLock:
    """One lock file of one node; take it with `acquire` as often as needed, give it back with `release`."""

    def __init__(self, path: Path) -> None:
        from filelock import BaseFileLock, FileLock

        self._lock: BaseFileLock = FileLock(path)
        self._held = False

    def acquire(self) -> bool:
        """Try once; True when this process has it."""
        from filelock import SoftFileLock

        if not self._held:
            try:
                self._held = _try(self._lock)
            except OSError as error:
                # filelock itself turns to its soft lock for ENOSYS; NFS without its lock service says otherwise.
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
                self._lock = SoftFileLock(f"{self._lock.lock_file}.soft")
                self._held = _try(self._lock)
        return self._held

    def release(self) -> None:
        """Let the next one in."""
        if self._held:
            with suppress(OSError):  # the lease is what counts, and the system lets go when the process ends
                self._lock.release()
            self._held = False


def _try(file_lock: "BaseFileLock") -> bool:
    import warnings

    from filelock import Timeout

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the lock became a soft one is nothing to tell a user
        try:
            file_lock.acquire(timeout=0)
        except Timeout:
            return False
        # Its directory was removed, as the last thing of a first install that failed; filelock itself makes directories
        # in a way that fails where one goes meanwhile.
        except (FileNotFoundError, FileExistsError):
            chain = Path(file_lock.lock_file).parent
            make_directory(chain, chain.parents[1])
            return False
    return True
