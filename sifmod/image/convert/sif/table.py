"""A SIF's descriptors in full: groups, links and names, and the bytes of them that a signature covers."""

import struct
from dataclasses import dataclass
from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.convert.sif.format import DESCRIPTOR, GROUP_MASK, HEADER, MOST_DESCRIPTORS, kind_of
from sifmod.image.disk import reading

_COVERED = struct.Struct("<iBIIqqqq128s384s")


@dataclass(frozen=True)
class SifObject:
    """One data object. `group` is 0 for none; `link` is the number of the object, or group, that it is about."""

    type: int
    id: int
    group: int
    link: int
    links_group: bool
    offset: int  # bytes
    size: int
    name: str
    extra: bytes
    raw: bytes  # the whole descriptor

    @property
    def title(self) -> str:
        """What to call it in a message: `partition (object 4)`."""
        named = f" {self.name}" if self.name and self.name.isprintable() else ""
        return f"{kind_of(self.type)}{named} (object {self.id})"

    def covered(self, relative: int) -> bytes:
        """The bytes of the descriptor that a signature covers, where its number in its group is `relative`."""
        row = DESCRIPTOR.unpack(self.raw)
        kind, used, _, _, link, _, size, _, created, _, uid, gid, name, extra = row
        return _COVERED.pack(kind, used, relative, link, size, created, uid, gid, name, extra)


@dataclass(frozen=True)
class SifTable:
    """What the header and the table of a SIF say; `header` are the bytes of the header that a signature covers."""

    header: bytes
    objects: tuple[SifObject, ...]

    def first(self, group: int) -> int:
        """The lowest object number in `group`; signatures count from it."""
        return min((entry.id for entry in self.objects if entry.group == group), default=0)


def read_table(path: Path) -> SifTable:
    """Read the table of a SIF that read_sif has found in order. Raises what read_sif raises."""
    with reading(path), path.open("rb") as file:
        start = file.read(HEADER.size)
        if len(start) < HEADER.size:
            raise ImageError(f"{path} is truncated: {len(start)} bytes")
        launch, magic, version, _, identity, *numbers = HEADER.unpack(start)
        total, offset = numbers[3], numbers[4]
        if not 0 < total <= MOST_DESCRIPTORS or offset < HEADER.size:
            raise ImageError(f"{path} is a damaged SIF: its header speaks of {total} descriptors at {offset}")
        file.seek(offset)
        table = file.read(total * DESCRIPTOR.size)
    rows = [table[at : at + DESCRIPTOR.size] for at in range(0, len(table), DESCRIPTOR.size)]
    objects = tuple(_object(row) for row in rows if len(row) == DESCRIPTOR.size and row[4])
    if len({entry.id for entry in objects}) != len(objects):
        raise ImageError(f"{path} is a damaged SIF: two of its objects have the same number")
    return SifTable(launch + magic + version + identity, objects)


def _object(raw: bytes) -> SifObject:
    row = DESCRIPTOR.unpack(raw)
    kind, _, number, group, link, offset, size, *_, name, extra = row
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    links_group = link & GROUP_MASK == GROUP_MASK
    place = (group & ~GROUP_MASK, link & ~GROUP_MASK, links_group, offset, size)
    return SifObject(kind, number, *place, text, extra, raw)
