"""The umask for changes in a tree: the one decided for it, else one that leaves new files as open as the tree."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_decided: list[Path] = []  # directories with a umask of their own; the last one takes precedence


@contextmanager
def umask(place: Path, mask: int | None) -> Iterator[int]:
    """Use this umask for changes in and below `place`; None: the current one. Yields the umask that was used before."""
    before = os.umask(0o077)
    os.umask(before if mask is None else mask)
    _decided.append(place)
    try:
        yield before
    finally:
        _decided.pop()
        os.umask(before)


@contextmanager
def decided_umask(place: Path) -> Iterator[None]:
    """Use the umask that was decided for `place`; otherwise new files are as open as `place`.

    So members of a group do not lock each other out, whichever command they use.
    """
    if _decided and place.is_relative_to(_decided[-1]):
        yield
    else:
        with umask(place, as_open(place)):
            yield


def as_open(directory: Path) -> int | None:
    """The umask that makes files as open as a directory; None if it is missing.

    Nobody else gets more than the directory gives: new files are in the group of the user if it passes on none, and
    in a sticky one others may not change what is there.
    """
    if not directory.is_dir():
        return None
    status = directory.stat()
    closed = 0o777 & ~status.st_mode
    if status.st_mode & stat.S_ISVTX:
        closed |= stat.S_IWOTH
    if status.st_mode & stat.S_IXOTH and not status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
        closed |= stat.S_IWGRP  # another group can reach them
    return closed
