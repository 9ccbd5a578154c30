"""Blocks: the metadata blocks, tables and fragments of a squashfs, as they are read."""

import os
import struct
from collections import OrderedDict
from typing import BinaryIO

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.compression import decompressor
from sifmod.image.convert.squashfs.superblock import METADATA, SIZE, STORED, STORED_METADATA, parse_superblock

_KEPT = 128  # metadata blocks in memory: 1 MiB
_KEPT_FRAGMENTS = 4


class Blocks:
    """Random access to a squashfs that lies at `offset` of a file and has at most `size` bytes.

    Every method raises ImageError where the image is damaged, and OSError where the file cannot be read.
    """

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file = file  # kept open
        self._fd = file.fileno()
        self._offset = offset
        self.superblock = parse_superblock(os.pread(self._fd, min(SIZE, max(size, 0)), offset), size)
        self._decompress = decompressor(self.superblock.compression)
        self._metadata: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._fragments: OrderedDict[int, bytes] = OrderedDict()

    def raw(self, start: int, size: int) -> bytes:
        """The bytes of the image at a place."""
        if start < 0 or start + size > self.superblock.used:
            raise ImageError(f"damaged squashfs: {size} bytes at {start} lie outside it")
        data = os.pread(self._fd, size, self._offset + start)
        if len(data) != size:
            raise ImageError(f"cut squashfs: it ends before {start + size}")
        return data

    def metadata(self, start: int) -> tuple[bytes, int]:
        """The metadata block at a place, and the place of the next one."""
        known = self._metadata.get(start)
        if known is None:
            header = int.from_bytes(self.raw(start, 2), "little")
            size = header & ~STORED_METADATA
            if not 0 < size <= METADATA:
                raise ImageError(f"damaged squashfs: a metadata block at {start} of {size} bytes")
            data = self.raw(start + 2, size)
            if not header & STORED_METADATA:
                data = self._decompress(data, METADATA)
            if not data:
                raise ImageError(f"damaged squashfs: an empty metadata block at {start}")
            known = self._metadata[start] = data, start + 2 + size
            if len(self._metadata) > _KEPT:
                self._metadata.popitem(last=False)
        return known

    def data(self, start: int, word: int, expected: int) -> bytes:
        """A data block whose size is told by `word`, which must have so many bytes when decompressed."""
        size = word & (STORED - 1)
        if word >> 25 or size > self.superblock.block_size:
            raise ImageError(f"damaged squashfs: a data block's size is {word:#x}")
        data = self.raw(start, size)
        if not word & STORED:
            data = self._decompress(data, self.superblock.block_size)
        if len(data) != expected:
            raise ImageError(f"damaged squashfs: a data block of {len(data)} bytes at {start}, expected {expected}")
        return data

    def fragment(self, index: int) -> bytes:
        """A whole fragment block."""
        known = self._fragments.get(index)
        if known is None:
            if index >= self.superblock.fragments:
                raise ImageError(f"damaged squashfs: fragment {index} of {self.superblock.fragments}")
            entry = self.indexed(self.superblock.fragment_table, index, 16)
            start, word, _ = struct.unpack("<QII", entry)
            size = word & (STORED - 1)
            if word >> 25 or size > self.superblock.block_size:
                raise ImageError(f"damaged squashfs: a fragment's size is {word:#x}")
            known = self.raw(start, size)
            if not word & STORED:
                known = self._decompress(known, self.superblock.block_size)
            self._fragments[index] = known
            if len(self._fragments) > _KEPT_FRAGMENTS:
                self._fragments.popitem(last=False)
        return known

    def indexed(self, table: int, number: int, size: int) -> bytes:
        """Entry `number` of a table whose entries have `size` bytes and whose index begins at `table`."""
        each = METADATA // size
        start = int.from_bytes(self.raw(table + number // each * 8, 8), "little")
        data, _ = self.metadata(start)
        entry = data[number % each * size : (number % each + 1) * size]
        if len(entry) != size:
            raise ImageError(f"damaged squashfs: a table at {table} has no entry {number}")
        return entry


class Cursor:
    """A place in a row of metadata blocks, which moves on as it is read."""

    def __init__(self, blocks: Blocks, start: int, offset: int) -> None:
        self._blocks = blocks
        self.start = start
        self.offset = offset

    def take(self, size: int) -> bytes:
        """The next `size` bytes; callers bound it."""
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
