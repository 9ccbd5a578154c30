"""The pieces of a file on its way: which bytes are there, and which are still to be asked for."""

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sifmod.image.download import journal
from sifmod.image.download.journal import Record, Span
from sifmod.image.remote import Remote

_FIRST = 8 << 20  # bytes of the first request where the size is not known
_SHORTEST, _LONGEST = 8 << 20, 64 << 20  # bytes of a piece


@dataclass
class Piece:
    """Bytes that one thread asks for: from `start` on, which moves, to before `end`; None for all there are."""

    start: int
    end: int | None
    epoch: int


class Coverage:
    """Spans that do not touch each other, in order. Not safe for threads."""

    def __init__(self, spans: tuple[Span, ...] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(zip(self._starts, self._ends, strict=True))

    @property
    def front(self) -> int:
        """How many bytes are there from the beginning without a gap."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def missing(self, size: int) -> tuple[Span, ...]:
        """What is not there of `size` bytes."""
        starts = (0, *self._ends)
        ends = (*self._starts, size)
        return tuple((start, min(end, size)) for start, end in zip(starts, ends, strict=True) if start < min(end, size))


class Pieces:
    """What is there of `remote` in the file `path`, and what is still `todo`. Not safe for threads.

    `size` in bytes and `validator` are what is known of the content, None and "" at first. `resumed` says that
    an earlier run's journal was used.
    """

    def __init__(self, remote: Remote, path: Path, connections: int) -> None:
        self._remote = remote
        self._path = path
        self._connections = connections
        self._written: Record | None = None
        self.size = remote.size
        self.validator = ""
        self.resumed = False
        self.coverage = Coverage()
        self.todo: deque[Span] = deque()

    def load(self) -> bool:
        """Use the journal beside the file where it is of the same content; False where there is none."""
        record = journal.load(self._path)
        if record is None or self.size not in (None, record.size):
            return False
        same = record.digest != "" and record.digest == self._remote.digest
        if not same and (not record.validator or self._remote.by_digest):
            return False
        self.size, self.validator = record.size, record.validator
        self.coverage = Coverage(record.spans)
        self.resumed, self._written = True, record
        return True

    def unsaved(self) -> Record | None:
        """What the journal does not say yet; None where it is up to date, or nothing could be resumed."""
        if self.size is None or not (self._remote.digest or self.validator) or not self.coverage.total:
            return None
        record = Record(self.size, self._remote.digest, self.validator, self.coverage.spans)
        if record == self._written:
            return None
        self._written = record
        return record

    def plan(self, *taken: Span, whole: bool = False) -> None:
        """List what has to be asked for, without what is `taken`; `whole` in one request."""
        if self.size is None:
            self.todo = deque([(0, _FIRST)])
        elif whole:
            self.todo = deque([(0, self.size)] if self.size else [])
        else:
            length = min(max(self.size // (8 * self._connections), _SHORTEST), _LONGEST) >> 20 << 20
            self.todo = deque(cut(Coverage((*self.coverage.spans, *taken)).missing(self.size), length))

    def empty(self) -> None:
        """No byte is there, and of the content only the promise is known."""
        journal.forget(self._path)
        self.coverage = Coverage()
        self.size, self.validator = self._remote.size, ""
        self.resumed, self._written = False, None


def cut(spans: tuple[Span, ...], length: int) -> tuple[Span, ...]:
    """The spans cut where they are longer than `length`, at its multiples, so that a resumed file is cut the same."""
    pieces: list[Span] = []
    for start, end in spans:
        edges = (start, *range((start // length + 1) * length, end, length), end)
        pieces += pairwise(edges)
    return tuple(pieces)
