"""Metadata blocks of 8 KiB for the inodes, directories, extended attributes and tables of a squashfs."""

import struct
from array import array

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.squashfs.compression import Compress
from sifmod.image.convert.squashfs.superblock import (
    METADATA,
    NONE,
    NOWHERE,
    STORED_METADATA,
    XATTR_NAME,
    XATTR_PREFIXES,
    XATTR_VALUE,
)

_RUN = struct.Struct("<III")  # entries - 1, start of their inodes' block, base of their inode numbers
_ENTRY = struct.Struct("<HhHH")
_INDEX = struct.Struct("<III")
_MOST = 512  # maximum items of a run: twice the entries under one header

_pack = _ENTRY.pack
_HEADER = struct.Struct("<H")


class MetadataWriter:
    """A growing table: append to `buffer`, then call `flush` once it has METADATA bytes."""

    def __init__(self, compress: Compress) -> None:
        self.buffer = bytearray()  # not yet in a block; never replaced, so loops may keep a reference
        self.start = 0  # offset in the table of the block for `buffer`
        self.table = bytearray()
        self._compress = compress

    def flush(self) -> None:
        """Move complete blocks to the table."""
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
    """`data` as a metadata block that is not compressed."""
    return _HEADER.pack(len(data) | STORED_METADATA) + data


def indexed(data: bytes, compress: Compress, position: int) -> tuple[bytes, int]:
    """Return a table at `position`: its blocks, then their offsets; and the position of these offsets."""
    writer = MetadataWriter(compress)
    starts = array("Q")
    for at in range(0, len(data), METADATA):
        starts.append(position + writer.start)
        writer.buffer += data[at : at + METADATA]
        writer.finish()
    return bytes(writer.table) + little(starts), position + len(writer.table)


def little(numbers: "array[int]") -> bytes:
    """The numbers as little-endian bytes on any machine."""
    return struct.pack(f"<{len(numbers)}{numbers.typecode}", *numbers)


class ListingWriter:
    """Writes directory entries in the order of their names.

    Entries form runs under a header. A run that would cross into the next metadata block ends there, and the first run
    of each further block is added to the index.
    """

    def __init__(self, directories: MetadataWriter) -> None:
        self._table = directories
        self.start = directories.start
        self.offset = len(directories.buffer)
        self.size = 0  # bytes
        self.index = b""
        self.count = 0  # entries of the index
        self._indexed = self.start  # block of the last run
        self._run: list[bytes] = []
        self._first = b""
        self._block = -1  # the block of the inodes in the run
        self._base = 0
        self._left = 0  # bytes left in the metadata block

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
        """End the run and add it to the table."""
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


class XattrTable:
    """Sets of extended attributes, numbered in order."""

    def __init__(self, compress: Compress) -> None:
        self._compress = compress
        self._pairs = MetadataWriter(compress)
        self._numbers: dict[Xattrs, int] = {(): NONE}
        self._lookup = bytearray()

    def number(self, xattrs: Xattrs) -> int:
        """The number of the set `xattrs`, for an inode; raises ImageError for an attribute that cannot be stored."""
        known = self._numbers.get(xattrs)
        if known is not None:
            return known
        number = self._numbers[xattrs] = len(self._numbers) - 1
        reference = self._pairs.start << 16 | len(self._pairs.buffer)
        packed = b"".join(_packed(name, value) for name, value in xattrs)
        listed = sum(len(name) + 1 for name, _ in xattrs)
        self._lookup += struct.pack("<QII", reference, len(xattrs), listed)
        self._pairs.buffer += packed
        self._pairs.flush()
        return number

    def finish(self, position: int) -> tuple[bytes, int]:
        """Return the table for `position`, and the offset of its header; empty and NOWHERE without sets."""
        if not self._lookup:
            return b"", NOWHERE
        pairs = bytes(self._pairs.finish())
        after = position + len(pairs)
        lookup, places = indexed(bytes(self._lookup), self._compress, after)
        header = struct.pack("<QII", position, len(self._lookup) // 16, 0)
        blocks, starts = lookup[: places - after], lookup[places - after :]
        return pairs + blocks + header + starts, places


def _packed(name: bytes, value: bytes) -> bytes:
    for number, prefix in enumerate(XATTR_PREFIXES):
        if name.startswith(prefix) and len(prefix) < len(name) <= XATTR_NAME and len(value) <= XATTR_VALUE:
            short = name[len(prefix) :]
            return struct.pack("<HH", number, len(short)) + short + struct.pack("<I", len(value)) + value
    raise ImageError(f"an extended attribute {name[:80]!r} of {len(value)} bytes cannot be stored in a squashfs")
