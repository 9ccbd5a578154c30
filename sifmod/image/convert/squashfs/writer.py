"""Write a squashfs 4.0 into a file at an offset, from the data of its files and a tree of nodes."""

import struct
from array import array
from typing import BinaryIO, Self

from sifmod.image.convert.inode import EMPTY, NO_FRAGMENT, OWNER, PLACE, Content, Directory, File, Plain, content_of
from sifmod.image.convert.squashfs import superblock
from sifmod.image.convert.squashfs.compression import Buffer, Compression
from sifmod.image.convert.squashfs.metadata import indexed, little, stored
from sifmod.image.convert.squashfs.pipeline import Block, Pipeline, Written
from sifmod.image.convert.squashfs.superblock import (
    ALIGNMENT,
    BLOCK,
    EXPORTABLE,
    NO_XATTRS,
    NOWHERE,
    OPTIONS,
    Superblock,
)
from sifmod.image.convert.squashfs.tables import Survey, TreeWriter, survey

ZEROS = bytes(BLOCK)

_place = PLACE.pack


class DataWriter:
    """Accepts the data of files one after the other, in any order.

    Data must not be changed afterwards. Raises errors of the file system, also for earlier data, and ImageError for
    more than 4 TiB.
    """

    BLOCK = BLOCK

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._block = BLOCK  # bytes
        self._zeros = ZEROS
        self._blocks: list[Block] = []  # the current batch
        self._places: list[int] = []
        self._fragment = 0  # index of the current fragment, and its content
        self._pieces: list[bytes] = []
        self._filled = 0
        self._size = 0  # size of the current file, and its data that is not yet in a block
        self._open: list[Buffer] = []
        self._open_size = 0
        self._first = (0, 0)
        self._stored = 0  # number of blocks that are not holes
        self._holes = 0  # bytes in holes of the current file

    def add(self, data: bytes) -> Content:
        """Add a whole file; returns its place. One of at least a block's size gets its own blocks, as with `start`."""
        if len(data) < self._block:
            return content_of(self.small(data))
        self.start()
        self.write(data)
        return self.finish()

    def small(self, data: bytes) -> bytes:
        """Add a whole file that is smaller than a block; returns its PLACE."""
        size = len(data)
        offset = self._filled
        end = offset + size
        if end > self._block:
            self._seal_fragment()
            offset, end = 0, size
        elif not size:
            return EMPTY
        self._filled = end
        self._pieces.append(data)
        return _place(self._fragment, offset, size)

    def start(self) -> None:
        """Start a file of any size; add nothing else before its `finish`."""
        self._first = (len(self._pipeline.written.sizes), self._stored)
        self._size = self._holes = 0
        self._open, self._open_size = [], 0

    def write(self, chunk: Buffer) -> None:
        """Write the next bytes of the file."""
        size = len(chunk)
        self._size += size
        taken = 0
        if self._open_size:
            taken = min(size, self._block - self._open_size)
            self._extend(chunk if taken == size else memoryview(chunk)[:taken], taken)
        if size - taken >= self._block:
            view = memoryview(chunk)
            while size - taken >= self._block:
                self._whole(view[taken : taken + self._block])
                taken += self._block
        if taken < size:
            self._extend(memoryview(chunk)[taken:], size - taken)

    def hole(self, size: int) -> None:
        """Make the next `size` bytes of the file zeros; takes hardly any time or memory."""
        self._size += size
        if self._open_size:
            taken = min(size, self._block - self._open_size)
            self._extend(memoryview(self._zeros)[:taken], taken)
            size -= taken
        self._skip(size // self._block)
        if size % self._block:
            self._extend(memoryview(self._zeros)[: size % self._block], size % self._block)

    def finish(self) -> Content:
        """End the file; returns its place."""
        if self._size < self._block:
            return self.add(b"".join(self._open))
        if self._open_size:
            self._seal(b"".join(self._open))
            self._open, self._open_size = [], 0
        return Content(self._size, *self._first, sparse=self._holes)

    def flush(self) -> None:
        """Submit all blocks that wait for a full batch."""
        if self._filled:
            self._seal_fragment()
        if self._blocks:
            self._submit()

    def _extend(self, piece: Buffer, size: int) -> None:
        """Add a piece to the current block, which has space for it."""
        if size:
            self._open.append(piece)
            self._open_size += size
        if self._open_size == self._block:
            whole = b"".join(self._open)
            self._open, self._open_size = [], 0
            self._whole(memoryview(whole))

    def _whole(self, block: memoryview) -> None:
        """Write one block of BLOCK bytes, which may be a hole."""
        if not block[0] and not block[-1] and bytes(block) == self._zeros:
            self._skip(1)
        else:
            self._seal(block)

    def _skip(self, count: int) -> None:
        self._pipeline.written.reserve(count)
        self._holes += count * self._block

    def _seal(self, block: Buffer) -> None:
        sizes = self._pipeline.written.sizes
        self._pipeline.written.reserve(1)
        self._stored += 1
        self._blocks.append(block)
        self._places.append(len(sizes) - 1)
        if len(self._blocks) >= self._pipeline.batch:
            self._submit()

    def _seal_fragment(self) -> None:
        if self._pieces:
            self._blocks.append(self._pieces)
            self._places.append(~self._fragment)
            self._fragment += 1
            self._pieces, self._filled = [], 0
        if len(self._blocks) >= self._pipeline.batch:
            self._submit()

    def _submit(self) -> None:
        blocks, places = self._blocks, self._places
        self._blocks, self._places = [], []
        self._pipeline.submit(blocks, places)


class SquashfsWriter(DataWriter):
    """A context manager: first write all data (`DataWriter`), then the tree (`close`).

    The same calls give the same bytes for any `processors` (compression threads in addition to the caller's). `file` is
    written from `offset` on, in order; the superblock comes last, so that a truncated file is not mistaken for an
    image. Its threads end on exit, also after an exception. Raises OSError.
    """

    def __init__(self, file: BinaryIO, offset: int, compression: Compression, processors: int, epoch: int) -> None:
        pipeline = Pipeline(file, offset, compression, processors)
        super().__init__(pipeline)
        self._compression = compression
        self._epoch = min(max(epoch, 0), 0xFFFFFFFF)
        self._options = OPTIONS, stored(compression.options)
        pipeline.position = superblock.SIZE + len(self._options[1])

    def go_on(self, base: Superblock, written: Written) -> None:
        """Continue the squashfs `base`; call this before adding data.

        The file has all bytes of `base` before its inode table, and `written` describes the blocks in them.
        """
        self._pipeline.written, self._pipeline.position = written, base.inode_table
        self._pipeline.batch = max(1, self._pipeline.batch * BLOCK // base.block_size)
        self._options = base.flags & OPTIONS, b""
        self._block, self._zeros = base.block_size, bytes(base.block_size)
        self._stored, self._fragment = len(written.starts), len(written.fragment_starts)

    def __enter__(self) -> Self:
        self._pipeline.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._pipeline.__exit__(kind, *rest)

    def close(self, root: Directory) -> int:
        """Write what is left and all tables; return the size in bytes, padded to a multiple of 4096.

        Raises ImageError if the tree exceeds limits of squashfs or Linux: over 65535 ids, names over 255 bytes.
        """
        self.flush()
        seen = survey(root)
        self._pipeline.finish()
        written = self._pipeline.written
        if len(written.fragment_starts) > seen.inodes:
            _drop_unused(seen, written)
        tree = TreeWriter(seen, written, self._compression.compressor())
        reference = tree.write()
        return self._tables(tree, reference)

    def _tables(self, tree: TreeWriter, root: int) -> int:
        append, written = self._pipeline.append, self._pipeline.written
        inodes = append(tree.inodes.finish())
        directories = append(tree.directories.finish())
        places = zip(written.fragment_starts, written.fragment_sizes, strict=True)
        fragments = self._indexed(b"".join(struct.pack("<QII", start, size, 0) for start, size in places))
        export = self._indexed(little(tree.places))
        ids = self._indexed(struct.pack(f"<{len(tree.ids)}I", *tree.ids))
        xattrs, xattr_table = tree.xattrs.finish(self._pipeline.position)
        append(xattrs)
        used = self._pipeline.position
        append(bytes(-used % ALIGNMENT))
        flags = EXPORTABLE | self._options[0] | (NO_XATTRS if xattr_table == NOWHERE else 0)
        block = Superblock(
            len(tree.places), self._epoch, len(written.fragment_starts), self._compression.number, flags,
            len(tree.ids), root, used, ids, xattr_table, inodes, directories, fragments, export, self._block,
        )  # fmt: skip
        size = self._pipeline.position
        self._pipeline.position = 0
        append(block.pack() + self._options[1])
        self._pipeline.position = size
        return size

    def _indexed(self, data: bytes) -> int:
        table, place = indexed(data, self._compression.compressor(), self._pipeline.position)
        self._pipeline.append(table)
        return place


def _drop_unused(seen: Survey, written: Written) -> None:
    """Drop unused fragments from the table: unsquashfs refuses more fragments than inodes."""
    files = {id(n): n for d in seen.directories for n in d.entries.values() if isinstance(n, File)}
    plain = [(d.entries, name, n) for d in seen.directories for name, n in d.entries.items() if isinstance(n, Plain)]
    places = [
        (entries, name, node[: OWNER.size], *PLACE.unpack_from(node, OWNER.size)) for entries, name, node in plain
    ]
    used = {file.content.fragment for file in files.values() if file.content.fragment >= 0}
    used |= {fragment for *_, fragment, _, _ in places if fragment != NO_FRAGMENT}
    numbers = {old: new for new, old in enumerate(sorted(used))} | {NO_FRAGMENT: NO_FRAGMENT}
    for file in files.values():
        if file.content.fragment >= 0:
            file.content = file.content._replace(fragment=numbers[file.content.fragment])
    for entries, name, owner, fragment, offset, size in places:
        entries[name] = owner + PLACE.pack(numbers[fragment], offset, size)
    written.fragment_starts = array("Q", [written.fragment_starts[i] for i in sorted(used)])
    written.fragment_sizes = array("I", [written.fragment_sizes[i] for i in sorted(used)])
