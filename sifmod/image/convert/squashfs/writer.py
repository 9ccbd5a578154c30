"""Writer: a squashfs 4.0, written into a file at an offset, from the data of its files and a tree of nodes."""

import struct
from array import array
from typing import BinaryIO, Self

from sifmod.image.convert.inode import NO_FRAGMENT, OWNER, PLACE, Directory, File, Plain
from sifmod.image.convert.squashfs import superblock
from sifmod.image.convert.squashfs.compression import Compression
from sifmod.image.convert.squashfs.data import BLOCK, DataWriter
from sifmod.image.convert.squashfs.metadata import indexed, little, stored
from sifmod.image.convert.squashfs.pipeline import Pipeline
from sifmod.image.convert.squashfs.superblock import ALIGNMENT, EXPORTABLE, NO_XATTRS, NOWHERE, OPTIONS, Superblock
from sifmod.image.convert.squashfs.tree import Survey, TreeWriter, survey
from sifmod.image.convert.squashfs.written import Written


class SquashfsWriter(DataWriter):
    """A context manager: give all data (`DataWriter`), then the tree (`close`).

    The same calls give the same bytes, whatever `processors` (threads that compress beside the caller's). `file` is
    written from `offset` on, in order; the superblock comes last, so that what is cut is not taken for an image.
    On leaving it, also by an exception, its threads have ended. Raises OSError as the file system does.
    """

    def __init__(self, file: BinaryIO, offset: int, compression: Compression, processors: int, epoch: int) -> None:
        pipeline = Pipeline(file, offset, compression, processors)
        super().__init__(pipeline)
        self._compression = compression
        self._epoch = min(max(epoch, 0), 0xFFFFFFFF)
        self._file, self._offset = file, offset
        pipeline.position = superblock.SIZE + len(stored(compression.options))

    def __enter__(self) -> Self:
        self._pipeline.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._pipeline.__exit__(kind, *rest)

    def close(self, root: Directory) -> int:
        """Write what is left and all tables; return the size, padded to 4096 bytes.

        Raises ImageError where squashfs or Linux cannot hold the tree: over 65535 ids, names over 255 bytes.
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
        fragments = self._indexed(_fragment_table(written))
        export = self._indexed(little(tree.places))
        ids = self._indexed(struct.pack(f"<{len(tree.ids)}I", *tree.ids))
        xattrs, xattr_table = tree.xattrs.finish(self._pipeline.position)
        append(xattrs)
        used = self._pipeline.position
        append(bytes(-used % ALIGNMENT))
        flags = EXPORTABLE | OPTIONS | (NO_XATTRS if xattr_table == NOWHERE else 0)
        block = Superblock(
            len(tree.places), self._epoch, len(written.fragment_starts), self._compression.number, flags,
            len(tree.ids), root, used, ids, xattr_table, inodes, directories, fragments, export, BLOCK,
        )  # fmt: skip
        size = self._pipeline.position
        self._pipeline.position = 0
        append(block.pack() + stored(self._compression.options))
        self._pipeline.position = size
        return size

    def _indexed(self, data: bytes) -> int:
        """Append a table with its index; return the index's place."""
        table, place = indexed(data, self._compression.compressor(), self._pipeline.position)
        self._pipeline.append(table)
        return place


def _fragment_table(written: Written) -> bytes:
    table = bytearray()
    for start, size in zip(written.fragment_starts, written.fragment_sizes, strict=True):
        table += struct.pack("<QII", start, size, 0)
    return bytes(table)


def _drop_unused(seen: Survey, written: Written) -> None:
    """Leave out of the table what no file is in: unsquashfs refuses more fragments than inodes."""
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
