"""A stream: a layer's uncompressed bytes as a window of one chunk that moves forward."""

from collections.abc import Iterator

from sifmod.image.convert.layers.malformed import Malformed


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
