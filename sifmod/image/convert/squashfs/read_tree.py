"""Read the tree of a squashfs as nodes, for a writer that appends to it."""

from array import array

from sifmod.errors import ImageError
from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.inode import (
    EMPTY,
    OWNER,
    PLACE,
    Content,
    Device,
    Directory,
    Fifo,
    File,
    Node,
    Plain,
    Socket,
    Symlink,
    Xattrs,
)
from sifmod.image.convert.squashfs.blocks import Stat
from sifmod.image.convert.squashfs.pipeline import Written
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.superblock import NONE, SIZE, STORED


def read_tree(reader: SquashfsReader, watch: CpuWatch) -> tuple[Directory, Written]:
    """The tree of a squashfs, and the offsets of its blocks and fragments; no data is read.

    Raises ImageError if it is damaged, has data after its inodes, or more files than fit in memory.
    """
    tree = _Tree(reader)
    root = tree.directory(reader.root)
    directories = {b"": root}
    for run in watch.runs(iter(reader.walk())):
        for path, stat, reference in run:
            above, _, name = path.rpartition(b"/")
            node = tree.node(stat, reference)
            directories[above].entries[name] = node
            if isinstance(node, Directory):
                directories[path] = node
    return root, tree.written


class _Tree:
    """State while the inodes of a squashfs are read."""

    def __init__(self, reader: SquashfsReader) -> None:
        self.written = Written(reader.superblock.block_size)
        self._reader = reader
        self._links: dict[int, Node] = {}  # nodes with several names, by reference
        self._fragments: dict[int, int] = {}  # number in `written`, by number in the base
        self._xattrs: dict[int, Xattrs] = {}  # by number of the set

    def directory(self, stat: Stat) -> Directory:
        return Directory(*self._attributes(stat))

    def node(self, stat: Stat, reference: int) -> Node | Plain:
        if stat.kind == "d":
            return self.directory(stat)
        if stat.links > 1:
            if reference not in self._links:
                self._links[reference] = self._node(stat)
            return self._links[reference]
        small = not stat.size or (stat.fragment != NONE and stat.size < self.written.block_size)
        if stat.kind == "f" and small and stat.xattrs == NONE:
            content = self._content(stat)
            place = PLACE.pack(content.fragment, content.offset, content.size) if content.size else EMPTY
            return OWNER.pack(stat.mode, stat.uid, stat.gid, stat.mtime) + place
        return self._node(stat)

    def _node(self, stat: Stat) -> Node:
        attributes = self._attributes(stat)
        if stat.kind == "f":
            return File(*attributes, self._content(stat))
        if stat.kind == "l":
            return Symlink(*attributes, stat.target)
        if stat.kind in "bc":
            minor = (stat.device & 0xFF) | (stat.device >> 12 & 0xFFF00)
            return Device(*attributes, stat.kind, stat.device >> 8 & 0xFFF, minor)
        return Fifo(*attributes) if stat.kind == "p" else Socket(*attributes)

    def _attributes(self, stat: Stat) -> tuple[int, int, int, int, Xattrs]:
        if stat.xattrs not in self._xattrs:
            self._xattrs[stat.xattrs] = self._reader.xattrs(stat)
        return stat.mode, stat.uid, stat.gid, stat.mtime, self._xattrs[stat.xattrs]

    def _content(self, stat: Stat) -> Content:
        written = self.written
        block, stored, holes, end = len(written.sizes), len(written.starts), 0, stat.start
        for words in self._reader.words(stat):
            written.reserve(len(words))
            written.sizes[-len(words) :] = array("I", words)
            holes += words.count(0)
            end += sum(self._length(word) for word in words)
        if end > stat.start:
            self._check(stat.start, end)
            written.starts.append(stat.start)
        tail = stat.size % written.block_size if stat.fragment != NONE else 0
        if not tail:
            return Content(stat.size, block, stored, sparse=holes * written.block_size)
        if stat.offset + tail > written.block_size:
            raise ImageError(f"damaged squashfs: {tail} bytes at {stat.offset} are outside of their fragment")
        return Content(stat.size, block, stored, self._fragment(stat.fragment), stat.offset, holes * written.block_size)

    def _fragment(self, index: int) -> int:
        if index not in self._fragments:
            start, word = self._reader.blocks.fragment_place(index)
            self._check(start, start + self._length(word))
            self._fragments[index] = len(self.written.fragment_starts)
            self.written.fragment_starts.append(start)
            self.written.fragment_sizes.append(word)
        return self._fragments[index]

    def _length(self, word: int) -> int:
        """The bytes that a block takes in the file, by its size field. Raises ImageError for an invalid one."""
        size = word & (STORED - 1)
        most = self.written.block_size
        if word >> 25 or (word and not size):
            raise ImageError(f"damaged squashfs: a block has the invalid size field {word:#x}")
        if size > most:
            raise ImageError(f"damaged squashfs: a block of {size} bytes, more than the block size {most}")
        return size

    def _check(self, start: int, end: int) -> None:
        if not SIZE <= start <= end <= self._reader.superblock.inode_table:
            raise ImageError(f"damaged squashfs: data from {start} to {end} is outside of its data")
