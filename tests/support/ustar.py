"""Write tar headers byte by byte: forms that tarfile cannot or will not write, and some that nobody should."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

MTIME = 1_600_000_000
USTAR = b"ustar\x0000"
GNU = b"ustar  \x00"
V7 = bytes(8)
END = bytes(1024)


@dataclass(frozen=True)
class Member:
    """One header with its data; `kind` is the type flag. `pax` goes in a header of its own before it."""

    path: bytes
    kind: bytes = b"0"
    data: bytes = b""
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)
    mtime: int = MTIME
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    pax: Mapping[bytes, bytes] = field(default_factory=dict)
    magic: bytes = USTAR
    names: tuple[bytes, bytes] = (b"", b"")
    prefix: bytes = b""  # the header's last field before its padding
    size: int | None = None  # what the header says; the data's when absent


class Fields(TypedDict, total=False):
    """What a member may have beside its path and what follows from its kind."""

    mode: int
    owner: tuple[int, int]
    mtime: int
    pax: Mapping[bytes, bytes]
    magic: bytes
    names: tuple[bytes, bytes]
    prefix: bytes
    size: int


def file(path: str | bytes, data: str | bytes = b"", **fields: Unpack[Fields]) -> Member:
    """A regular file."""
    return replace(Member(_bytes(path), data=_bytes(data)), **fields)


def directory(path: str | bytes, **fields: Unpack[Fields]) -> Member:
    """A directory, with the slash at its end that tar writes."""
    return replace(Member(_bytes(path) + b"/", b"5", mode=0o755), **fields)


def symlink(path: str | bytes, target: str | bytes, **fields: Unpack[Fields]) -> Member:
    """A symbolic link."""
    return replace(Member(_bytes(path), b"2", mode=0o777, link=_bytes(target)), **fields)


def hardlink(path: str | bytes, target: str | bytes, **fields: Unpack[Fields]) -> Member:
    """Another name of `target`, which is a path from the root."""
    return replace(Member(_bytes(path), b"1", link=_bytes(target)), **fields)


def device(path: str | bytes, kind: str, major: int = 0, minor: int = 0) -> Member:
    """A device node (`c` or `b`) or a named pipe (`p`)."""
    return Member(_bytes(path), {"c": b"3", "b": b"4", "p": b"6"}[kind], mode=0o640, device=(major, minor))


def whiteout(path: str) -> Member:
    """What hides `path` of the layers below."""
    parent, _, name = path.rpartition("/")
    return file(f"{parent}/.wh.{name}" if parent else f".wh.{name}")


def opaque(path: str) -> Member:
    """What hides all that layers below have in the directory `path`."""
    return file(f"{path}/.wh..wh..opq" if path else ".wh..wh..opq")


def tar(members: Iterable[Member | bytes]) -> bytes:
    """A complete archive; bytes among the members are written as they are."""
    return b"".join(member if isinstance(member, bytes) else written(member) for member in members) + END


def written(member: Member) -> bytes:
    """One member: its PAX header where it has records, its header, its data padded to whole blocks."""
    extended = pax(member.pax) if member.pax else b""
    return extended + header(member) + padded(member.data)


def pax(records: Mapping[bytes, bytes] | Sequence[tuple[bytes, bytes]], kind: bytes = b"x") -> bytes:
    """A PAX extended header (`x`: for the next member, `g`: for all that follow)."""
    pairs = records.items() if isinstance(records, Mapping) else records
    data = b"".join(_record(key, value) for key, value in pairs)
    return written(Member(b"pax", kind, data))


def gnu_long(member: Member) -> bytes:
    """The member with its path, and its link where it has one, in GNU's L and K members."""
    longs = written(Member(b"././@LongLink", b"L", member.path + b"\0", magic=GNU))
    if member.link:
        longs += written(Member(b"././@LongLink", b"K", member.link + b"\0", magic=GNU))
    return longs + written(replace(member, path=member.path[:100], link=member.link[:100], magic=GNU))


def header(member: Member) -> bytes:
    """The 512 bytes, with the checksum. Numbers that octal digits cannot hold are written in base 256."""
    assert len(member.path) <= 100, member.path
    assert len(member.link) <= 100, member.link
    size = len(member.data) if member.size is None else member.size
    numbers = (member.mode, *member.owner)
    block = member.path.ljust(100, b"\0")
    block += b"".join(number(value, 8) for value in numbers) + number(size, 12) + number(member.mtime, 12)
    block += b" " * 8 + member.kind + member.link.ljust(100, b"\0") + member.magic
    block += b"".join(name.ljust(32, b"\0") for name in member.names)
    block += b"".join(number(value, 8) for value in member.device)
    block = (block + member.prefix).ljust(512, b"\0")
    return checked(block)


def checked(block: bytes) -> bytes:
    """A header block with its checksum put right."""
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]


def number(value: int, width: int) -> bytes:
    """Octal digits and a NUL, or base 256 (two's complement with the first bit set) where they do not fit."""
    if 0 <= value < 1 << 3 * (width - 1):
        return b"%0*o\0" % (width - 1, value)
    return bytes([0x80 if value >= 0 else 0xFF]) + (value % (1 << 8 * (width - 1))).to_bytes(width - 1, "big")


def padded(data: bytes) -> bytes:
    """Filled with zeros to whole blocks of 512 bytes."""
    return data.ljust(-(-len(data) // 512) * 512, b"\0")


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    size = len(rest)
    while len(b"%d" % size) + len(rest) != size:
        size = len(b"%d" % size) + len(rest)
    return b"%d" % size + rest


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
