"""Superblock: the first 96 bytes of a squashfs 4.0, and the constants of the format."""

import struct
from dataclasses import dataclass

from sifmod.errors import ImageError

MAGIC = b"hsqs"
COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
SIZE = 96  # bytes
BLOCK = 1 << 17  # bytes in a data block, as written here
METADATA = 8192  # bytes in a metadata block, before compression
NOWHERE = 0xFFFFFFFFFFFFFFFF  # start of a missing table
NONE = 0xFFFFFFFF  # no fragment, no extended attributes
STORED = 1 << 24  # flag in a block's size: not compressed
STORED_METADATA = 1 << 15  # the same flag in a metadata block's header
ALIGNMENT = 4096  # file system sizes are multiples of it, for loop devices

EXPORTABLE = 0x80
NO_XATTRS = 0x200
OPTIONS = 0x400  # a block of compressor options follows the superblock

# types of inodes; the extended form of each is 7 more
DIRECTORY, FILE, SYMLINK, BLOCK_DEVICE, CHARACTER_DEVICE, FIFO, SOCKET = 1, 2, 3, 4, 5, 6, 7
EXTENDED = 7
KINDS = ("", "d", "f", "l", "b", "c", "p", "s")
"""A letter for each basic type, as in find(1)."""

XATTR_PREFIXES = (b"user.", b"trusted.", b"security.")
"""Prefixes of extended attributes, in the order of their numbers."""
XATTR_NAME, XATTR_VALUE = 255, 65536  # bytes, Linux's own limits
_LAYOUT = struct.Struct("<4sIIIIHHHHHHQQQQQQQQ")


@dataclass(frozen=True)
class Superblock:
    """The fields of a superblock. Offsets are in bytes from the start of the file system."""

    inodes: int
    time: int  # seconds since 1970
    fragments: int
    compression: int
    flags: int
    ids: int
    root: int  # reference of its inode
    used: int  # bytes, without padding
    id_table: int
    xattr_table: int
    inode_table: int
    directory_table: int
    fragment_table: int
    export_table: int
    block_size: int = BLOCK

    def pack(self) -> bytes:
        head = (MAGIC, self.inodes, self.time, self.block_size, self.fragments, self.compression)
        middle = (self.block_size.bit_length() - 1, self.flags, self.ids, 4, 0, self.root, self.used)
        tables = (self.id_table, self.xattr_table, self.inode_table, self.directory_table)
        return _LAYOUT.pack(*head, *middle, *tables, self.fragment_table, self.export_table)


def parse_superblock(data: bytes, size: int) -> Superblock:
    """Read the superblock of a file system with at most `size` bytes.

    Raises ImageError if it is not squashfs 4.0, or its numbers contradict each other or the size.
    """
    if len(data) < SIZE or data[:4] != MAGIC:
        raise ImageError("not a squashfs file system: its magic number is missing")
    (_, inodes, time, block_size, fragments, compression, log, flags, ids, major, minor, *rest) = _LAYOUT.unpack(
        data[:SIZE]
    )
    if (major, minor) != (4, 0):
        raise ImageError(f"squashfs version {major}.{minor} is not supported, only 4.0")
    root, used, id_table, xattr_table, inode_table, directory_table, fragment_table, export_table = rest
    if not 12 <= log <= 20 or block_size != 1 << log:
        raise ImageError(f"damaged squashfs: its block size is {block_size}, its logarithm {log}")
    if used > size:
        raise ImageError(f"truncated squashfs: it should have {used} bytes, but there are {size}")
    if not SIZE <= inode_table < directory_table < used or not SIZE <= id_table < used:
        raise ImageError("damaged squashfs: its tables are outside of it")
    return Superblock(
        inodes, time, fragments, compression, flags, ids, root, used,
        id_table, xattr_table, inode_table, directory_table, fragment_table, export_table, block_size,
    )  # fmt: skip
