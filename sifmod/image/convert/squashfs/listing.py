"""Listing: the entries of one directory in the directory table, with the index that finds names in a large one."""

import struct

from sifmod.image.convert.squashfs.metadata import MetadataWriter
from sifmod.image.convert.squashfs.superblock import METADATA

_HEADER = struct.Struct("<III")  # entries - 1, start of their inodes' block, number that theirs are relative to
_ENTRY = struct.Struct("<HhHH")
_INDEX = struct.Struct("<III")
_MOST = 512  # items of a run: twice the entries under one header

_pack = _ENTRY.pack


class ListingWriter:
    """Takes entries in the order of their names.

    Entries come in runs under a header. A run that would reach into the next metadata block is the last one in its
    block, and the first run of each further block goes into the index.
    """

    def __init__(self, directories: MetadataWriter) -> None:
        self._table = directories
        self.start = directories.start
        self.offset = len(directories.buffer)
        self.size = 0  # bytes
        self.index = b""
        self.count = 0  # of the index
        self._indexed = self.start  # block of the last run
        self._run: list[bytes] = []
        self._first = b""
        self._block = -1  # of the inodes in the run
        self._base = 0
        self._left = 0  # bytes until the end of the metadata block

    def add(self, name: bytes, place: int, number: int, kind: int) -> None:
        """Add an entry: the reference, number and basic type of its inode."""
        run = self._run
        delta = number - self._base
        size = len(name)
        if place >> 16 != self._block or self._left <= 0 or len(run) >= _MOST or not -32768 <= delta < 32768:
            self._end()
            run = self._run
            self._block = place >> 16
            self._base = number
            self._first = name
            self._left = METADATA - len(self._table.buffer) - _HEADER.size
            delta = 0
        self._left -= size + 8
        run.append(_pack(place & 0xFFFF, delta, kind, size - 1))
        run.append(name)

    def finish(self) -> None:
        """End the listing."""
        self._end()

    def _end(self) -> None:
        """Put the run into the table."""
        if not self._run:
            return
        table = self._table
        if table.start != self._indexed:
            self._indexed = table.start
            self.index += _INDEX.pack(self.size, table.start, len(self._first) - 1) + self._first
            self.count += 1
        data = _HEADER.pack(len(self._run) // 2 - 1, self._block, self._base) + b"".join(self._run)
        self._run = []
        self.size += len(data)
        table.buffer += data
        table.flush()
