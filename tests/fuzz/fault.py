"""A Fault: a few characters of one file replaced by others."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Fault:
    """Bytes `start` to `end` of the file at `path` become `after`; `lines` is the statement that they are in."""

    path: str
    line: int
    operator: str
    start: int
    end: int
    after: str
    lines: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # what a statement outside functions defines

    def put_into(self, source: bytes) -> bytes:
        """The file with the fault in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def shown(self, source: bytes) -> str:
        """before → after, each on one line and cut where both are the same for long."""
        before, after = (" ".join(text.split()) for text in (source[self.start : self.end].decode(), self.after))
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        if same > 40 and len(before) > 100:
            before, after = (f"…{text[same - 20 :]}" for text in (before, after))
        before, after = (text if len(text) < 120 else f"{text[:115]} …" for text in (before, after))
        return f"{before} → {after or 'nothing'}"


def code_lines(text: str) -> int:
    """Lines that are neither blank nor comments."""
    return sum(1 for line in text.splitlines() if not re.match(r"\s*(#|--|$)", line))
