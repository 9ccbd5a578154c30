"""A Member of a layer: its path, what a whiteout of its name removes, and its attributes in headers and PAX records."""

from functools import lru_cache
from typing import NamedTuple

from sifmod.image.convert.inode import Device, Fifo, Node, Symlink, Xattrs
from sifmod.image.convert.layers.fields import Extents, Records, number, seconds, whole, xattrs
from sifmod.image.convert.layers.stream import Malformed, Warnings, printable_name

OPAQUE = b".wh..opq"
"""The result of `whited_out` for the marker of an opaque directory."""

_PREFIX, _OWN = b".wh.", b".wh..wh."
Parts = tuple[bytes, ...]
Attributes = tuple[int, int, int, int, Xattrs]
"""mode (07777), uid, gid, mtime (u32), extended attributes: as `Node` takes them."""

REGULAR, HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO = b"0123456"
U32 = 0xFFFFFFFF
_LOWEST = -(1 << 31)  # of a uid or gid
NAME, PATH, TARGET = 255, 4096, 4095  # bytes; Linux's limits for a name, a path, and a symlink's target

# kinds for which a size in the header is ignored, like in Go's, Python's and GNU's readers
NO_DATA = frozenset((HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO))
_MAJOR, _MINOR = 0xFFF, 0xFFFFF  # limits of a squashfs


def cleaned(path: bytes) -> Parts:
    """The names from the root on; `.`, `..`, doubled and leading slashes resolved; empty for the root itself.

    Raises Malformed for a name of more than NAME bytes.
    """
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            if len(part) > NAME:
                raise Malformed(
                    f"has a name of {len(part)} bytes; the limit of Linux is {NAME}: {printable_name(path)}"
                )
            parts.append(part)
    return tuple(parts)


def is_whiteout(name: bytes) -> bool:
    """Whether an entry of this name, of whatever type, is a whiteout."""
    return name.startswith(_PREFIX)


def whited_out(name: bytes) -> bytes | None:
    """The name that a whiteout removes; OPAQUE for everything in its directory; None for markers of other tools.

    Raises Malformed for a whiteout without a name.
    """
    target = name.removeprefix(_PREFIX)
    if name.startswith(_OWN):
        return OPAQUE if target == OPAQUE else None
    if target in (b"", b".", b".."):
        raise Malformed(f"is damaged: it has a whiteout without a name: {printable_name(name)}")
    return target


class Member(NamedTuple):
    """One member of a tar. `size` is that of the whole file, holes included."""

    kind: int  # REGULAR … FIFO
    name: bytes  # as in the tar
    attributes: Attributes
    size: int = 0  # bytes
    target: bytes = b""
    device: tuple[int, int] = (0, 0)  # major, minor
    extents: Extents | None = None


@lru_cache(1 << 14)  # most headers of a layer have the same values
def attributes(fields: bytes) -> Attributes:
    """Parse the 36 bytes mode, uid, gid and mtime of a header. Raises Malformed."""
    mode, uid, gid, mtime = (number(fields[a:b]) for a, b in ((0, 8), (8, 16), (16, 24), (24, 36)))
    return mode & 0o7777, _identity(uid), _identity(gid), clamped(mtime), ()


@lru_cache(1 << 14)
def checksum(field: bytes) -> int:
    """The low half of adler32 of a header with this checksum field: 1 + the sum of its bytes, modulo 65521.

    -1 if the field is not a number.
    """
    try:
        return (number(field) - 256 + sum(field) + 1) % 65521
    except Malformed:
        return -1


def overridden(plain: Attributes, records: Records, warnings: Warnings) -> Attributes:
    """The attributes `plain` of a header, overridden by PAX records. Raises Malformed."""
    mode, uid, gid, mtime, _ = plain
    if b"uid" in records:
        uid = _identity(whole(records[b"uid"], "a uid"))
    if b"gid" in records:
        gid = _identity(whole(records[b"gid"], "a gid"))
    if b"mtime" in records:
        mtime = clamped(seconds(records[b"mtime"]))
    return mode, uid, gid, mtime, xattrs(records, warnings)


def header_name(block: bytes) -> bytes:
    """The name in a header, with its prefix if the format has one."""
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":
        length = 131 if block[508:512] == b"tar\0" else 155  # star keeps times after its prefix
        if prefix := block[345 : 345 + length].partition(b"\0")[0]:
            return prefix + b"/" + name
    return name


def header_device(block: bytes, name: bytes) -> tuple[int, int]:
    major, minor = number(block[329:337]), number(block[337:345])
    if not (0 <= major <= _MAJOR and 0 <= minor <= _MINOR):
        raise Malformed(f"has a device that a squashfs cannot hold: {printable_name(name)} is {major}:{minor}")
    return major, minor


def special_node(member: Member) -> Node:
    """The node of a member that is neither a file nor a directory nor a hard link."""
    if member.kind == SYMLINK:
        return Symlink(0o777, *member.attributes[1:], member.target)  # the mode of every symlink in Linux
    if member.kind == FIFO:
        return Fifo(*member.attributes)
    return Device(*member.attributes, "c" if member.kind == CHARACTER else "b", *member.device)


def clamped(mtime: int) -> int:
    """`mtime` limited to the range of a squashfs: 0 to U32 seconds since 1970."""
    return min(max(mtime, 0), U32)


def _identity(value: int) -> int:
    """A uid or gid; a negative one is converted to 32 bits as by Linux (nobody was -2). Raises Malformed."""
    if not _LOWEST <= value <= U32:
        raise Malformed(f"is damaged: a uid or gid is {value}")
    return value & U32
