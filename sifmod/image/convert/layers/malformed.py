"""Malformed: what is wrong with one layer, before it is known which layer that is."""

from collections.abc import Iterator
from contextlib import contextmanager

from sifmod.errors import ImageError


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
