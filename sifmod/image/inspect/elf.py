"""What a shared library says to the loader: its SONAME and the libraries that it needs (System V ABI, chapter 5)."""

import struct
from itertools import takewhile
from typing import NamedTuple

_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NEEDED, _STRTAB, _SONAME = 1, 5, 14  # tags of the dynamic section, which a 0 ends
_MOST = 4096  # segments, entries of the dynamic section, or bytes of a name


class Dynamic(NamedTuple):
    """A library's name for the loader, "" where it has none, and the names of those it needs."""

    soname: str
    needed: tuple[str, ...]


def read_dynamic(data: bytes) -> Dynamic | None:
    """The dynamic section of a 64-bit little-endian ELF file; None for what is none, is cut off or makes no sense."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        # of each segment: kind, flags, offset in the file, address, physical address, bytes in the file
        segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(min(count, _MOST))]
        start, length = next((one[2], one[5]) for one in segments if one[0] == _DYNAMIC)
        entries = struct.iter_unpack("<QQ", data[start : start + min(length, _MOST * 16)])
        tags = list(takewhile(lambda entry: entry[0], entries))
        at = next(value for tag, value in tags if tag == _STRTAB)
        names = next(one[2] - one[3] + at for one in segments if one[0] == _LOAD and 0 <= at - one[3] < one[5])
    except (struct.error, OverflowError, StopIteration):
        return None
    texts = [(tag, data[names + value : names + value + _MOST].split(b"\0", 1)[0]) for tag, value in tags]
    sonames, needed = (
        [text.decode("utf-8", "replace") for tag, text in texts if tag == one] for one in (_SONAME, _NEEDED)
    )
    return Dynamic(sonames[0] if sonames else "", tuple(needed))
