"""A layer's bytes: compressed, as a Blob; uncompressed, as a Stream, a window of one chunk that moves forward."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, Protocol

from sifmod.errors import ImageError

_KINDS = 100  # of warnings; limits the memory for names in them


class Malformed(Exception):  # noqa: N818 - caught inside this package, always
    """A layer cannot be read; the text has the reason and, if it concerns one, the entry."""


@contextmanager
def naming(digest: str) -> Iterator[None]:
    """Convert Malformed to an ImageError that names the layer."""
    try:
        yield
    except Malformed as error:
        raise ImageError(f"layer {digest or 'without a digest'} {error}; nothing was converted") from error


def printable_name(name: bytes) -> str:
    """A name for messages: short, in one line."""
    text = name.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 200 else f"{text[:100]}…{text[-80:]}"


class Warnings:
    """Counts warnings by kind; `texts` lists them in order of first occurrence."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, kind: Literal["dropped", "skipped", "said"], what: str) -> None:
        """Count a dropped attribute or skipped entry of one file, or a warning about a layer."""
        known = (kind, what) in self._counts or len(self._counts) < _KINDS
        self._counts[(kind, what) if known else ("more", "")] += 1

    def texts(self) -> tuple[str, ...]:
        """One line per kind; one more for all kinds after the first 100."""
        return tuple(_text(kind, what, count) for (kind, what), count in self._counts.items())


def _text(kind: str, what: str, count: int) -> str:
    match kind:
        case "dropped":
            return f"{what} of {count} file{'' if count == 1 else 's'} dropped"
        case "skipped":
            return f"{count} {'entry' if count == 1 else 'entries'} skipped: {what}"
        case "more":
            return f"and {count} more warnings of other kinds"
    return what


class Replaced(Exception):  # noqa: N818 - not an error: what was read has to be read again
    """A blob has changed since it was read. Discard everything derived from it."""


class Blob(Protocol):
    """A layer's compressed bytes, at any location."""

    @property
    def digest(self) -> str:
        """`sha256:…`, or empty if unknown."""

    @property
    def diff_id(self) -> str:
        """`sha256:…` of the uncompressed bytes, or empty if unknown."""

    @property
    def size(self) -> int:
        """The number of compressed bytes."""

    def open(self) -> BinaryIO:
        """A file at the first byte; may be called more than once.

        Reads may block until bytes arrive. The read at the end raises ImageError unless the bytes have the expected
        digest. Reads raise Replaced if the blob has changed.
        """

    def seekable(self) -> BinaryIO:
        """The bytes of `open` in any order, without verification. Reads may block, and raise Replaced."""


class Stream:
    """A layer's uncompressed bytes, of which `chunk`, the window, starts at byte `base`.

    Positions are counted from the layer's start, and not before `base`.
    """

    __slots__ = ("_chunks", "base", "chunk")

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.chunk = b""
        self.base = 0

    @property
    def end(self) -> int:
        """The position after the window."""
        return self.base + len(self.chunk)

    def take(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`, fewer only at the layer's end. Moves the window forward, never back."""
        start = position - self.base
        if start + size <= len(self.chunk):
            return self.chunk[start : start + size]
        return b"".join(self._views(position, size))

    def pieces(self, position: int, size: int) -> Iterator[memoryview]:
        """Exactly `size` bytes at `position`, as views of the chunks. Raises Malformed if the layer ends before."""
        for view in self._views(position, size):
            size -= len(view)
            yield view
        if size:
            raise Malformed(f"is truncated: it ends {size} bytes before the end of a file")

    def rest(self, position: int) -> Iterator[memoryview]:
        """Everything from `position` on."""
        return self._views(position, 1 << 63)

    def _views(self, position: int, size: int) -> Iterator[memoryview]:
        while size:
            start = position - self.base
            if start < len(self.chunk):
                view = memoryview(self.chunk)[start : start + size]
                yield view
                position += len(view)
                size -= len(view)
            elif not self._advance():
                return

    def _advance(self) -> bool:
        following = next(self._chunks, None)
        if following is None:
            return False
        self.base += len(self.chunk)
        self.chunk = following
        return True
