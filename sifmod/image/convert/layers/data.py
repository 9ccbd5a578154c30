"""Data: how files' bytes go from a layer to what stores them."""

from collections.abc import Iterator
from typing import Protocol

from sifmod.image.convert.inode import Content
from sifmod.image.convert.layers.malformed import Malformed

BLOCK = 131072  # bytes; a file of this size or more is handed over in pieces
LARGEST = 1 << 41  # bytes of one sparse file, and of all in an image: the writer's lists of blocks are held in memory


class DataWriter(Protocol):
    """Takes files' data, one file at a time, and says where it lies. May raise what a full disk raises."""

    def add(self, data: bytes) -> Content:
        """Take a whole file; one of BLOCK bytes or more is better handed over in pieces."""

    def small(self, data: bytes) -> bytes:
        """Take a whole file of less than BLOCK bytes, and say so in few bytes: a PLACE of inode.py."""

    def start(self) -> None:
        """Begin a file of BLOCK bytes or more."""

    def write(self, chunk: bytes | memoryview) -> None:
        """Take its next bytes, any number of them; they never change afterwards."""

    def hole(self, size: int) -> None:
        """Take `size` bytes of zeros that are not in the layer."""

    def finish(self) -> Content:
        """End the file."""


class Source(Protocol):
    """A member's stored data, each byte at most once and in order."""

    def read(self, size: int) -> bytes:
        """Give exactly the next `size` bytes. Raises Malformed where the layer ends before."""

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Give the same, for any size, in pieces that are not copied."""


Extents = tuple[tuple[int, int], ...]
"""Where a sparse file has data: offset and length, in ascending order, not overlapping; the rest is holes."""


class Copier:
    """Hands files to a DataWriter, and bounds what sparse files claim to be."""

    def __init__(self, data: DataWriter) -> None:
        self._data = data
        self._sparse = 0

    def copy(self, source: Source, size: int, extents: Extents | None) -> Content:
        """Hand over one file of `size` bytes; its stored data is what `source` gives from here."""
        data = self._data
        if extents is not None:
            return self._copy_sparse(source, size, extents)
        if size < BLOCK:
            return data.add(source.read(size))
        data.start()
        for piece in source.pieces(size):
            data.write(piece)
        return data.finish()

    def _copy_sparse(self, source: Source, size: int, extents: Extents) -> Content:
        data = self._data
        self._sparse += size
        if self._sparse > LARGEST:
            raise Malformed(f"has sparse files of {self._sparse} bytes; up to {LARGEST} are converted")
        if size < BLOCK:
            small = bytearray(size)
            for offset, length in extents:
                small[offset : offset + length] = source.read(length)
            return data.add(bytes(small))
        data.start()
        end = 0
        for offset, length in (*extents, (size, 0)):
            if offset > end:
                data.hole(offset - end)
            for piece in source.pieces(length):
                data.write(piece)
            end = offset + length
        return data.finish()
