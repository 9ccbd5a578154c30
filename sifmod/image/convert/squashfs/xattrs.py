"""Xattrs: the table of extended attributes; every distinct set of them is stored once."""

import struct

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.squashfs.blocks import Blocks, Cursor
from sifmod.image.convert.squashfs.compression import Compress
from sifmod.image.convert.squashfs.metadata import MetadataWriter, indexed
from sifmod.image.convert.squashfs.superblock import NONE, NOWHERE

PREFIXES = (b"user.", b"trusted.", b"security.")
"""In the order of their numbers."""

_MOST_VALUE = 65536  # bytes, Linux's own limit
_MOST_NAME = 255
_MOST_PAIRS = 4096  # of one file
_ELSEWHERE = 0x100  # in a pair's type: what follows is the place of the value


class XattrTable:
    """Sets of extended attributes, numbered as they come."""

    def __init__(self, compress: Compress) -> None:
        self._compress = compress
        self._pairs = MetadataWriter(compress)
        self._numbers: dict[Xattrs, int] = {(): NONE}
        self._lookup = bytearray()

    def number(self, xattrs: Xattrs) -> int:
        """The number of a set, for an inode; raises ImageError for what squashfs or Linux cannot hold."""
        known = self._numbers.get(xattrs)
        if known is not None:
            return known
        number = self._numbers[xattrs] = len(self._numbers) - 1
        reference = self._pairs.start << 16 | len(self._pairs.buffer)
        packed = b"".join(_pack(name, value) for name, value in xattrs)
        listed = sum(len(name) + 1 for name, _ in xattrs)
        self._lookup += struct.pack("<QII", reference, len(xattrs), listed)
        self._pairs.buffer += packed
        self._pairs.flush()
        return number

    def finish(self, position: int) -> tuple[bytes, int]:
        """Return the table as it lies at `position`, and the place of its header; nothing and NOWHERE without sets."""
        if not self._lookup:
            return b"", NOWHERE
        pairs = bytes(self._pairs.finish())
        after = position + len(pairs)
        lookup, places = indexed(bytes(self._lookup), self._compress, after)
        header = struct.pack("<QII", position, len(self._lookup) // 16, 0)
        blocks, starts = lookup[: places - after], lookup[places - after :]
        return pairs + blocks + header + starts, places


def _pack(name: bytes, value: bytes) -> bytes:
    for number, prefix in enumerate(PREFIXES):
        if name.startswith(prefix) and len(prefix) < len(name) <= _MOST_NAME and len(value) <= _MOST_VALUE:
            short = name[len(prefix) :]
            return struct.pack("<HH", number, len(short)) + short + struct.pack("<I", len(value)) + value
    raise ImageError(f"an extended attribute {name[:80]!r} of {len(value)} bytes cannot be stored in a squashfs")


def read_xattrs(blocks: Blocks, number: int) -> Xattrs:
    """Read one set, sorted by name. Raises ImageError where it is damaged or larger than Linux allows."""
    table = blocks.superblock.xattr_table
    start, sets, _ = struct.unpack("<QII", blocks.raw(table, 16))
    if number >= sets:
        raise ImageError(f"damaged squashfs: set {number} of {sets} of extended attributes")
    reference, count, _ = struct.unpack("<QII", blocks.indexed(table + 16, number, 16))
    if count > _MOST_PAIRS:
        raise ImageError(f"damaged squashfs: {count} extended attributes of one file")
    cursor = Cursor(blocks, start + (reference >> 16), reference & 0xFFFF)
    return tuple(sorted(_read(blocks, cursor, start) for _ in range(count)))


def _read(blocks: Blocks, cursor: Cursor, start: int) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("<HH", cursor.take(4))
    if kind & 0xFF >= len(PREFIXES) or length > _MOST_NAME:
        raise ImageError(f"damaged squashfs: an extended attribute of type {kind} with a name of {length} bytes")
    name = PREFIXES[kind & 0xFF] + cursor.take(length)
    size = int.from_bytes(cursor.take(4), "little")
    if kind & _ELSEWHERE:
        if size != 8:
            raise ImageError(f"damaged squashfs: the place of an extended attribute's value has {size} bytes")
        place = int.from_bytes(cursor.take(8), "little")
        cursor = Cursor(blocks, start + (place >> 16), place & 0xFFFF)
        size = int.from_bytes(cursor.take(4), "little")
    if size > _MOST_VALUE:
        raise ImageError(f"damaged squashfs: an extended attribute of {size} bytes")
    return name, cursor.take(size)
