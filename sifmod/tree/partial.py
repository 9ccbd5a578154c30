"""What is being fetched: the file that a run is writing, what an interrupted one has left, and a store of one file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.errors import FetchError, PermissionsError
from sifmod.module.origin import NO_ORIGIN, ImageOrigin
from sifmod.tree.disk import opened, sync_directory, sync_file
from sifmod.tree.layout import Layout, Workplace
from sifmod.tree.lock import Held, forget_locks, lock, spelled
from sifmod.tree.removal import prune, remove_tree


class Incoming:
    """The part of a store that is the same wherever its images go."""

    def __init__(self, held: Held) -> None:
        self._held = held

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path on the store's file system; what is left there at exit is removed."""
        path = self._held.path("incoming")
        try:
            yield path
        except Exception:
            self._held.check()  # whatever failed, it did because the lock was lost
            raise
        finally:
            with suppress(OSError):  # else it goes with the holder's directory
                remove_tree(path, self._held.top)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory for the runtime's cache and temporary files, removed at exit."""
        with self.incoming() as path:
            with self._held.changing("cannot make a workspace"):
                path.mkdir()
            yield path

    def finished(self, partial: Path) -> None:
        """Remove what `partial` gave; what cannot be removed is `gc`'s."""
        with suppress(OSError):
            remove_tree(partial, self._held.top)


_ATTEMPTS = 100


class Partial(NamedTuple):
    """One directory of `<prefix>/images/partial`."""

    key: str
    path: Path
    size: int  # bytes on the disk
    changed: float  # seconds since 1970, of what was written last


def lock_name(key: str) -> str:
    """The name of the lock under which the partial of `key` is written or removed."""
    return spelled(f"partial-{key}")


def partials(layout: Layout) -> tuple[Partial, ...]:
    """All of them, sorted by key."""
    found = (_look(path) for path in sorted(layout.partials.glob("*")))
    return tuple(partial for partial in found if partial is not None)


def open_partial(path: Path, top: Path) -> bool:
    """Make the directory `path`, as open as `top` above it is and the umask allows; False where it cannot be used.

    What another user of the group left in it is used too. What of it cannot be opened is removed; where that cannot be
    done either, or the directory cannot be entered, it cannot be used. Raises OSError.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with opened(path.parent, top, make=True) as directory, suppress(FileExistsError):
                os.mkdir(path.name, 0o700 | top.stat().st_mode & 0o777, dir_fd=directory)
            break
        except FileNotFoundError:  # another run has removed the directory above, because it was empty
            if attempt + 1 == _ATTEMPTS:
                raise
    try:
        for file in path.iterdir():
            if not os.access(file, os.R_OK | os.W_OK):
                remove_tree(file, top)
    except PermissionError:
        return False
    return os.access(path, os.R_OK | os.W_OK | os.X_OK)


def own_key(key: str) -> str:
    """What this user fetches `key` under where another user's partial of that name cannot be used."""
    return f"{key}-{os.geteuid()}"


def discard_partial(layout: Layout, partial: Partial, held: Held) -> bool:
    """Remove it, under its lock; False where it was written to since it was looked at, and stays."""
    now = _look(partial.path)
    if now is None or now.changed > partial.changed:
        return False
    with held.changing(f"cannot remove {partial.path}"):
        held.discard(partial.path)
        prune(layout.partials, layout.prefix)
    return True


def _look(path: Path) -> Partial | None:
    try:
        states = [path.stat(), *(file.lstat() for file in path.rglob("*"))]
    except OSError:
        return None
    size = sum(512 * state.st_blocks for state in states)
    return Partial(path.name, path, size, max(state.st_mtime for state in states))


@contextmanager
def beside(target: Path, lease: float, on_wait: Callable[[str], None], *, replace: bool = False) -> Iterator["Beside"]:
    """An artifact.ImageStore for `target` alone; a file that is there is replaced, whole, only with `replace`.

    What is not complete lies in a hidden directory beside the target, under a lock that holds on all nodes (see `lock`
    for `lease` and `on_wait`): what a run that failed had received, with which the next one goes on, and until the
    next run what one that was killed had begun. Raises FetchError or PermissionsError where the target cannot be
    written, before anything is.
    """
    _check(target)
    _check_way(target, replace)
    workplace = Workplace(target.with_name(f".{target.name}.fetching"))
    try:
        with lock(workplace, "fetch", lease, on_wait) as held:
            _check_way(target, replace)  # another run may have put it there while this one waited
            yield Beside(target, workplace, held, replace=replace)
    finally:
        with suppress(OSError):
            forget_locks(workplace)
        with suppress(OSError):  # a partial download is left, to be resumed
            workplace.prefix.rmdir()


class Beside(Incoming):
    """The store that `beside` gives: nothing is kept in it, and no other store is looked into."""

    def __init__(self, target: Path, workplace: Workplace, held: Held, *, replace: bool) -> None:
        super().__init__(held)
        self._target = target
        self._workplace = workplace
        self._replace = replace

    def find(self, sha256: str) -> Path | None:  # noqa: ARG002
        return None

    def damaged(self, sha256: str) -> bool:  # noqa: ARG002
        return False

    def lent(self, sha256: str) -> tuple[Path, ImageOrigin] | None:  # noqa: ARG002
        return None

    def lends(self, path: Path) -> bool:  # noqa: ARG002
        return False

    def find_made(self, source: str, digest: str) -> tuple[tuple[Path, ImageOrigin], ...]:  # noqa: ARG002
        return ()

    def gave(self, path: Path, origin: ImageOrigin, source: str) -> None:
        """Nothing is noted: nothing is kept here."""

    @contextmanager
    def partial(self, key: str) -> Iterator[Path]:
        """A directory in the hidden one that stays for the next run."""
        path = self._workplace.prefix / key
        with self._held.changing(f"cannot make {path}"):
            if not open_partial(path, self._target.parent):
                path = path.with_name(own_key(key))
                open_partial(path, self._target.parent)
        try:
            yield path
        finally:
            with suppress(OSError):  # it holds a partial download, to be resumed
                path.rmdir()

    def add(
        self,
        incoming: Path,
        sha256: str,  # noqa: ARG002
        origin: ImageOrigin = NO_ORIGIN,  # noqa: ARG002
        source: str = "",  # noqa: ARG002
    ) -> Path:
        """Put a complete file in the target's place (fsync, rename) and return its path."""
        with self._held.changing(f"cannot write {self._target}"):
            sync_file(incoming)
            if self._replace:
                incoming.replace(self._target)
            else:
                try:
                    os.link(incoming, self._target)  # fails where another run was faster; rename would not
                except OSError:  # that, or a file system without hard links
                    _check_way(self._target, replace=False)
                    incoming.rename(self._target)
            sync_directory(self._target.parent)
        return self._target


def _check(target: Path) -> None:
    if target.is_dir():
        raise FetchError(f"{target} is a directory", "name the file: -o DIRECTORY/NAME")
    if target.exists() and not target.is_file():
        raise FetchError(f"{target} is a device, a pipe or a socket, which a file would replace", "name a file")
    if not target.parent.is_dir():
        raise FetchError(f"there is no directory {target.parent}", "make it first, or choose another")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionsError(f"cannot write into {target.parent}", "choose another place with -o")


def _check_way(target: Path, replace: bool) -> None:
    if os.path.lexists(target) and not replace:
        raise FetchError(f"{target} exists already; nothing was written", "give --force to replace it")
