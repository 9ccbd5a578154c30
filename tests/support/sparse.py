"""Members for a file with holes, in the four forms that GNU tar has had. Pieces are data by offset, in order."""

from collections.abc import Iterator, Mapping
from itertools import chain

from support.ustar import GNU, Member, checked, header, number, padded, pax, written


def old(path: bytes, pieces: Mapping[int, bytes], size: int) -> bytes:
    """GNU's first form: type S, the map in the header and in blocks after it."""
    entries = tuple(_entries(pieces, size))
    data = b"".join(pieces.values())
    block = bytearray(header(Member(path, b"S", data, magic=GNU)))
    block[386:482] = _binary(entries[:4]).ljust(96, b"\0")
    block[482] = len(entries) > 4
    block[483:495] = number(size, 12)
    extensions = b"".join(
        _binary(entries[start : start + 21]).ljust(504, b"\0") + bytes([start + 21 < len(entries)]) + bytes(7)
        for start in range(4, len(entries), 21)
    )
    return checked(bytes(block)) + extensions + padded(data)


def pax_0_0(path: bytes, pieces: Mapping[int, bytes], size: int) -> bytes:
    """PAX records of which two are repeated for each piece."""
    entries = tuple(_entries(pieces, size))
    records = [(b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.numblocks", b"%d" % len(entries))]
    for offset, length in entries:
        records += [(b"GNU.sparse.offset", b"%d" % offset), (b"GNU.sparse.numbytes", b"%d" % length)]
    return pax(records) + written(Member(path, data=b"".join(pieces.values())))


def pax_0_1(path: bytes, pieces: Mapping[int, bytes], size: int) -> bytes:
    """One PAX record with the whole map, and a name of its own in the header."""
    entries = tuple(_entries(pieces, size))
    records = {
        b"GNU.sparse.size": b"%d" % size,
        b"GNU.sparse.numblocks": b"%d" % len(entries),
        b"GNU.sparse.map": b",".join(b"%d" % value for value in chain.from_iterable(entries)),
        b"GNU.sparse.name": path,
    }
    return written(Member(b"GNUSparseFile.1/x", data=b"".join(pieces.values()), pax=records))


def pax_1_0(path: bytes, pieces: Mapping[int, bytes], size: int) -> bytes:
    """The map in front of the data, as lines of decimal numbers."""
    entries = tuple(_entries(pieces, size))
    records = {
        b"GNU.sparse.major": b"1",
        b"GNU.sparse.minor": b"0",
        b"GNU.sparse.name": path,
        b"GNU.sparse.realsize": b"%d" % size,
    }
    lines = b"".join(b"%d\n" % value for value in (len(entries), *chain.from_iterable(entries)))
    data = padded(lines) + b"".join(pieces.values())
    return written(Member(b"GNUSparseFile.1/x", data=data, pax=records))


def _entries(pieces: Mapping[int, bytes], size: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each piece, and an empty one at the end as GNU tar writes it after a hole."""
    end = 0
    for offset, piece in pieces.items():
        yield offset, len(piece)
        end = offset + len(piece)
    if end < size:
        yield size, 0


def _binary(entries: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(number(offset, 12) + number(length, 12) for offset, length in entries)
