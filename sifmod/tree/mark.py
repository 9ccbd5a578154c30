"""Marks: references to images of this store by modules in other users' trees, which its gc cannot see.

A mark is an empty file in `images/marks`, which only a tree with `sharing` has: all readers may create files there, and
the sticky bit keeps them from removing those of others. The name contains the image's digest, a digest of the user's
prefix and random digits; the owner is the file's owner. Its age counts from its mtime, which a load renews, but never
from a time after its ctime, which no user can set ahead. So users can at most keep images, and gc names these users.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_bytes
from sifmod.system import user_name
from sifmod.tree.durable import opened, sync_directory
from sifmod.tree.layout import Layout

LINK = "share/mark"  # a generation's link to the mark, which a load renews
_DAY = 86400.0
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{16})\.[0-9a-f]{8}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Mark(NamedTuple):
    """A reference of a user's modules to an image."""

    user: str
    since: float  # created or renewed; seconds since 1970
    path: Path


def in_force(layout: Layout, images: Container[str], days: float) -> dict[str, tuple[Mark, ...]]:
    """The marks of these images that are less than `days` days old, by digest. Raises OSError."""
    found, now = all_marks(layout, images) if days else {}, time.time()
    young = {sha256: tuple(mark for mark in of if now - mark.since < days * _DAY) for sha256, of in found.items()}
    return {sha256: of for sha256, of in young.items() if of}


def all_marks(layout: Layout, images: Container[str]) -> dict[str, tuple[Mark, ...]]:
    """The marks of these images of any age, newest first, one per user. Raises OSError.

    Users may have created any files; the newest of each user counts.
    """
    newest: dict[tuple[str, int], Mark] = {}
    with suppress(FileNotFoundError), opened(layout.marks, layout.prefix) as directory:
        for name, sha256, _ in _names(directory):
            if sha256 not in images:
                continue
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                mark = Mark("", min(status.st_mtime, status.st_ctime), layout.marks / name)
                known = newest.get((sha256, status.st_uid), mark)
                if stat.S_ISREG(status.st_mode) and mark.since >= known.since:
                    newest[sha256, status.st_uid] = mark
    found: dict[str, list[Mark]] = {}
    for (sha256, uid), mark in sorted(newest.items(), key=lambda item: -item[1].since):
        found.setdefault(sha256, []).append(mark._replace(user=user_name(uid)))
    return {sha256: tuple(of) for sha256, of in found.items()}


def leave(layout: Layout, sha256: str, prefix: Path, name: str = "") -> tuple[Path, bool]:
    """Leave a mark in the store of `layout` for a module in `prefix`, or renew it: its path, and whether it is new.

    `name`: that of an earlier mark, to which a generation links; if it is another user's, this user's own is left
    beside it. Raises OSError if this store accepts none.
    """
    with opened(layout.marks, layout.prefix) as directory:
        if not os.fstat(directory).st_mode & stat.S_ISVTX:
            raise PermissionError(errno.EPERM, "other users could remove the mark", str(layout.marks))
        own = [*_own(directory, sha256, prefix)]
        if name not in own and any(name == other for other, *_ in _names(directory)):
            name = ""
        for known in own:
            if not name or known == name:
                os.utime(known, dir_fd=directory, follow_symlinks=False)
                return layout.marks / known, False
        name = name or f"{sha256}.{_key(prefix)}.{os.urandom(4).hex()}"
        os.close(os.open(name, _NEW, 0o444, dir_fd=directory))
        sync_directory(directory)
        return layout.marks / name, True


def remove(layout: Layout, sha256: str, prefix: Path) -> None:
    """Remove this user's marks for an image that modules in `prefix` left. Raises OSError."""
    with suppress(FileNotFoundError), opened(layout.marks, layout.prefix) as directory:
        for name in tuple(_own(directory, sha256, prefix)):
            os.unlink(name, dir_fd=directory)


def forget(layout: Layout, stored: Container[str]) -> None:
    """Remove the marks of images that are not in `stored`; the directory's owner and root may. Errors are ignored."""
    with suppress(OSError), opened(layout.marks, layout.prefix) as directory:
        for name in [name for name, sha256, _ in _names(directory) if sha256 not in stored]:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _own(directory: int, sha256: str, prefix: Path) -> Iterator[str]:
    key = _key(prefix)
    for name, image, of in _names(directory):
        if (image, of) == (sha256, key):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                yield name


def _names(directory: int) -> Iterator[tuple[str, str, str]]:
    """The names of marks, with their digests."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if found := _NAME.fullmatch(entry.name):
                yield entry.name, found[1], found[2]


def _key(prefix: Path) -> str:
    return sha256_bytes(os.fsencode(os.path.realpath(prefix)))[:16]
