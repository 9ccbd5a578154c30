"""Read any squashfs 4.0 (gzip, xz, lz4 or zstd) without mounting it."""

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Iterator
from typing import BinaryIO

from sifmod.config.limits import limits, raised
from sifmod.errors import ImageError
from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.squashfs.blocks import Blocks, Cursor, Stat, read_stat
from sifmod.image.convert.squashfs.compression import Compression, of_squashfs
from sifmod.image.convert.squashfs.superblock import (
    NONE,
    NOWHERE,
    OPTIONS,
    SIZE,
    XATTR_NAME,
    XATTR_PREFIXES,
    XATTR_VALUE,
)

_FREE = 16 << 30  # bytes of data that any squashfs may have
_UNIT = 1 << 20  # a multiple of every block size
_ZEROS = bytes(_UNIT)
Path = str | bytes
"""A path inside the image, with or without a leading slash."""

_MOST_LISTING = 64 << 20  # bytes of one directory
_MOST_ENTRIES = 1 << 20
_MOST_PATH = 1 << 16  # bytes, of a path found by walking
_MOST_LINKS = 40  # maximum symbolic links, like Linux
_MOST_XATTRS = 4096  # of one file
_ELSEWHERE = 0x100  # in an extended attribute's type: a reference to its value follows
_WORDS = 2048  # entries of a block list to read at once


class SquashfsReader:
    """Reads the squashfs of at most `size` bytes at `offset` of a file, which must stay open.

    All methods raise ImageError if the image is damaged or unsupported, and OSError if the file is unreadable. Memory
    is bounded for any image.
    """

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self.blocks = Blocks(file, offset, size)
        self.superblock = superblock = self.blocks.superblock
        ids = b"".join(self.blocks.indexed(superblock.id_table, index, 4) for index in range(superblock.ids))
        self._ids = struct.unpack(f"<{superblock.ids}I", ids)
        self._unpacked = 0
        self.root = self.stat(superblock.root)
        if self.root.kind != "d":
            raise ImageError("damaged squashfs: its root is not a directory")

    def stat(self, reference: int) -> Stat:
        """The inode at a reference from `entries` or `walk`."""
        return read_stat(self.blocks, self._ids, reference)

    def lookup(self, path: Path, follow: bool = True) -> Stat | None:
        """The inode at a path, or None. Symbolic links are followed inside the image.

        The last component is followed if `follow`. With more than 40 links on the way, as in a loop, None.
        """
        way = self.way(path, follow)
        return way[-1][1] if way else None

    def way(self, path: Path, follow: bool = True) -> list[tuple[bytes, Stat]]:
        """The names and inodes from the root to the inode that `lookup` returns; empty if there is none."""
        todo = _parts(path)[::-1]
        way = [(b"", self.root)]
        links = 0
        while todo:
            name, above = todo.pop(), way[-1][1]
            if above.kind != "d":
                return []
            if name == b"..":
                way = way[:-1] or way
                continue
            found = self.find(above, name)
            if found is None:
                return []
            if found.kind == "l" and (todo or follow):
                links += 1
                if links > _MOST_LINKS:
                    return []
                way = way[:1] if found.target.startswith(b"/") else way
                todo += _parts(found.target)[::-1]
            else:
                way.append((name, found))
        return way

    def read(self, path: Path, limit: int) -> bytes:
        """The first `limit` bytes of a regular file. Raises ImageError if the image has no such file."""
        found = self.lookup(path)
        if found is None or found.kind != "f":
            raise ImageError(f"the image has no regular file {os.fsdecode(path)!r}")
        return self.head(found, limit)

    def head(self, file: Stat, limit: int) -> bytes:
        """The first `limit` bytes of a file."""
        pieces = []
        for piece in self.data(file):
            data = bytes(min(piece, limit)) if isinstance(piece, int) else piece[:limit]
            pieces.append(data)
            limit -= len(data)
            if not limit:
                break
        return b"".join(pieces)

    def entries(self, directory: Stat) -> Iterator[tuple[bytes, int]]:
        """Names in a directory, sorted, each with the reference of its inode."""
        if directory.size > _MOST_LISTING:
            raise ImageError(f"a directory of {directory.size} bytes is too large")
        cursor = Cursor(self.blocks, self.blocks.superblock.directory_table + directory.start, directory.offset)
        left, before, total = directory.size, b"", 0
        while left > 0:
            count, start, _ = struct.unpack("<III", cursor.take(12))
            left -= 12
            total += count + 1
            if count >= 256 or total > _MOST_ENTRIES:
                raise ImageError(f"damaged squashfs: a directory of {total} entries, {count + 1} in one run")
            for _ in range(count + 1):
                offset, _, _, length = struct.unpack("<HhHH", cursor.take(8))
                if length >= 256:
                    raise ImageError(f"damaged squashfs: a name of {length + 1} bytes")
                name = cursor.take(length + 1)
                left -= 9 + length
                if name <= before or b"/" in name or b"\0" in name or name in (b".", b".."):
                    raise ImageError(f"damaged squashfs: a directory has {name!r} after {before!r}")
                yield name, start << 16 | offset
                before = name
        if left:
            raise ImageError("damaged squashfs: a directory is shorter than in its inode")

    def find(self, directory: Stat, wanted: bytes) -> Stat | None:
        """The inode of the entry `wanted` in a directory, or None."""
        for name, reference in self.entries(directory):
            if name >= wanted:
                return self.stat(reference) if name == wanted else None
        return None

    def walk(self, enter: Callable[[bytes], bool] = lambda _: True) -> Iterator[tuple[bytes, Stat, int]]:
        """Everything except the root: path, inode and its reference; directories before their content, names sorted.

        A file with two names is listed twice, with one reference. Directories rejected by `enter` are not entered.
        """
        seen = {self.blocks.superblock.root}
        stack = [(b"", self.entries(self.root))]
        while stack:
            above, entries = stack[-1]
            for name, reference in entries:
                path = above + name
                found = self.stat(reference)
                yield path, found, reference
                if found.kind == "d" and enter(path):
                    if reference in seen or len(path) > _MOST_PATH:
                        raise ImageError(
                            f"damaged squashfs: directories form a loop, or are too deep, at {path[:200]!r}"
                        )
                    seen.add(reference)
                    stack.append((path + b"/", self.entries(found)))
                    break
            else:
                stack.pop()

    def data(self, file: Stat) -> Iterator[bytes | int]:
        """A file's data in pieces: bytes, or the size of a hole."""
        block_size = self.blocks.superblock.block_size
        left, position = file.size, file.start
        tail = left % block_size if file.fragment != NONE else 0
        for words in self.words(file):
            if not any(words):
                hole = min(left - tail, len(words) * block_size)
                yield hole
                left -= hole
                continue
            for word in words:
                size = min(block_size, left)
                yield self.counted(self.blocks.data(position, word, size)) if word else size
                position += word & 0xFFFFFF
                left -= size
        if tail:
            piece = self.blocks.fragment(file.fragment)[file.offset : file.offset + tail]
            if len(piece) != tail:
                raise ImageError(f"damaged squashfs: {tail} bytes at {file.offset} lie outside their fragment")
            yield self.counted(piece)

    def counted(self, data: bytes) -> bytes:
        """The data, counted: files can share blocks, and a few kilobytes describe a hole of a terabyte."""
        self._unpacked += len(data)
        most = limits().layer_ratio
        if self._unpacked > _FREE and self._unpacked > most * self.superblock.used:
            raise ImageError(f"the image's files have over {most} times its size{raised('layer_ratio')}")
        return data

    def words(self, file: Stat) -> Iterator[tuple[int, ...]]:
        """The words with the sizes of a file's blocks, in batches; data in a fragment is in no block."""
        blocks, rest = divmod(file.size, self.superblock.block_size)
        count = blocks + (rest > 0 and file.fragment == NONE)
        cursor = Cursor(self.blocks, file.list_start, file.list_offset)
        while count:
            words = struct.unpack(f"<{min(count, _WORDS)}I", cursor.take(4 * min(count, _WORDS)))
            count -= len(words)
            yield words

    def compression(self) -> Compression:
        """The compression for adding blocks to this squashfs, at sifmod's default level."""
        block = self.superblock
        options = self.blocks.metadata(SIZE)[0] if block.flags & OPTIONS else b""
        return of_squashfs(block.compression, options, block.block_size)

    def xattrs(self, inode: Stat) -> Xattrs:
        """The extended attributes of `inode`, sorted by name; () without any."""
        table = self.blocks.superblock.xattr_table
        if inode.xattrs == NONE or table == NOWHERE:
            return ()
        return read_xattrs(self.blocks, inode.xattrs)


def _parts(path: Path) -> list[bytes]:
    return [part for part in os.fsencode(path).split(b"/") if part not in (b"", b".")]


def tree_digest(tree: SquashfsReader, left_out: Collection[int] = ()) -> str:
    """A digest of the content, independent of compression, block size and order; `left_out`: numbers of omitted inodes.

    A sha256 over a record for each name in `walk`'s order, the root first: path, type, mode, owners, mtime, extended
    attributes and, by type, the size and digest of the data, the link's target or the device's numbers. Further names
    of a file are recorded as such. Data is hashed in units of 1 MiB, skipping those of zeros: holes are zeros. Raises
    the reader's errors.
    """
    whole = hashlib.sha256(b"sifmod squashfs tree 1\n")
    whole.update(_record(tree, b"", tree.root, b""))
    names: dict[int, int] = {}  # index of the first name of files with several
    for index, (path, stat, reference) in enumerate(tree.walk()):
        if stat.number in left_out:
            continue
        if stat.kind != "d" and stat.links > 1 and names.setdefault(reference, index) != index:
            whole.update(struct.pack("<IcQ", len(path), b"h", names[reference]) + path)
            continue
        data = _data(tree, stat) if stat.kind == "f" else b""
        whole.update(_record(tree, path, stat, data))
    return whole.hexdigest()


def _record(tree: SquashfsReader, path: bytes, stat: Stat, data: bytes) -> bytes:
    xattrs = b"".join(struct.pack("<II", len(n), len(v)) + n + v for n, v in tree.xattrs(stat))
    size = 0 if stat.kind == "d" else stat.size  # a directory's size depends on its layout
    head = struct.pack("<IcIIIIQ", len(path), stat.kind.encode(), stat.mode, stat.uid, stat.gid, stat.mtime, size)
    lengths = struct.pack("<III", stat.device, len(stat.target), len(xattrs))
    return head + lengths + path + stat.target + xattrs + data


def _data(tree: SquashfsReader, stat: Stat) -> bytes:
    digest = hashlib.sha256()
    unit = bytearray()
    index = 0
    for piece in tree.data(stat):
        if isinstance(piece, bytes):
            unit += piece  # a block never crosses the end of a unit
            hole = 0
        else:
            room = min(piece, _UNIT - len(unit))
            unit += _ZEROS[:room]
            hole = piece - room
        if len(unit) == _UNIT:
            _put(digest, unit, index)
            index += 1 + hole // _UNIT
            unit += _ZEROS[: hole % _UNIT]
    _put(digest, unit, index)
    return digest.digest()


def _put(digest: "hashlib._Hash", unit: bytearray, index: int) -> None:
    """Hash a unit if it has data, and empty it."""
    if not _ZEROS.startswith(unit):
        digest.update(struct.pack("<Q", index))
        digest.update(unit)
    unit.clear()


def read_xattrs(blocks: Blocks, number: int) -> Xattrs:
    """The set `number` of extended attributes, sorted by name. Raises ImageError if it is damaged or too large."""
    table = blocks.superblock.xattr_table
    start, sets, _ = struct.unpack("<QII", blocks.raw(table, 16))
    if number >= sets:
        raise ImageError(f"damaged squashfs: set {number} of {sets} of extended attributes")
    reference, count, _ = struct.unpack("<QII", blocks.indexed(table + 16, number, 16))
    if count > _MOST_XATTRS:
        raise ImageError(f"damaged squashfs: {count} extended attributes of one file")
    cursor = Cursor(blocks, start + (reference >> 16), reference & 0xFFFF)
    return tuple(sorted(_read_xattr(blocks, cursor, start) for _ in range(count)))


def _read_xattr(blocks: Blocks, cursor: Cursor, start: int) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("<HH", cursor.take(4))
    if kind & 0xFF >= len(XATTR_PREFIXES) or length > XATTR_NAME:
        raise ImageError(f"damaged squashfs: an extended attribute of type {kind} with a name of {length} bytes")
    name = XATTR_PREFIXES[kind & 0xFF] + cursor.take(length)
    size = int.from_bytes(cursor.take(4), "little")
    if kind & _ELSEWHERE:
        if size != 8:
            raise ImageError(f"damaged squashfs: the reference to an extended attribute's value has {size} bytes")
        place = int.from_bytes(cursor.take(8), "little")
        cursor = Cursor(blocks, start + (place >> 16), place & 0xFFFF)
        size = int.from_bytes(cursor.take(4), "little")
    if size > XATTR_VALUE:
        raise ImageError(f"damaged squashfs: an extended attribute of {size} bytes")
    return name, cursor.take(size)
