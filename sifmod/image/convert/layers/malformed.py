"""Malformed: what is wrong with one layer, before it is known which layer that is."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from sifmod.errors import ImageError

_KINDS = 100  # so that an image cannot fill the memory with names


class Malformed(Exception):  # noqa: N818 - caught inside this package, always
    """A layer cannot be read; the text says why, and names the entry."""


@contextmanager
def naming(digest: str) -> Iterator[None]:
    """Raise ImageError that names the layer for what is Malformed inside."""
    try:
        yield
    except Malformed as error:
        raise ImageError(f"layer {digest or 'without a digest'} {error}; nothing was converted") from error


def shown(name: bytes) -> str:
    """A name as a message shows it: short, and one line whatever is in it."""
    text = name.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 200 else f"{text[:100]}…{text[-80:]}"


class Warnings:
    """Counts by kind; `texts` says them, in the order in which they were first met."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, kind: Literal["dropped", "skipped", "said"], what: str) -> None:
        """An attribute of one file was dropped, or a whole entry skipped; or something is said about a layer."""
        known = (kind, what) in self._counts or len(self._counts) < _KINDS
        self._counts[(kind, what) if known else ("more", "")] += 1

    def texts(self) -> tuple[str, ...]:
        """One line for each kind."""
        return tuple(_text(kind, what, count) for (kind, what), count in self._counts.items())


def _text(kind: str, what: str, count: int) -> str:
    match kind:
        case "dropped":
            return f"{what} of {count} file{'' if count == 1 else 's'} dropped"
        case "skipped":
            return f"{count} {'entry' if count == 1 else 'entries'} skipped: {what}"
        case "more":
            return f"and {count} more of other kinds"
    return what
