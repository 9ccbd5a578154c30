"""Paths in a layer: cleaned lexically, so that none leads out of the root."""

from sifmod.image.convert.layers.malformed import Malformed, shown
from sifmod.image.convert.layers.member import NAME

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
