"""Merge the layers of an image to one root file system, passing file data to a writer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sifmod.image.convert.budget import UNLIMITED, Budget, CpuWatch
from sifmod.image.convert.inode import Directory, File
from sifmod.image.convert.layers.ahead import Progress, ReadAhead
from sifmod.image.convert.layers.bottom_up import merge_bottom_up
from sifmod.image.convert.layers.member import REGULAR
from sifmod.image.convert.layers.stream import Blob, Stream, Warnings, naming
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.layers.top_down import NeedsFullMerge, TopDown
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
    layer (0755, root). Each layer is read once, the uppermost first; more often only if hard links or symlinks cross
    layers, or if an upper layer hides a file but not its hard link. The result does not depend on `budget`. Raises
    ImageError for unreadable data, naming the layer, and for a tree that exceeds the budget's memory, and errors of the
    blobs and `data`.
    """
    warnings = Warnings()
    merge = TopDown(data, epoch, CpuWatch(budget.memory))
    root: Directory | None = None
    try:
        with ReadAhead(layers[::-1], progress, budget.processors) as ahead:
            for blob in layers[::-1]:
                with naming(blob.digest), ahead.layer() as chunks:
                    merge.layer(TarReader(Stream(chunks), warnings))
        root, missing = merge.finish(), merge.missing
    except NeedsFullMerge:
        contents = merge.contents
    if root is None:
        del merge  # two trees of a million files would not fit
        warnings = Warnings()
        root, missing = merge_bottom_up(layers, contents, epoch, warnings, CpuWatch(budget.memory))
    fetch(list(zip(layers[::-1], missing, strict=True)), data)
    total = sum(blob.size for blob in layers)
    progress(total, total)
    return Merged(root, warnings.texts())


def fetch(missing: Missing, data: DataWriter) -> None:
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
