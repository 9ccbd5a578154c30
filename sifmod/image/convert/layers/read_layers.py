"""Read layers, the uppermost first: write the data of files that no upper layer hides, and record all entries in order.

Which files are hidden is decided by paths as text, after `.` and `..` are resolved; symlinks in them are not followed.
This only decides when data is written: merge_layers.py decides what the records give, and data that is missing then is
read later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.inode import OWNER, Content, Entries
from sifmod.image.convert.layers.member import (
    DIRECTORY,
    HARD_LINK,
    NAME,
    OPAQUE,
    REGULAR,
    SYMLINK,
    Member,
    Parts,
    cleaned,
    is_whiteout,
    whited_out,
)
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.squashfs.superblock import BLOCK
from sifmod.image.convert.squashfs.writer import DataWriter


class Files(NamedTuple):
    """Plain small files in a row, all in one directory, with their data written."""

    head: bytes  # the directory's path as the layer writes it
    files: Entries


class Special(NamedTuple):
    """Any other entry. `content` is that of a regular file whose data is written."""

    member: Member
    number: int  # among the regular files of its layer
    content: Content | None


class Whiteout(NamedTuple):
    """The removal of an entry of lower layers; of all in the directory for OPAQUE."""

    directory: Parts
    name: bytes


Record = list[Files | Special | Whiteout]
"""The entries of one layer, in their order."""


@dataclass(slots=True, eq=False)
class _Above:
    """A directory in upper layers; one that is not `real` is only known from whiteouts in it."""

    real: bool = False
    closed: bool = False  # lower layers have nothing in it
    layer: int = 0  # the lowest so far that uses it
    through: bool = False  # that layer has entries in it before its own entry, which a lower symlink leads elsewhere
    # directories that lower layers may add to; None for names that are hidden with all below them
    names: "dict[bytes, _Above | None]" = field(default_factory=dict)


_UNKNOWN = _Above()
_LINKS_AND_FILES = (REGULAR, SYMLINK, HARD_LINK)
_Heads = dict[bytes, Mapping[bytes, object] | None]


class LayersReader:
    """Reads one layer after the other; `read` is called for the uppermost first."""

    def __init__(self, data: DataWriter, watch: CpuWatch) -> None:
        self._data = data
        self._watch = watch
        self._above = _Above(real=True)
        self._layer = 0
        self._last: Record = []  # the layer above, whose entries hide those of the next one

    def read(self, reader: TarReader) -> Record:
        """Write the data of the next layer below, and return its entries. Raises Malformed."""
        self._layer += 1
        self._hide(self._last)
        # names that files cannot have, by the path of their directory as this layer writes it; None: all are hidden
        heads: _Heads = {}
        self._last = record = Record()
        names_in, small = heads.get, self._data.small
        number, last, owner = -1, None, b""
        row: bytes | None = None  # the directory of the last entry, if that is a plain file
        files: Entries = {}
        for members in self._watch.runs(reader.members()):
            for member in members:  # the hot loop, for plain small files
                kind, name, attributes, size, _, _, extents = member
                if kind == REGULAR:
                    number += 1
                    head, _, tail = name.rpartition(b"/")
                    if attributes is not last:
                        last, owner = attributes, b"" if attributes[4] else OWNER.pack(*attributes[:4])
                    # "0" comes after ".", so whiteouts, `.` and `..` take the slow path
                    if (
                        tail >= b"0"
                        and size < BLOCK
                        and (names := names_in(head)) is not None
                        and tail not in names
                        and len(tail) <= NAME
                        and extents is None
                        and owner
                    ):
                        if head != row:
                            row, files = head, {}
                            record.append(Files(head, files))
                        files[tail] = owner + small(reader.read(size))
                        continue
                row = None
                if entry := self._entry(reader, member, number, heads):
                    record.append(entry)
        return record

    def _entry(self, reader: TarReader, member: Member, number: int, heads: _Heads) -> Special | Whiteout | None:
        """An entry, its data written if it is a visible file; None for markers of other tools. Raises Malformed."""
        parts, content = cleaned(member.name), None
        if parts and is_whiteout(parts[-1]):
            removed = whited_out(parts[-1])
            return Whiteout(parts[:-1], removed) if removed else None
        names = self._names(parts[:-1]) if parts and member.kind in _LINKS_AND_FILES else None
        above = None if names is None else names.get(parts[-1], _UNKNOWN)
        if above is not None and member.kind == REGULAR:
            head, _, tail = member.name.rpartition(b"/")
            if tail == parts[-1]:
                heads[head] = names
            if not above.real:
                content = reader.copy(member.size, member.extents, self._data)
        elif above is not None and above.through:
            # upper layers' entries may be at other paths, and hide other files: data is read when the tree is known
            self._above.closed = True
            heads.clear()
        return Special(member, number, content)

    def _names(self, parts: Parts) -> "Mapping[bytes, _Above | None] | None":
        """The names in a directory of upper layers; None if nothing in it can be visible."""
        above = self._above
        for name in parts:
            following = None if above.closed else above.names.get(name, _UNKNOWN)
            if following is None:
                return None
            above = following
        return None if above.closed else above.names

    def _hide(self, record: Record) -> None:
        """Hide what these entries replace or remove from lower layers. Raises ImageError for too much memory."""
        for entry in chain.from_iterable(self._watch.runs(iter(record))):
            names: Iterable[bytes]
            match entry:
                case Files(head, names):
                    above = self._at(cleaned(head))
                case Whiteout(directory, name):
                    above, names = self._at(directory, real=False), (name,)
                case Special(member) if member.kind == DIRECTORY:
                    above, names = self._at(cleaned(member.name), own=True), ()
                case Special(member):
                    parts = cleaned(member.name)
                    above, names = self._at(parts[:-1]), parts[-1:]
            if above:
                above.names.update(dict.fromkeys(names))
                above.closed = OPAQUE in names

    def _at(self, parts: Parts, *, real: bool = True, own: bool = False) -> _Above | None:
        """The directory that this path, its `own` entry or one in it uses; None if all of lower layers is hidden."""
        above = self._above
        for depth, name in enumerate(parts, 1):
            following = None if above.closed else above.names.setdefault(name, _Above())
            if following is None:
                return None
            following.real = following.real or real
            if following.layer != self._layer:
                following.layer, following.through = self._layer, not own or depth < len(parts)
            above = following
        return None if above.closed else above
