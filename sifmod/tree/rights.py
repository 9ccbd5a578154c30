"""Modes and groups of sifmod's files in a shared prefix."""

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import starmap, takewhile
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName, is_part
from sifmod.digest import sha256_bytes
from sifmod.system import groups_of, walk
from sifmod.tree.durable import is_directory, is_there, names, opened, read
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import numbers, read_receipt
from sifmod.tree.stage import USER_SOFTWARE
from sifmod.tree.stored_image import entries
from sifmod.tree.write_life import LUA, TCL, is_ours

_ACL = "system.posix_acl_access"
_DEFAULT_ACL = "system.posix_acl_default"
_ENTRY = struct.Struct("<HHI")  # acl(5), after a version of four bytes: tag, permissions, id
ACL_USER, ACL_OWNING_GROUP, ACL_GROUP, ACL_MASK, ACL_OTHER = 0x02, 0x04, 0x08, 0x10, 0x20


class AclEntry(NamedTuple):
    """An entry of an access control list; `who` is a user's or a group's id for ACL_USER and ACL_GROUP."""

    tag: int
    bits: int
    who: int


def access_list(path: Path | str, *, default: bool = False) -> tuple[AclEntry, ...]:
    """The access control list of a file, or the `default` one for new files in a directory; () if there is none."""
    try:
        packed = os.getxattr(path, _DEFAULT_ACL if default else _ACL)[4:]
    except OSError:  # none, or not supported
        return ()
    return tuple(starmap(AclEntry, _ENTRY.iter_unpack(packed)))


class Rights(NamedTuple):
    """A umask, the group that directories pass on, and the owner of all; None: any group, any owner."""

    umask: int
    gid: int | None
    uid: int | None = None

    def mode(self, mode: int) -> int:
        """The wanted mode: the owner's permissions as they are, and for others the owner's as far as the umask allows.

        A directory is as open to group and others as the umask allows, and passes on its group if there is a `gid`.
        """
        owner = stat.S_IMODE(mode) & 0o700
        if stat.S_ISDIR(mode):
            handed_on = mode & 0o2000 if self.gid is None else 0o2000
            return owner | 0o077 & ~self.umask | handed_on
        return (owner | owner >> 3 | owner >> 6) & ~self.umask

    def fits(self, status: os.stat_result) -> bool:
        right_mode = self.mode(status.st_mode) == stat.S_IMODE(status.st_mode)
        return right_mode and self.gid in (None, status.st_gid) and self.uid in (None, status.st_uid)

    def lets_in(self, other: "WrongRights") -> bool:
        """Whether a file is at least as open as wanted, and in the wanted group."""
        closed = self.mode(other.mode) & ~other.mode & 0o077
        closed |= any(self.bits(entry, other.mode) & ~entry.bits for entry in other.named)
        return not closed and self.gid in (None, other.found.st_gid)

    def lets_read(self, path: Path) -> bool:
        """Whether all whom the tree lets in may read this file, which may be another user's. Raises OSError."""
        status, entries_of = path.stat(), access_list(path)
        mode = status.st_mode & (~0o070 | _of_group(entries_of) << 3)
        readable = mode & status.st_mode >> 3 & 4
        if any(not one.bits & readable and self.bits(one, 0o400) & 4 for one in _named(entries_of, status, self)):
            return False
        of_group = not self.mode(0o400) & 0o004 and status.st_gid == self.gid
        return bool(mode & 0o040 and (of_group or mode & 0o004))

    def bits(self, entry: AclEntry, mode: int) -> int:
        """The permissions that the user or group of an entry has for a file with this mode, without the entry."""
        right = self.mode(mode)
        user = entry.tag == ACL_USER
        member = self.gid in groups_of(entry.who) if user else self.gid == entry.who
        return right >> 3 & 7 if member else right & 7

    def agrees(self, entry: AclEntry, mode: int) -> bool:
        """Whether an entry changes nothing; the right mode masks its permissions."""
        return entry.bits & self.mode(mode) >> 3 & 7 == self.bits(entry, mode)


class WrongRights(NamedTuple):
    """A file or directory of sifmod with a wrong mode, group or owner."""

    path: Path
    found: os.stat_result
    mode: int  # the effective one: an access control list may give the group less than `found` says
    named: tuple[AclEntry, ...] = ()  # entries for a user or a group with other permissions than wanted


def wrong_rights(layout: Layout, rights: Rights, cache: Iterable[Path] = ()) -> Iterator[WrongRights]:
    """The files and directories of sifmod in a tree with a wrong mode, group or owner, sorted. Raises OSError.

    `cache`: as for `own_paths`.
    """
    for path in sorted(own_paths(layout, cache)):
        with suppress(FileNotFoundError):
            status = path.stat() if path == layout.prefix else path.lstat()
            # a file with another hard link may belong to someone else
            single = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
            if single and (wrong := wrong_file(path, status, rights)):
                yield wrong


def wrong_file(path: Path, status: os.stat_result, rights: Rights) -> WrongRights | None:
    """The file with its rights, if they are wrong."""
    entries_of = access_list(path)
    mode = status.st_mode & (~0o070 | _of_group(entries_of) << 3)
    wrong = WrongRights(path, status, mode, _named(entries_of, status, rights))
    return None if rights.fits(status) and mode == status.st_mode and not wrong.named else wrong


def _of_group(entries_of: Iterable[AclEntry]) -> int:
    return next((entry.bits for entry in entries_of if entry.tag == ACL_OWNING_GROUP), 7)


def _named(entries_of: Iterable[AclEntry], status: os.stat_result, rights: Rights) -> tuple[AclEntry, ...]:
    """The entries with wrong permissions; the owner's and root's have no effect."""
    without = (status.st_uid, 0)
    named = (one for one in entries_of if one.tag == ACL_GROUP or (one.tag == ACL_USER and one.who not in without))
    return tuple(one for one in named if not rights.agrees(one, status.st_mode))


def give(layout: Layout, rights: Rights, other: WrongRights) -> None:
    """Correct mode, group and owner of a file; links are not followed. Idempotent.

    Raises OSError, also for another user's file, or if another user should own it.
    """
    path = other.path
    flags = os.O_PATH | os.O_CLOEXEC
    if path == layout.prefix:
        place = os.open(path, flags)
    else:
        with opened(path.parent, layout.prefix) as directory:
            place = os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=directory)
    try:
        status, itself = os.fstat(place), f"/proc/self/fd/{place}"
        if (status.st_dev, status.st_ino) == (other.found.st_dev, other.found.st_ino):
            if rights.gid not in (None, status.st_gid):
                os.chown(itself, -1, rights.gid or 0)
            Path(itself).chmod(rights.mode(status.st_mode))
            entries_of = access_list(itself)
            wrong = _named(entries_of, status, rights)
            if _of_group(entries_of) != 7 or wrong:
                right = (one for one in entries_of if one not in wrong)
                opened_up = (one._replace(bits=7) if one.tag == ACL_OWNING_GROUP else one for one in right)
                packed = b"".join(_ENTRY.pack(*one) for one in opened_up)  # the mask, from the mode, still limits it
                os.setxattr(itself, _ACL, os.getxattr(itself, _ACL)[:4] + packed)
            if rights.uid not in (None, status.st_uid):
                os.chown(itself, rights.uid or 0, -1)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(place)


def own_paths(layout: Layout, cache: Iterable[Path] = ()) -> set[Path]:
    """Every file and directory that sifmod made in a tree, except marks, which belong to users.

    `cache`: the files of the site's spider cache, wherever they are. For a closed directory, only the directory
    itself. Raises OSError if the prefix cannot be read.
    """
    names(layout.prefix)
    found = {layout.prefix, layout.staging, layout.images.parent, layout.images}
    for place in layout.own:
        found.add(place)  # of a closed one nothing else is known
        for top, below, files in walk(place):
            found.update(Path(top, name) for name in (".", *below, *files))
            below[:] = [name for name in below if name != layout.staging.name]  # other runs use it
    receipts = (path for path in _inside(layout.images) if path.suffix == ".json")
    closed = {path.name.partition(".")[0] for path in receipts if not os.access(path, os.R_OK)}
    for sha256 in closed.union(image.sha256 for image in entries(layout)):
        image = layout.image(sha256)
        found |= {image, image.with_suffix(".json"), layout.inventory(sha256)}
    for place in (layout.modules, layout.software, layout.prefix / "user-software"):
        found |= {place, *(path for path in _inside(place) if is_directory(path) and _of_modules(layout, path.name))}
    modulercs = (path / name for path in _inside(layout.modules) for name in (LUA, TCL))
    found.update(file for file in modulercs if _holds(file, is_ours))
    for place in (place for name in _inside(layout.software) for place in _inside(name / ".generations")):
        if is_part(place.name):
            module = ModuleName(place.parents[1].name, place.name)
            software = layout.user_software(module)
            # the directory's content belongs to users; `make-squashfs` makes the squashfs, which all commands bind
            found |= {place.parent, place, software, layout.history(module)}
            found.update(software / name for name in USER_SOFTWARE)
            found.update(_of_module(layout, module))
    for file in cache:
        inside = layout.prefix in file.parents and ".." not in file.parts
        above = [place for place in reversed(file.parents) if inside and layout.prefix in place.parents]
        real = list(takewhile(is_directory, above))
        found.update((*above, file) if inside and real == above else real)
    return {path for path in found if os.path.lexists(path)}


def _inside(place: Path) -> list[Path]:
    """What is in a directory; nothing if it is closed, or removed meanwhile."""
    with suppress(PermissionError):
        return [place / name for name in names(place)]
    return []


def _of_modules(layout: Layout, name: str) -> bool:
    """Whether a directory of this name is sifmod's and not one that a user made: modules have the name, or had it."""
    try:
        return is_there(layout.software / name / ".generations") or is_there(layout.lives(name))
    except PermissionError:
        return is_there(layout.modules / name)


def _of_module(layout: Layout, module: ModuleName) -> Iterator[Path]:
    with suppress(PermissionError):
        for number in numbers(layout, module):
            root = layout.generation(module, number)
            yield from (root, root / RECEIPT)
            if (known := read_receipt(root)) is None:
                continue
            for path in known.paths:
                yield from (root / parent for parent in Path(path).parents if parent.name)
                yield root / path
            stubs = {layout.modules / stub.path: stub.sha256 for stub in known.stubs}
            yield from (file for file, sha256 in stubs.items() if _holds(file, partial(_is, sha256)))


def _is(sha256: str, data: bytes) -> bool:
    return sha256_bytes(data) == sha256


def _holds(file: Path, what: Callable[[bytes], bool]) -> bool:
    """Whether a file is sifmod's, by its content; an unreadable one counts, and cannot be repaired."""
    try:
        return what(read(file))
    except OSError as error:
        return error.errno == errno.EACCES
