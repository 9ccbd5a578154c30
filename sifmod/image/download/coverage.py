"""Coverage: which bytes of a file are there."""

from bisect import bisect_left, bisect_right

Span = tuple[int, int]
"""From a byte, to before a byte."""


class Coverage:
    """Spans that do not touch each other, in order. Not safe for threads."""

    def __init__(self, spans: tuple[Span, ...] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """The bytes from `start` to before `end` are there now."""
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
        """What is there."""
        return tuple(zip(self._starts, self._ends, strict=True))

    @property
    def front(self) -> int:
        """How many bytes are there from the beginning without a gap."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    @property
    def total(self) -> int:
        """How many bytes are there."""
        return sum(self._ends) - sum(self._starts)

    def missing(self, size: int) -> tuple[Span, ...]:
        """What is not there of `size` bytes."""
        starts = (0, *self._ends)
        ends = (*self._starts, size)
        return tuple((start, min(end, size)) for start, end in zip(starts, ends, strict=True) if start < min(end, size))


def pieces(spans: tuple[Span, ...], length: int) -> tuple[Span, ...]:
    """The spans cut where they are longer than `length`, at its multiples, so that a resumed file is cut alike."""
    cut: list[Span] = []
    for start, end in spans:
        at = start
        while at < end:
            stop = min(end, (at // length + 1) * length)
            cut.append((at, stop))
            at = stop
    return tuple(cut)
