"""Tar: read one layer's stream member by member, in all dialects that images use."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple
from zlib import adler32

from sifmod.config.limits import bound, limits
from sifmod.image.convert.inode import Content, Device, Fifo, Node, Symlink, Xattrs
from sifmod.image.convert.layers.fields import (
    Extents,
    Records,
    check,
    decimal,
    header_map,
    in_force,
    number,
    parse,
    pax_map,
    pax_size,
    seconds,
    whole,
    xattrs,
)
from sifmod.image.convert.layers.stream import Malformed, Stream, Warnings, shown
from sifmod.image.convert.squashfs.superblock import BLOCK
from sifmod.image.convert.squashfs.writer import DataWriter

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
    """The names from the root on; `.`, `..`, doubled and leading slashes resolved; empty for the root itself."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            if len(part) > NAME:
                raise Malformed(f"has a name of {len(part)} bytes; the limit of Linux is {NAME}: {shown(path)}")
            parts.append(part)
    return tuple(parts)


def marks(parts: Parts) -> list[int]:
    """A hash for each directory on the way and for the path itself."""
    found, above = [], 0
    for part in parts:
        above = hash((above, part))
        found.append(above)
    return found


def mark(parts: Parts) -> int:
    """The hash of a path, which is not the root."""
    return marks(parts)[-1]


def is_whiteout(name: bytes) -> bool:
    """Whether an entry of this name, of whatever type, is a whiteout."""
    return name.startswith(_PREFIX)


def whited_out(name: bytes) -> bytes | None:
    """The name that a whiteout removes; OPAQUE for everything in its directory; None for markers of other tools."""
    target = name.removeprefix(_PREFIX)
    if name.startswith(_OWN):
        return OPAQUE if target == OPAQUE else None
    if target in (b"", b".", b".."):
        raise Malformed(f"is damaged: it has a whiteout without a name: {shown(name)}")
    return target


class Member(NamedTuple):
    """One member. `size` is the file's own, with holes."""

    kind: int  # REGULAR … FIFO
    name: bytes  # as in the tar
    attributes: Attributes
    size: int = 0  # bytes
    target: bytes = b""
    device: tuple[int, int] = (0, 0)  # major, minor
    extents: Extents | None = None


@lru_cache(1 << 14)  # most headers of a layer have the same values
def attributes(fields: bytes) -> Attributes:
    """Parse the 36 bytes mode, uid, gid and mtime of a header."""
    mode, uid, gid, mtime = (number(fields[a:b]) for a, b in ((0, 8), (8, 16), (16, 24), (24, 36)))
    return mode & 0o7777, _identity(uid), _identity(gid), clamped(mtime), ()


@lru_cache(1 << 14)
def checksum(field: bytes) -> int:
    """The low half of adler32 for a header with this checksum field: 1 + the sum of its bytes, modulo 65521."""
    try:
        return (number(field) - 256 + sum(field) + 1) % 65521
    except Malformed:
        return -1


def overridden(plain: Attributes, records: Records, warnings: Warnings) -> Attributes:
    """The attributes with overrides from PAX records."""
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
        raise Malformed(f"has a device that a squashfs cannot hold: {shown(name)} is {major}:{minor}")
    return major, minor


def special_node(member: Member) -> Node:
    """The node of a member that is neither a file nor a directory nor a hard link."""
    if member.kind == SYMLINK:
        return Symlink(0o777, *member.attributes[1:], member.target)  # as Linux has them all
    if member.kind == FIFO:
        return Fifo(*member.attributes)
    return Device(*member.attributes, "c" if member.kind == CHARACTER else "b", *member.device)


def clamped(mtime: int) -> int:
    """A time within the range of a squashfs."""
    return min(max(mtime, 0), U32)


def _identity(value: int) -> int:
    """A uid or gid. A negative one is converted to 32 bits like Linux does: nobody was -2 on some systems."""
    if not _LOWEST <= value <= U32:
        raise Malformed(f"is damaged: a uid or gid is {value}")
    return value & U32


_ZERO = bytes(512)
_NO_DEVICE = (0, 0)
_OLD_REGULAR, _CONTIGUOUS, _SPARSE = b"\x007S"
_PAX, _PAX_SUN, _GLOBAL, _LONG_NAME, _LONG_TARGET = b"xXgLK"
_EXTENDED = frozenset((_PAX, _PAX_SUN, _GLOBAL, _LONG_NAME, _LONG_TARGET))


class TarReader:
    """One layer. `members` is read once; between two members `read` and `pieces` return the current one's data."""

    def __init__(self, stream: Stream, warnings: Warnings) -> None:
        self._stream = stream
        self._warnings = warnings
        self._at = 0  # position of the current member's unread data
        self._next = 0  # position of the next header
        self._end = 0  # end of the data of the last member read by `_special`
        self._globals: dict[bytes, bytes] = {}
        self._own: dict[bytes, bytes] = {}  # records of the next member only
        self._extended = False  # whether there are any of both

    def members(self) -> Iterator[Member]:
        """Every member but extended headers, in order. Raises Malformed.

        This is the hot loop: it handles plain files quickly, and leaves the rest to `_special`.
        """
        stream, new = self._stream, tuple.__new__
        end = 0  # end of the previous member's data
        while True:
            start = self._next - stream.base
            block = stream.chunk[start : start + 512]
            if len(block) != 512:
                block = stream.take(self._next, 512)
            if (len(block) != 512 or adler32(block) & 0xFFFF != checksum(block[148:156])) and not self._goes_on(
                block, end
            ):
                return
            try:
                size = int(block[124:135], 8) if block[135] < 33 else -1
            except ValueError:
                size = -1
            kind, length = block[156], block.find(0)
            found = attributes(block[100:124] + block[136:148])
            self._at = self._next + 512
            if kind != 48 or size < 0 or not 0 < length <= 100 or block[345] or self._extended:
                member = self._special(block, found)
                end = self._end
                if member:
                    yield member
                continue
            end = self._at + size
            self._next = end + 511 & -512
            yield new(Member, (48, block[:length], found, size, b"", _NO_DEVICE, None))

    def read(self, size: int) -> bytes:
        """Read exactly the next `size` bytes of the current member."""
        stream = self._stream
        start = self._at - stream.base
        data = stream.chunk[start : start + size]
        if len(data) != size:
            data = stream.take(self._at, size)
        self._at += size
        if len(data) != size:
            raise Malformed(f"is truncated: it ends {size - len(data)} bytes before the end of a file")
        return data

    def pieces(self, size: int) -> Iterator[memoryview]:
        """The same in pieces, without copying."""
        start, self._at = self._at, self._at + size
        return self._stream.pieces(start, size)

    def copy(self, size: int, extents: Extents | None, data: DataWriter) -> Content:
        """Pass the current member's file of `size` bytes to `data`. Raises its errors."""
        if extents is None:
            if size < BLOCK:
                return data.add(self.read(size))
            extents = ((0, size),)
        data.start()
        end = 0
        for offset, length in (*extents, (size, 0)):
            if offset > end:
                data.hole(offset - end)
            for piece in self.pieces(length):
                data.write(piece)
            end = offset + length
        return data.finish()

    def _special(self, block: bytes, plain: Attributes) -> Member | None:
        """The member for anything but a plain file; None for extended headers and unsupported entries."""
        kind, size = block[156], number(block[124:136])
        if size < 0:
            raise Malformed(f"is damaged: {shown(header_name(block))} has a size of {size}")
        if kind in _EXTENDED:
            self._ends(self._at + size)
            self._extend(kind, size)
            return None
        records = in_force(self._globals, self._own) if self._extended else {}
        self._own, self._extended = {}, bool(self._globals)
        name = records.get(b"path") or header_name(block)
        try:
            return self._member(block, name, plain, records)
        except Malformed as error:
            raise Malformed(f"{error} (at {shown(name)})") from error

    def _member(self, block: bytes, name: bytes, plain: Attributes, records: Records) -> Member | None:
        kind = block[156]
        stored = 0 if kind in NO_DATA else number(block[124:136])
        if b"size" in records and kind not in NO_DATA:
            stored = decimal(records[b"size"], "a size")
        extents, size = None, stored
        if kind in (REGULAR, _OLD_REGULAR, _CONTIGUOUS, _SPARSE):
            extents, size, stored = self._extents(block, stored, records)
            name = records.get(b"GNU.sparse.name") or name
            kind = DIRECTORY if kind == _OLD_REGULAR and name.endswith(b"/") else REGULAR
        self._ends(self._at + stored)
        found = overridden(plain, records, self._warnings) if records else plain
        if kind != REGULAR and kind not in NO_DATA:
            self._warnings.count("skipped", f"unknown type {chr(kind)!r}")
            return None
        if len(name) > PATH:
            raise Malformed(f"has a path of {len(name)} bytes; the limit of Linux is {PATH}")
        device = header_device(block, name) if kind in (CHARACTER, BLOCK_DEVICE) else _NO_DEVICE
        target = (
            b""
            if kind in (REGULAR, DIRECTORY, FIFO)
            else records.get(b"linkpath") or block[157:257].partition(b"\0")[0]
        )
        if kind == SYMLINK and not 0 < len(target) <= TARGET:
            raise Malformed(f"has a symlink whose target has {len(target)} bytes; Linux allows 1 to {TARGET}")
        return Member(kind, name, found, size, target, device, extents)

    def _extents(self, block: bytes, stored: int, records: Records) -> tuple[Extents | None, int, int]:
        """For a file: its extents (None: no holes), its size, and the number of stored bytes."""
        start = self._at
        if block[156] == _SPARSE:
            extents, size = header_map(block, partial(self.read, 512))
        elif (real := pax_size(records)) is not None:
            size, extents = real, pax_map(records, partial(self.read, 512))
            stored -= self._at - start
        else:
            return None, stored, stored
        return check(extents, size, stored), size, stored

    def _ends(self, end: int) -> None:
        """The member's data ends at this byte, and the next header follows at a multiple of 512."""
        self._end = end
        self._next = end + 511 & -512

    def _extend(self, kind: int, size: int) -> None:
        if size > limits().header_size:
            raise Malformed(f"is damaged: an extended header has {size} bytes, more than {bound('header_size')}")
        data = self.read(size)
        if kind == _GLOBAL:
            self._globals = in_force(self._globals, parse(data))
        elif kind in (_PAX, _PAX_SUN):
            self._own |= parse(data)
        else:
            self._own[b"path" if kind == _LONG_NAME else b"linkpath"] = data.partition(b"\0")[0]
        self._extended = bool(self._globals or self._own)

    def _goes_on(self, block: bytes, end: int) -> bool:
        """Whether the layer continues after this block, whose checksum is wrong.

        Some tools omit the zeros after the last member's data, which ends at byte `end`: its padding and the two empty
        blocks.
        """
        if len(block) == 512 and block != _ZERO:
            signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:])
            if number(block[148:156]) != signed + 256:  # used by some old tars
                raise Malformed(f"is damaged: there is no tar header at its byte {self._next}")
            return True
        if self._stream.end < end or any(block):
            raise Malformed(
                f"is truncated: it ends inside a {'header' if block else 'file'}, at byte {self._stream.end}"
            )
        if self._own:
            raise Malformed("is truncated: it ends after an extended header")
        if block and any(self._stream.take(self._next + 512, 512)):  # two of them are the end, a single one is not
            raise Malformed(f"is damaged: there is one empty block at its byte {self._next}, followed by data")
        # always to the stream's end: damage there is damage too
        if sum(len(view) - bytes(view).count(0) for view in self._stream.rest(self._next + len(block))):
            self._warnings.count("said", "a layer has data after its end, which was ignored")
        return False
