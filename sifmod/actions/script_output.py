"""The output of a module's scripts, and which lines of it say why one of sifmod's own scripts failed."""

import re
from typing import NamedTuple

from sifmod.image.child import Ended

# with this variable, launch.sh, gpu-check and the programs of `sifmod test` print a failure as two fields
AS_FIELDS = {"_SIFMOD_FIELDS": "1"}
FIELDS = "\036{}\037{}\036\n"
_FIELDS = re.compile(FIELDS.format("([^\036\037]*)", "([^\036\037]*)").encode())


class Described(NamedTuple):
    """A line of the output."""

    text: str
    hint: str | None = None  # None: the line is not the failure of a script of sifmod


def said(ended: Ended) -> tuple[Described, ...]:
    """The lines of a command's output; a failure in fields is one line."""
    found: list[Described] = []
    parts = _FIELDS.split(ended.said)
    for at in range(0, len(parts), 3):
        found += map(Described, _lines(parts[at]))
        if message := parts[at + 1 : at + 2]:
            found.append(Described(" ".join(_lines(message[0])), " ".join(_lines(parts[at + 2]))))
    return tuple(found)


def _lines(data: bytes) -> tuple[str, ...]:
    return Ended(0, data).lines
