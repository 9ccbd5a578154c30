"""Sparse files: GNU's four ways to say in a tar where a file has data."""

from collections.abc import Callable

from sifmod.image.convert.layers.data import LARGEST, Extents
from sifmod.image.convert.layers.malformed import Malformed
from sifmod.image.convert.layers.pax import Records
from sifmod.image.convert.layers.tar_number import decimal, number

MAP = 1 << 20  # bytes; the longest map that is read


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
