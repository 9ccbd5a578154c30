"""A shared library as the loader sees it, and no more: a header, two segments, a dynamic section and its names."""

import struct
from collections.abc import Sequence


def library(soname: str, needed: Sequence[str] = (), text: bytes = b"") -> bytes:
    """An ELF file of 64 bits with this SONAME, the libraries that it needs, and `text` anywhere in it."""
    names, places = b"\0", []
    for name in (soname, *needed):
        places.append(len(names))
        names += name.encode() + b"\0"
    head, address = 64 + 2 * 56, 0x1000
    tags = [(14, places[0]), *((1, place) for place in places[1:]), (5, address + head), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    start = head + len(names)
    size = start + len(dynamic) + len(text)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 0x1000)
    segment = struct.pack("<IIQQQQQQ", 2, 4, start, address + start, address + start, len(dynamic), len(dynamic), 8)
    return header + load + segment + names + dynamic + text
