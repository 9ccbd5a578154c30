"""How files' bytes go from a layer to what stores them, and GNU's four ways to say where a sparse file has any."""

from collections.abc import Callable, Iterator
from typing import Protocol

from sifmod.image.convert.inode import Content
from sifmod.image.convert.layers.fields import Records, decimal, number
from sifmod.image.convert.layers.malformed import Malformed

MAP = 1 << 20  # bytes; the longest map that is read
BLOCK = 131072  # bytes; a file of this size or more is handed over in pieces
LARGEST = 1 << 41  # bytes of one sparse file, and of all in an image: the writer's lists of blocks are held in memory

Extents = tuple[tuple[int, int], ...]
"""Where a sparse file has data: offset and length, in ascending order, not overlapping; the rest is holes."""


def pax_size(records: Records) -> int | None:
    """The real size of a file that PAX records call sparse, None where they do not."""
    for key in (b"GNU.sparse.realsize", b"GNU.sparse.size"):
        if key in records:
            return _bounded(decimal(records[key], "the size of a sparse file"))
    return None


def pax_map(records: Records, read: Callable[[], bytes]) -> Extents:
    """The extents that PAX records give: 0.0 and 0.1 in a record, 1.0 in the blocks (`read`) that precede the data."""
    if records.get(b"GNU.sparse.major") == b"1":
        return _paired(_numbers_in_blocks(read))
    text = records.get(b"GNU.sparse.map", b"")
    return _paired([decimal(value, "a sparse map's entry") for value in text.split(b",")] if text else [])


def header_map(block: bytes, read: Callable[[], bytes]) -> tuple[Extents, int]:
    """The extents and the real size of an old GNU member (type S); `read` gives the blocks that follow its header."""
    size = _bounded(number(block[483:495]))
    fields, more, blocks = block[386:482], block[482], 0
    numbers: list[int] = []
    while True:
        for at in range(0, len(fields), 24):
            if fields[at] == 0:  # an unused entry ends the map
                break
            numbers += number(fields[at : at + 12]), number(fields[at + 12 : at + 24])
        if not more:
            return _paired(numbers), size
        blocks += 1
        if blocks * 512 > MAP:
            raise Malformed("is damaged: a sparse map is too long")
        block = read()
        fields, more = block[:504], block[504]


def check(extents: Extents, size: int, stored: int) -> Extents:
    """The extents without empty ones. Raises Malformed unless they fit the file's size and its stored data."""
    end = total = 0
    for offset, length in extents:
        if offset < end or length < 0 or offset + length > size:
            raise Malformed("is damaged: a sparse map is out of order or leads out of its file")
        end = offset + length
        total += length
    if total != stored:
        raise Malformed(f"is damaged: a sparse map has {total} bytes of data, but {stored} are stored")
    return tuple(extent for extent in extents if extent[1])


def _numbers_in_blocks(read: Callable[[], bytes]) -> list[int]:
    text = b""
    wanted = 1
    numbers: list[int] = []
    length = 0
    while len(numbers) < wanted:
        block = read()
        length += len(block)
        *lines, text = (text + block).split(b"\n")
        if length > MAP or len(text) > 512:
            raise Malformed("is damaged: a sparse map is too long")
        for line in lines:
            if len(numbers) < wanted:
                numbers.append(decimal(line, "a sparse map's entry"))
                wanted = 1 + 2 * numbers[0]
    return numbers[1:]


def _paired(numbers: list[int]) -> Extents:
    if len(numbers) % 2:
        raise Malformed("is damaged: a sparse map has an offset without a length")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _bounded(size: int) -> int:
    if not 0 <= size <= LARGEST:
        raise Malformed(f"has a sparse file of {size} bytes; up to {LARGEST} are converted")
    return size


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
