"""A blob: one layer as a registry stores it."""

from typing import BinaryIO, Protocol


class Blob(Protocol):
    """A layer's compressed bytes, wherever they are."""

    @property
    def digest(self) -> str:
        """`sha256:…`, or empty where nobody promised one."""

    @property
    def media_type(self) -> str:
        """What the manifest says it is; the content decides."""

    @property
    def size(self) -> int:
        """Compressed bytes."""

    def open(self) -> BinaryIO:
        """Read from the first byte; may block until the bytes are there; may be called more than once."""
