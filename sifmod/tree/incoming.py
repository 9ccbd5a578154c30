"""A file that a run is writing, in the directory of a lock that it holds, until it is complete and in its place."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.tree.lock import Held
from sifmod.tree.remove import remove_tree


class Incoming:
    """The part of a store that is the same wherever its images go."""

    def __init__(self, held: Held) -> None:
        self._held = held

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path on the store's file system; what is left there at exit is removed."""
        with self._temporary("incoming") as path:
            yield path

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory for the runtime's cache and temporary files, removed at exit."""
        with self._temporary("workspace") as path:
            with self._held.changing("cannot make a workspace"):
                path.mkdir()
            yield path

    def finished(self, partial: Path) -> None:
        """Remove what `partial` gave; what cannot be removed is `gc`'s."""
        with suppress(OSError):
            remove_tree(partial, self._held.top)

    @contextmanager
    def _temporary(self, kind: str) -> Iterator[Path]:
        path = self._held.path(kind)
        try:
            yield path
        except Exception:
            self._held.check()  # whatever failed, it did because the lock was lost
            raise
        finally:
            with suppress(OSError):  # else it goes with the holder's directory
                remove_tree(path, self._held.top)
