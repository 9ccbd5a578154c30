"""Paths in a layer: cleaned lexically, so that none leads out of the root."""

from sifmod.image.convert.layers.malformed import Malformed, shown
from sifmod.image.convert.layers.member import NAME

OPAQUE = b".wh..opq"
"""What `whited_out` gives for the marker of an opaque directory."""

_PREFIX, _OWN = b".wh.", b".wh..wh."
Parts = tuple[bytes, ...]


def cleaned(path: bytes) -> Parts:
    """The names from the root on; `.`, `..`, doubled and leading slashes resolved; empty for the root itself."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            if len(part) > NAME:
                raise Malformed(f"has a name of {len(part)} bytes; Linux takes {NAME}: {shown(path)}")
            parts.append(part)
    return tuple(parts)


def marks(parts: Parts) -> list[int]:
    """A number for each directory on the way and for the path itself; two paths hardly ever have the same."""
    found, above = [], 0
    for part in parts:
        above = hash((above, part))
        found.append(above)
    return found


def mark(parts: Parts) -> int:
    """The number of a path, which is not the root."""
    return marks(parts)[-1]


def is_whiteout(name: bytes) -> bool:
    """Whether an entry of this name, of whatever type, is a whiteout."""
    return name.startswith(_PREFIX)


def whited_out(name: bytes) -> bytes | None:
    """The name that a whiteout removes; OPAQUE for everything in its directory; None for other tools' own markers."""
    target = name.removeprefix(_PREFIX)
    if name.startswith(_OWN):
        return OPAQUE if target == OPAQUE else None
    if target in (b"", b".", b".."):
        raise Malformed(f"is damaged: it has a whiteout of no name: {shown(name)}")
    return target
