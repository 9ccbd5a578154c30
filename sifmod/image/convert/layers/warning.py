"""Warnings: what of the layers did not get into the root file system, counted."""

from collections import Counter

_KINDS = 100  # so that an image cannot fill the memory with names


class Warnings:
    """Counts by kind; `texts` says them, in the order in which they were first met."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def dropped(self, what: str) -> None:
        """An attribute of one file."""
        self._count("dropped", what)

    def skipped(self, what: str) -> None:
        """A whole entry."""
        self._count("skipped", what)

    def said(self, text: str) -> None:
        """Something about a layer."""
        self._count("said", text)

    def texts(self) -> tuple[str, ...]:
        """One line for each kind."""
        return tuple(_text(kind, what, count) for (kind, what), count in self._counts.items())

    def _count(self, kind: str, what: str) -> None:
        known = (kind, what) in self._counts or len(self._counts) < _KINDS
        self._counts[(kind, what) if known else ("more", "")] += 1


def _text(kind: str, what: str, count: int) -> str:
    match kind:
        case "dropped":
            return f"{what} of {count} file{'' if count == 1 else 's'} dropped"
        case "skipped":
            return f"{count} {'entry' if count == 1 else 'entries'} skipped: {what}"
        case "more":
            return f"and {count} more of other kinds"
    return what
