"""Fetching: the data of files that upper layers hide but hard links still show, in a second pass over their layers."""

from collections.abc import Mapping, Sequence

from sifmod.image.convert.inode import File
from sifmod.image.convert.layers.ahead import ReadAhead
from sifmod.image.convert.layers.blob import Blob
from sifmod.image.convert.layers.data import Copier, DataWriter
from sifmod.image.convert.layers.malformed import naming
from sifmod.image.convert.layers.member import REGULAR
from sifmod.image.convert.layers.stream import Stream
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.layers.warning import Warnings

Missing = Sequence[tuple[Blob, Mapping[int, File]]]
"""Layers, and for each the files that lack their data, by their number among its regular files."""


def fetch(missing: Missing, data: DataWriter) -> None:
    """Write the missing data and set the files' contents."""
    wanted = [(blob, files) for blob, files in missing if files]
    if not wanted:
        return
    copier = Copier(data)
    with ReadAhead([blob for blob, _ in wanted], lambda _read, _total: None) as ahead:
        for blob, files in wanted:
            with naming(blob.digest), ahead.layer() as chunks:
                number = -1
                reader = TarReader(Stream(chunks), Warnings())
                for member in reader.members():
                    if member.kind == REGULAR:
                        number += 1
                        if number in files:
                            files[number].content = copier.copy(reader, member.size, member.extents)
