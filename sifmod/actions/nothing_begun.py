"""A tree that a failed run began is taken away again."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sifmod.tree.layout import Layout


@contextmanager
def nothing_begun(layout: Layout) -> Iterator[None]:
    """When the block fails, remove the places of a tree that it made and in which nothing came to be."""
    prefix = layout.prefix
    made_here = tuple(place for place in (prefix, *prefix.parents) if not place.exists())
    try:
        yield
    except BaseException:
        if made_here:
            for place in (layout.staging, layout.locks, layout.images, layout.images.parent, *made_here):
                with suppress(OSError):
                    place.rmdir()
        raise
