"""The umask under which a tree is changed, by no verb's own care: `lock` asks for it where none was decided."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_decided: list[Path] = []  # directories, the last that counts last


@contextmanager
def umask(place: Path, mask: int | None) -> Iterator[int]:
    """Work in `place`, and in what is below it, under this umask; None: under the one that is in force; gives that."""
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
    """Work under the umask that was decided for `place`, else leave all that is made there as open as `place` is.

    So the members of a group do not shut each other out, whichever verb they type.
    """
    if _decided and place.is_relative_to(_decided[-1]):
        yield
    else:
        with umask(place, as_open(place)):
            yield


def as_open(directory: Path) -> int | None:
    """The umask under which all is as open as a directory; None where there is none."""
    return 0o777 & ~directory.stat().st_mode if directory.is_dir() else None
