"""A layer's bytes: compressed, as a Blob; uncompressed, as a Stream, a window of one chunk that moves forward."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, Protocol

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


class Replaced(Exception):  # noqa: N818 - not an error: what was read has to be read again
    """What was read of a blob is not what is there now. Whatever was made of it is to be thrown away."""


class Blob(Protocol):
    """A layer's compressed bytes, wherever they are."""

    @property
    def digest(self) -> str:
        """`sha256:…`, or empty without a promise."""

    @property
    def diff_id(self) -> str:
        """`sha256:…` of the uncompressed bytes, or empty where it is not stated."""

    @property
    def size(self) -> int:
        """Compressed bytes."""

    def open(self) -> BinaryIO:
        """Read from the first byte; may block until the bytes are there; may be called more than once.

        The read that finds the end raises ImageError unless what was read has the promised digest. Raises Replaced.
        """

    def seekable(self) -> BinaryIO:
        """The same bytes in any order, waited for, and held against nothing. Raises Replaced."""


class Stream:
    """The window: `chunk` begins at byte `base` of the layer. Positions are counted from the layer's start."""

    __slots__ = ("_chunks", "base", "chunk")

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.chunk = b""
        self.base = 0

    @property
    def end(self) -> int:
        """Position behind the window."""
        return self.base + len(self.chunk)

    def take(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`, fewer only at the layer's end. Moves the window forward, never back."""
        start = position - self.base
        if start + size <= len(self.chunk):
            return self.chunk[start : start + size]
        return b"".join(self._views(position, size))

    def pieces(self, position: int, size: int) -> Iterator[memoryview]:
        """Exactly `size` bytes at `position`, as views of the chunks. Raises Malformed where the layer ends before."""
        for view in self._views(position, size):
            size -= len(view)
            yield view
        if size:
            raise Malformed(f"is cut: it ends {size} bytes before the end of a file")

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
