"""Inodes: the elements of a root file system before it is written to a squashfs.

A node with two names is one file with two hard links. Nodes are the one mutable value of the conversion: there are
hundreds of thousands, and merging layers changes them in place. Of plain small files there may be millions: each is a
few bytes instead of a node.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Xattrs = tuple[tuple[bytes, bytes], ...]
"""Extended attributes: full name (`user.x`, `trusted.x`, `security.x`) and value, sorted by name."""


class Content(NamedTuple):
    """The location of a regular file's data, set by the writer and the reader of squashfs; opaque to other code."""

    size: int  # bytes
    block: int = 0  # index of its first block among all blocks of the writer
    stored: int = 0  # index of that block among those that are not holes
    fragment: int = -1  # index of its fragment block, -1 without one
    offset: int = 0  # in the fragment
    sparse: int = 0  # bytes in holes


Plain = bytes
"""A regular file in a fragment block (or empty), with one name and without extended attributes: OWNER, then PLACE."""

OWNER = struct.Struct("<HxxIII")  # mode, uid, gid, mtime
PLACE = struct.Struct("<III")  # index of its fragment block, offset there, size
NO_FRAGMENT = 0xFFFFFFFF
EMPTY = PLACE.pack(NO_FRAGMENT, 0, 0)  # the place of an empty file


@dataclass(slots=True, eq=False)
class Node:
    """Common fields of every inode."""

    mode: int  # permission bits alone, 07777
    uid: int
    gid: int
    mtime: int  # seconds since 1970 (u32)
    xattrs: Xattrs


@dataclass(slots=True, eq=False)
class File(Node):
    content: Content


@dataclass(slots=True, eq=False)
class Symlink(Node):
    target: bytes  # its text


@dataclass(slots=True, eq=False)
class Device(Node):
    kind: str  # b or c
    major: int
    minor: int


@dataclass(slots=True, eq=False)
class Fifo(Node):
    """A named pipe."""


@dataclass(slots=True, eq=False)
class Socket(Node):
    """A socket; layers have none."""


Entries = dict[bytes, Node | Plain]


@dataclass(slots=True, eq=False)
class Directory(Node):
    entries: Entries = field(default_factory=dict)  # by name, in any order


def directories(root: Directory) -> Iterator[Directory]:
    """A directory and all directories below it; each comes before those in it."""
    todo = [root]
    while todo:
        directory = todo.pop()
        yield directory
        todo += [node for node in directory.entries.values() if isinstance(node, Directory)]


def unpacked(plain: Plain) -> File:
    """The file `plain` as a node, which, unlike a Plain, may have several names."""
    mode, uid, gid, mtime = OWNER.unpack_from(plain)
    return File(mode, uid, gid, mtime, (), content_of(plain[OWNER.size :]))


def content_of(place: bytes) -> Content:
    """The Content for a PLACE."""
    fragment, offset, size = PLACE.unpack(place)
    return Content(size, fragment=fragment, offset=offset) if size else Content(0)
