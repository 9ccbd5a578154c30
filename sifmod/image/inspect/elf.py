"""What a shared library says to the loader: its SONAME and the libraries that it needs (System V ABI, chapter 5)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NEEDED, _STRTAB, _SONAME = 1, 5, 14  # tags of the dynamic section
_MOST = 4096  # segments, or entries of the dynamic section
_LONGEST = 4096  # bytes of a name


class Dynamic(NamedTuple):
    """A library's name for the loader, "" where it has none, and the names of those it needs."""

    soname: str
    needed: tuple[str, ...]


def read_dynamic(data: bytes) -> Dynamic | None:
    """The dynamic section of a 64-bit little-endian ELF file; None for what is none, is cut off or makes no sense."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        segments = tuple(_segments(data))
        tags = tuple(_tags(data, next(segment for segment in segments if segment[0] == _DYNAMIC)))
        table = next(value for tag, value in tags if tag == _STRTAB)
        _, start, address, _ = next(one for one in segments if one[0] == _LOAD and 0 <= table - one[2] < one[3])
        names = start + table - address
        soname = [_text(data, names + value) for tag, value in tags if tag == _SONAME]
        needed = tuple(_text(data, names + value) for tag, value in tags if tag == _NEEDED)
    except (struct.error, OverflowError, StopIteration):
        return None
    return Dynamic(soname[0] if soname else "", needed)


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Kind, offset in the file, address, and bytes in the file of each."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(min(count, _MOST)):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + number * size)
        yield kind, offset, address, length


def _tags(data: bytes, segment: tuple[int, int, int, int]) -> Iterator[tuple[int, int]]:
    _, offset, _, length = segment
    for number in range(min(length // 16, _MOST)):
        tag, value = struct.unpack_from("<QQ", data, offset + number * 16)
        if tag == 0:
            return
        yield tag, value


def _text(data: bytes, start: int) -> str:
    if start >= len(data):
        raise struct.error
    return data[start : start + _LONGEST].split(b"\0", 1)[0].decode("utf-8", "replace")
