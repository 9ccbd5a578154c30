"""Whiteouts: names by which a layer removes what lower layers have (OCI image specification, layer.md)."""

from sifmod.image.convert.layers.malformed import Malformed, shown

OPAQUE = b".wh..opq"
"""What `whited_out` gives for the marker of an opaque directory."""

_PREFIX, _OWN = b".wh.", b".wh..wh."


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
