"""A blob: one layer as a registry stores it."""

from typing import BinaryIO, Protocol


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
    def media_type(self) -> str:
        """What the manifest says it is; the content decides."""

    @property
    def size(self) -> int:
        """Compressed bytes."""

    def open(self) -> BinaryIO:
        """Read from the first byte; may block until the bytes are there; may be called more than once.

        The read that finds the end raises ImageError unless what was read has the promised digest. Raises Replaced.
        """

    def seekable(self) -> BinaryIO:
        """The same bytes in any order, waited for, and held against nothing. Raises Replaced."""
