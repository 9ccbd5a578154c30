"""The inventory that is kept beside a stored image, as a text: it can be made again, and goes with its image."""

import os
from contextlib import suppress

from sifmod.tree.disk import READ_ONLY, is_refused, is_there, move, read, take, write
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held


def read_kept(layout: Layout, sha256: str) -> bytes | None:
    """The text; None where none is kept, or none that can be read. Raises OSError where the disk does not give it."""
    try:
        return read(layout.inventory(sha256))
    except OSError as error:
        if is_refused(error):
            return None
        raise


def keep(layout: Layout, sha256: str, text: bytes, held: Held) -> None:
    """Put it beside its image, as open as the image is; nothing where that has been removed meanwhile.

    `held`: the lock under which images are discarded.
    """
    image, place = layout.image(sha256), layout.inventory(sha256)
    with held.changing(f"cannot write {place}"):
        if is_there(image):
            unfinished = held.path("inventory")
            write(unfinished, text, layout.prefix)
            os.chmod(unfinished, image.stat().st_mode & READ_ONLY)  # noqa: PTH101
            move(unfinished, place, layout.prefix)


def discard_kept(layout: Layout, sha256: str, held: Held) -> None:
    """Take it away, before its image; nothing where there is none."""
    with suppress(FileNotFoundError):
        take(layout.inventory(sha256), held.path("discarded"), layout.prefix)
