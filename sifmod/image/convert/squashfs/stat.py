"""Stat: an inode of a squashfs as it is read, of any of the fourteen types."""

import struct
from typing import NamedTuple

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.blocks import Blocks, Cursor
from sifmod.image.convert.squashfs.superblock import EXTENDED, KINDS, NONE

_COMMON = struct.Struct("<HHHHII")
_MOST_TARGET = 65535  # bytes
_LAYOUTS = {
    1: struct.Struct("<IIHHI"),
    2: struct.Struct("<IIII"),
    3: struct.Struct("<II"),
    4: struct.Struct("<II"),
    5: struct.Struct("<II"),
    6: struct.Struct("<I"),
    7: struct.Struct("<I"),
    8: struct.Struct("<IIIIHHI"),
    9: struct.Struct("<QQQIIII"),
    10: struct.Struct("<II"),
    11: struct.Struct("<III"),
    12: struct.Struct("<III"),
    13: struct.Struct("<II"),
    14: struct.Struct("<II"),
}


class Stat(NamedTuple):
    """What an inode says. `kind` is a letter as find(1) prints it: d f l b c p s."""

    kind: str
    mode: int  # permission bits, 07777
    uid: int
    gid: int
    mtime: int
    number: int
    links: int = 1
    size: int = 0  # bytes of a file's data, of a directory's listing, of a symlink's target
    start: int = 0  # where its blocks begin, or the block of its listing
    offset: int = 0  # in the block of its listing, or in its fragment
    fragment: int = NONE
    list_start: int = 0  # where its list of blocks begins, in the inode table
    list_offset: int = 0
    target: bytes = b""
    device: int = 0  # as Linux encodes it
    xattrs: int = NONE  # number of its set

    @property
    def major(self) -> int:
        """Of a device."""
        return self.device >> 8 & 0xFFF

    @property
    def minor(self) -> int:
        """Of a device."""
        return (self.device & 0xFF) | (self.device >> 12 & 0xFFF00)


def read_stat(blocks: Blocks, ids: tuple[int, ...], reference: int) -> Stat:
    """Read the inode at a reference. Raises ImageError where it is damaged."""
    table = blocks.superblock.inode_table
    start = table + (reference >> 16)
    if start >= blocks.superblock.directory_table:
        raise ImageError(f"damaged squashfs: an inode at {start}, outside the table of inodes")
    cursor = Cursor(blocks, start, reference & 0xFFFF)
    kind, mode, uid, gid, mtime, number = _COMMON.unpack(cursor.take(_COMMON.size))
    layout = _LAYOUTS.get(kind)
    if layout is None or uid >= len(ids) or gid >= len(ids):
        raise ImageError(f"damaged squashfs: an inode of type {kind} with owners {uid} and {gid} of {len(ids)}")
    letter = KINDS[kind if kind <= EXTENDED else kind - EXTENDED]
    head = (letter, mode & 0o7777, ids[uid], ids[gid], mtime, number)
    fields = layout.unpack(cursor.take(layout.size))
    if letter == "f":
        return _file(head, fields, cursor)
    if letter == "d":
        return _directory(head, fields)
    if letter == "l":
        return _symlink(head, fields, cursor, kind)
    if letter in "bc":
        return Stat(*head, links=fields[0], device=fields[1], xattrs=fields[2] if kind > EXTENDED else NONE)
    return Stat(*head, links=fields[0], xattrs=fields[1] if kind > EXTENDED else NONE)


_Head = tuple[str, int, int, int, int, int]
_Fields = tuple[int, ...]


def _file(head: _Head, fields: _Fields, cursor: Cursor) -> Stat:
    if len(fields) == 4:
        start, fragment, offset, size = fields
        links, xattrs = 1, NONE
    else:
        start, size, _, links, fragment, offset, xattrs = fields
    return Stat(*head, links, size, start, offset, fragment, cursor.start, cursor.offset, xattrs=xattrs)


def _directory(head: _Head, fields: _Fields) -> Stat:
    if len(fields) == 5:
        start, links, size, offset, _ = fields
        xattrs = NONE
    else:
        links, size, start, _, _, offset, xattrs = fields
    return Stat(*head, links, max(size - 3, 0), start, offset, xattrs=xattrs)


def _symlink(head: _Head, fields: _Fields, cursor: Cursor, kind: int) -> Stat:
    links, size = fields
    if not 0 < size <= _MOST_TARGET:
        raise ImageError(f"damaged squashfs: a symbolic link of {size} bytes")
    target = cursor.take(size)
    xattrs = int.from_bytes(cursor.take(4), "little") if kind > EXTENDED else NONE
    return Stat(*head, links, size, target=target, xattrs=xattrs)
