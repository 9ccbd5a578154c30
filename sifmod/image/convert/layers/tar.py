"""Tar: read one layer's stream member by member, in all dialects that images use."""

from collections.abc import Iterator
from functools import partial
from zlib import adler32

from sifmod.config.limits import bound, limits
from sifmod.image.convert.inode import Content
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
)
from sifmod.image.convert.layers.member import (
    BLOCK_DEVICE,
    CHARACTER,
    DIRECTORY,
    FIFO,
    NO_DATA,
    PATH,
    REGULAR,
    SYMLINK,
    TARGET,
    Attributes,
    Member,
    attributes,
    checksum,
    header_device,
    header_name,
    overridden,
)
from sifmod.image.convert.layers.stream import Malformed, Stream, Warnings, printable_name
from sifmod.image.convert.squashfs.superblock import BLOCK
from sifmod.image.convert.squashfs.writer import DataWriter

_ZERO = bytes(512)
_NO_DEVICE = (0, 0)
_OLD_REGULAR, _CONTIGUOUS, _SPARSE = b"\x007S"
_PAX, _PAX_SUN, _GLOBAL, _LONG_NAME, _LONG_TARGET = b"xXgLK"
_EXTENDED = frozenset((_PAX, _PAX_SUN, _GLOBAL, _LONG_NAME, _LONG_TARGET))


class TarReader:
    """One layer. `members` is read once; between two members `read`, `pieces` and `copy` use the current one's data."""

    def __init__(self, stream: Stream, warnings: Warnings) -> None:
        self._stream = stream
        self._warnings = warnings
        self._at = 0  # position of the current member's unread data
        self._next = 0  # position of the next header
        self._end = 0  # end of the data of the last member read by `_special`
        self._globals: dict[bytes, bytes] = {}
        self._own: dict[bytes, bytes] = {}  # records of the next member only
        self._extended = False  # whether `_globals` or `_own` has records

    def members(self) -> Iterator[Member]:
        """Every member in order, without extended headers and unknown types (a warning). Raises Malformed.

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
        """Read exactly the next `size` bytes of the current member. Raises Malformed if the layer ends before."""
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
        """The next `size` bytes of the current member in pieces, without copying; raises like `read` when iterated."""
        start, self._at = self._at, self._at + size
        return self._stream.pieces(start, size)

    def copy(self, size: int, extents: Extents | None, data: DataWriter) -> Content:
        """Pass the current member's file of `size` bytes to `data`. Raises Malformed and the errors of `data`."""
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
        """The member for anything but a plain file; None for extended headers and unknown types. Raises Malformed."""
        kind, size = block[156], number(block[124:136])
        if size < 0:
            raise Malformed(f"is damaged: {printable_name(header_name(block))} has a size of {size}")
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
            raise Malformed(f"{error} (at {printable_name(name)})") from error

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
        """A file's extents (None: no holes), its size in bytes, and how many of these are stored. Raises Malformed."""
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
        """Whether the layer continues after this block, whose checksum is wrong. Raises Malformed for damage.

        Some tools omit the zeros after the last member's data, which ends at byte `end`: its padding and the two empty
        blocks.
        """
        if len(block) == 512 and block != _ZERO:
            signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:])
            if number(block[148:156]) != signed + 256:  # some old tars add signed bytes
                raise Malformed(f"is damaged, or no tar: there is no tar header at its byte {self._next}")
            return True
        if self._stream.end < end or any(block):
            raise Malformed(
                f"is truncated: it ends inside a {'header' if block else 'file'}, at byte {self._stream.end}"
            )
        if self._own:
            raise Malformed("is truncated: it ends after an extended header")
        if block and any(self._stream.take(self._next + 512, 512)):  # two empty blocks are the end
            raise Malformed(f"is damaged: there is one empty block at its byte {self._next}, followed by data")
        # always to the stream's end: damage there is damage too
        if sum(len(view) - bytes(view).count(0) for view in self._stream.rest(self._next + len(block))):
            self._warnings.count("said", "a layer has data after its end, which was ignored")
        return False
