"""Read metadata blocks, tables, fragments and inodes of a squashfs."""

import os
import struct
from functools import lru_cache
from typing import BinaryIO, NamedTuple

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.compression import decompressor
from sifmod.image.convert.squashfs.superblock import (
    EXTENDED,
    KINDS,
    METADATA,
    NONE,
    SIZE,
    STORED,
    STORED_METADATA,
    parse_superblock,
)

_COMMON = struct.Struct("<HHHHII")
_MOST_TARGET = 65535  # bytes
# the fields of the basic types, then of their extended forms
_FORMS = ("IIHHI", "IIII", "II", "II", "II", "I", "I", "IIIIHHI", "QQQIIII", "II", "III", "III", "II", "II")
_LAYOUTS = {number: struct.Struct(f"<{form}") for number, form in enumerate(_FORMS, 1)}
_KEPT = 128  # metadata blocks in memory: 1 MiB
_KEPT_FRAGMENTS = 4


class Blocks:
    """Random access to a squashfs at `offset` of a file, with at most `size` bytes.

    Every method raises ImageError if the image is damaged, and OSError if the file is unreadable.
    """

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file = file  # kept open
        self._fd = file.fileno()
        self._offset = offset
        self.superblock = parse_superblock(os.pread(self._fd, min(SIZE, max(size, 0)), offset), size)
        self._decompress = decompressor(self.superblock.compression)
        self.metadata = lru_cache(_KEPT)(self._read_metadata)
        self.fragment = lru_cache(_KEPT_FRAGMENTS)(lambda index: self._block(*self.fragment_place(index), "fragment"))

    def raw(self, start: int, size: int) -> bytes:
        """The `size` bytes at offset `start` of the squashfs."""
        if start < 0 or start + size > self.superblock.used:
            raise ImageError(f"damaged squashfs: {size} bytes at {start} are outside of it")
        data = os.pread(self._fd, size, self._offset + start)
        if len(data) != size:
            raise ImageError(f"truncated squashfs: it ends before {start + size}")
        return data

    def _read_metadata(self, start: int) -> tuple[bytes, int]:
        """The metadata block at an offset, and the offset of the next one."""
        header = int.from_bytes(self.raw(start, 2), "little")
        size = header & ~STORED_METADATA
        if not 0 < size <= METADATA:
            raise ImageError(f"damaged squashfs: a metadata block at {start} of {size} bytes")
        data = self.raw(start + 2, size)
        if not header & STORED_METADATA:
            data = self._decompress(data, METADATA)
        if not data:
            raise ImageError(f"damaged squashfs: an empty metadata block at {start}")
        return data, start + 2 + size

    def data(self, start: int, word: int, expected: int) -> bytes:
        """A data block with its size in `word`, which must have `expected` bytes when decompressed."""
        data = self._block(start, word, "data block")
        if len(data) != expected:
            raise ImageError(f"damaged squashfs: a data block of {len(data)} bytes at {start}, expected {expected}")
        return data

    def fragment_place(self, index: int) -> tuple[int, int]:
        """The offset of a fragment block, and the word with its size."""
        if index >= self.superblock.fragments:
            raise ImageError(f"damaged squashfs: fragment {index} of {self.superblock.fragments}")
        start, word, _ = struct.unpack("<QII", self.indexed(self.superblock.fragment_table, index, 16))
        return start, word

    def _block(self, start: int, word: int, what: str) -> bytes:
        size = word & (STORED - 1)
        most = self.superblock.block_size
        if word >> 25:
            raise ImageError(f"damaged squashfs: a {what} has the invalid size field {word:#x}")
        if size > most:
            raise ImageError(f"damaged squashfs: a {what} of {size} bytes, more than the block size {most}")
        data = self.raw(start, size)
        return data if word & STORED else self._decompress(data, self.superblock.block_size)

    def indexed(self, table: int, number: int, size: int) -> bytes:
        """Entry `number` of a table with entries of `size` bytes and its index at `table`."""
        each = METADATA // size
        start = int.from_bytes(self.raw(table + number // each * 8, 8), "little")
        data, _ = self.metadata(start)
        entry = data[number % each * size : (number % each + 1) * size]
        if len(entry) != size:
            raise ImageError(f"damaged squashfs: a table at {table} has no entry {number}")
        return entry


class Cursor:
    """A position in consecutive metadata blocks, which advances on reads."""

    def __init__(self, blocks: Blocks, start: int, offset: int) -> None:
        self._blocks = blocks
        self.start = start
        self.offset = offset

    def take(self, size: int) -> bytes:
        """The next `size` bytes; callers limit `size`."""
        data, following = self._blocks.metadata(self.start)
        end = self.offset + size
        if end <= len(data):
            piece = data[self.offset : end]
            self.offset = end
            return piece
        if self.offset > len(data):
            raise ImageError(f"damaged squashfs: offset {self.offset} in a metadata block of {len(data)} bytes")
        pieces = [data[self.offset :]]
        left = size - len(pieces[0])
        while left:
            self.start = following
            data, following = self._blocks.metadata(self.start)
            pieces.append(data[:left])
            self.offset = len(pieces[-1])
            left -= self.offset
        return b"".join(pieces)


class Stat(NamedTuple):
    """The fields of an inode. `kind` is a letter as in find(1): d f l b c p s."""

    kind: str
    mode: int  # permission bits, 07777
    uid: int
    gid: int
    mtime: int
    number: int
    links: int = 1
    size: int = 0  # bytes of a file's data, of a directory's listing, of a symlink's target
    start: int = 0  # start of its blocks, or the block of its listing
    offset: int = 0  # in the block of its listing, or in its fragment
    fragment: int = NONE
    list_start: int = 0  # offset of its list of blocks in the inode table
    list_offset: int = 0
    target: bytes = b""
    device: int = 0  # as Linux encodes it
    xattrs: int = NONE  # number of its set of attributes


def read_stat(blocks: Blocks, ids: tuple[int, ...], reference: int) -> Stat:
    """Read the inode at a reference. Raises ImageError if it is damaged."""
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
        if len(fields) == 4:
            start, fragment, offset, size = fields
            links, xattrs = 1, NONE
        else:
            start, size, _, links, fragment, offset, xattrs = fields
        return Stat(*head, links, size, start, offset, fragment, cursor.start, cursor.offset, xattrs=xattrs)
    if letter == "d":
        if len(fields) == 5:
            start, links, size, offset, _ = fields
            xattrs = NONE
        else:
            links, size, start, _, _, offset, xattrs = fields
        return Stat(*head, links, max(size - 3, 0), start, offset, xattrs=xattrs)
    if letter == "l":
        links, size = fields
        if not 0 < size <= _MOST_TARGET:
            raise ImageError(f"damaged squashfs: a symbolic link of {size} bytes")
        target = cursor.take(size)
        xattrs = int.from_bytes(cursor.take(4), "little") if kind > EXTENDED else NONE
        return Stat(*head, links, size, target=target, xattrs=xattrs)
    if letter in "bc":
        return Stat(*head, links=fields[0], device=fields[1], xattrs=fields[2] if kind > EXTENDED else NONE)
    return Stat(*head, links=fields[0], xattrs=fields[1] if kind > EXTENDED else NONE)
