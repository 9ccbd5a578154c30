"""Metadata: the 8 KiB blocks in which a squashfs keeps inodes, directories and tables; and a directory's entries."""

import struct
from array import array

from sifmod.image.convert.squashfs.compression import Compress
from sifmod.image.convert.squashfs.superblock import METADATA, STORED_METADATA

_RUN = struct.Struct("<III")  # entries - 1, start of their inodes' block, number that theirs are relative to
_ENTRY = struct.Struct("<HhHH")
_INDEX = struct.Struct("<III")
_MOST = 512  # items of a run: twice the entries under one header

_pack = _ENTRY.pack
_HEADER = struct.Struct("<H")


class MetadataWriter:
    """A table that grows: what is appended to `buffer` must be followed by `flush` when that has METADATA bytes."""

    def __init__(self, compress: Compress) -> None:
        self.buffer = bytearray()  # not yet in a block; never replaced, so that a loop may keep a reference
        self.start = 0  # where the block of `buffer` will begin in the table
        self.table = bytearray()
        self._compress = compress

    def flush(self) -> None:
        """Put all whole blocks into the table."""
        while len(self.buffer) >= METADATA:
            self._put(bytes(self.buffer[:METADATA]))
            del self.buffer[:METADATA]

    def finish(self) -> bytearray:
        self.flush()
        if self.buffer:
            self._put(bytes(self.buffer))
            self.buffer.clear()
        return self.table

    def _put(self, block: bytes) -> None:
        data = self._compress([block])[0]
        if len(data) < len(block):
            self.table += _HEADER.pack(len(data))
        else:
            data = block
            self.table += _HEADER.pack(len(data) | STORED_METADATA)
        self.table += data
        self.start = len(self.table)


def stored(data: bytes) -> bytes:
    """A metadata block that is not compressed."""
    return _HEADER.pack(len(data) | STORED_METADATA) + data


def indexed(data: bytes, compress: Compress, position: int) -> tuple[bytes, int]:
    """Return a table that lies at `position`: its blocks, then their places; and where those places begin."""
    writer = MetadataWriter(compress)
    starts = array("Q")
    for at in range(0, len(data), METADATA):
        starts.append(position + writer.start)
        writer.buffer += data[at : at + METADATA]
        writer.finish()
    return bytes(writer.table) + little(starts), position + len(writer.table)


def little(numbers: "array[int]") -> bytes:
    """The numbers as little-endian bytes, whatever the machine."""
    return struct.pack(f"<{len(numbers)}{numbers.typecode}", *numbers)


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
            self.finish()
            run = self._run
            self._block = place >> 16
            self._base = number
            self._first = name
            self._left = METADATA - len(self._table.buffer) - _RUN.size
            delta = 0
        self._left -= size + 8
        run.append(_pack(place & 0xFFFF, delta, kind, size - 1))
        run.append(name)

    def finish(self) -> None:
        """End the run: put it into the table."""
        if not self._run:
            return
        table = self._table
        if table.start != self._indexed:
            self._indexed = table.start
            self.index += _INDEX.pack(self.size, table.start, len(self._first) - 1) + self._first
            self.count += 1
        data = _RUN.pack(len(self._run) // 2 - 1, self._block, self._base) + b"".join(self._run)
        self._run = []
        self.size += len(data)
        table.buffer += data
        table.flush()
