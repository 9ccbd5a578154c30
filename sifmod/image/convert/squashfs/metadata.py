"""Metadata: the 8 KiB blocks in which a squashfs keeps its inodes, directories and tables."""

import struct
from array import array

from sifmod.image.convert.squashfs.compression import Compress
from sifmod.image.convert.squashfs.superblock import METADATA, STORED_METADATA

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
        """Put the rest into the table and return it."""
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
