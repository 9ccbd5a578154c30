"""Lenders: the stores of other trees, in which an image is looked for that this tree's own store lacks."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sifmod.module.origin import ImageOrigin
from sifmod.tree.layout import Layout
from sifmod.tree.stored_image import StoredImage, entries, has_its_size, origin_for, read_stored


class Lenders:
    """Nothing is written there, and what cannot be read there is not there."""

    def __init__(self, prefixes: tuple[Path, ...]) -> None:
        self._layouts = tuple(map(Layout, prefixes))

    def find(self, sha256: str) -> StoredImage | None:
        """The image of this digest, whole by its size; its content is not read."""
        for layout in self._layouts:
            with suppress(OSError):
                if (known := read_stored(layout, sha256)) and has_its_size(known):
                    return known
        return None

    def find_made(self, source: str, digest: str) -> Iterator[tuple[StoredImage, ImageOrigin]]:
        """The images that `source` gave for `digest`, with what they were made from."""
        for layout in self._layouts:
            with suppress(OSError):
                for image in entries(layout):
                    if (origin := origin_for(image, source, digest)) and has_its_size(image):
                        yield image, origin

    def lend(self, path: Path) -> bool:
        """Whether `path` is where one of them has its images."""
        return any(path.parent == layout.images for layout in self._layouts)
