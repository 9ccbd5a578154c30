"""Partial downloads: those of running downloads, and those that an interrupted run has left."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.tree.durable import opened
from sifmod.tree.layout import Layout, lock_file_name
from sifmod.tree.locking import HeldLock
from sifmod.tree.removal import prune, remove_tree, states_below

_ATTEMPTS = 100


class Partial(NamedTuple):
    """One directory of `<prefix>/images/partial`."""

    key: str
    path: Path
    size: int  # bytes on the disk
    changed: float  # seconds since 1970, of the last write


def lock_name(key: str) -> str:
    """The name of the lock for the partial download of `key`."""
    return lock_file_name(f"partial-{key}")


def partials(layout: Layout) -> tuple[Partial, ...]:
    """All partial downloads, sorted by key."""
    found = (_look(path) for path in sorted(layout.partials.glob("*")))
    return tuple(partial for partial in found if partial is not None)


def open_partial(path: Path, top: Path) -> bool:
    """Create the directory `path`, as open as `top` above it and the umask allow; False if it cannot be used.

    Files that another user of the group left in it are used too; unreadable ones are removed. It cannot be used if that
    fails, or if it cannot be entered. Raises OSError.
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
    """The user's own key for `key`, if another user's partial download cannot be used."""
    return f"{key}-{os.geteuid()}"


def discard_partial(layout: Layout, partial: Partial, held: HeldLock) -> bool:
    """Remove a partial download, under its lock; False if it is gone, or was written since `partial` was read."""
    now = _look(partial.path)
    if now is None or now.changed > partial.changed:
        return False
    with held.changing(f"cannot remove {partial.path}"):
        held.discard(partial.path)
        prune(layout.partials, layout.prefix)
    return True


def _look(path: Path) -> Partial | None:
    try:
        itself = path.lstat()  # another user may have put a link there, to any directory
        states = [itself, *(states_below(path) if stat.S_ISDIR(itself.st_mode) else ())]
    except OSError:
        return None
    size = sum(512 * state.st_blocks for state in states)
    return Partial(path.name, path, size, max(state.st_mtime for state in states))
