"""Merge the layers of an image to one root file system, passing file data to a writer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sifmod.image.convert.budget import UNLIMITED, Budget, CpuWatch
from sifmod.image.convert.inode import Directory, File, Node
from sifmod.image.convert.layers.ahead import Progress, ReadAhead
from sifmod.image.convert.layers.layered_tree import LayeredTree
from sifmod.image.convert.layers.member import REGULAR
from sifmod.image.convert.layers.read_layers import LayersReader, Record
from sifmod.image.convert.layers.stream import Blob, Stream, Warnings, naming
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.squashfs.writer import DataWriter

Missing = Sequence[tuple[Blob, Mapping[int, File]]]
"""Layers, and for each the files without data, by their number among its regular files."""


class Merged(NamedTuple):
    """A root file system, and warnings about dropped and skipped parts of the layers."""

    root: Directory
    warnings: tuple[str, ...]


def merge_layers(
    layers: Sequence[Blob], data: DataWriter, *, epoch: int, progress: Progress, budget: Budget = UNLIMITED
) -> Merged:
    """Merge `layers`, lowest first, with the result of applying them in sequence (OCI image specification).

    The data of each visible file goes to `data`, once. `epoch` is the mtime of directories without an entry in any
    layer (0755, root). Each layer is read once, the uppermost first, and a second time only for data of files that an
    upper layer hides by their path but not by another one. The result does not depend on `budget`. Raises
    ImageError for unreadable data, naming the layer, and for a tree that exceeds the budget's memory, and errors of the
    blobs and `data`.
    """
    warnings, watch = Warnings(), CpuWatch(budget.memory)
    reader, records = LayersReader(data, watch), list[Record]()
    with ReadAhead(layers[::-1], progress, budget.processors) as ahead:
        for blob in layers[::-1]:
            with naming(blob.digest), ahead.layer() as chunks:
                records.append(reader.read(TarReader(Stream(chunks), warnings)))
    del reader
    tree, missing = LayeredTree(epoch), list[tuple[Blob, dict[int, File]]]()
    for blob in layers:
        with naming(blob.digest):
            missing.append((blob, tree.apply(records.pop(), watch)))
    if any(files for _, files in missing):
        seen = _files(tree.root)
        _fetch([(blob, {at: one for at, one in files.items() if one in seen}) for blob, files in missing[::-1]], data)
    total = sum(blob.size for blob in layers)
    progress(total, total)
    return Merged(tree.root, warnings.texts())


def _files(root: Directory) -> set[Node]:
    """All files in a tree, except plain ones."""
    seen: set[Node] = set()
    todo = [root]
    while todo:
        for node in todo.pop().entries.values():
            if isinstance(node, Directory):
                todo.append(node)
            elif isinstance(node, File):
                seen.add(node)
    return seen


def _fetch(missing: Missing, data: DataWriter) -> None:
    """Read the layers of `missing` again, write the files' data to `data`, and set their contents."""
    wanted = [(blob, files) for blob, files in missing if files]
    if not wanted:
        return
    with ReadAhead([blob for blob, _ in wanted], lambda _read, _total: None) as ahead:
        for blob, files in wanted:
            with naming(blob.digest), ahead.layer() as chunks:
                number = -1
                reader = TarReader(Stream(chunks), Warnings())
                for member in reader.members():
                    if member.kind == REGULAR:
                        number += 1
                        if number in files:
                            files[number].content = reader.copy(member.size, member.extents, data)
