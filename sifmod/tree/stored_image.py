"""A StoredImage: what the store's receipt says of an image, and whether the image is still that."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_file
from sifmod.module.origin import NO_ORIGIN, ImageOrigin, from_fields
from sifmod.tree.disk import READ_ONLY, content, is_there, move, parsed, take, write
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held


@dataclass(frozen=True)
class Given:
    """What gave an image: a source in its one spelling, without tag and digest, and what it stood for there."""

    source: str
    index: str
    manifest: str


class StoredImage(NamedTuple):
    """An image that the store has a receipt of."""

    sha256: str
    size: int  # bytes, as it was put in
    added: float  # seconds since 1970
    path: Path  # it may have been removed by hand
    origin: ImageOrigin = NO_ORIGIN
    given: tuple[Given, ...] = ()


def read_stored(layout: Layout, sha256: str) -> StoredImage | None:
    """What the store's receipt says of the image of this digest; None where there is none, or a damaged one.

    Raises OSError where the disk does not give it.
    """
    path = layout.image(sha256)
    record = path.with_suffix(".json")

    def image(data: bytes) -> StoredImage | None:
        fields = json.loads(data)
        if fields["sha256"] != sha256 or type(fields["size"]) is not int:
            return None
        origin = from_fields(fields["origin"]) if "origin" in fields else NO_ORIGIN
        given = tuple(Given(**{key: str(value) for key, value in one.items()}) for one in fields.get("given", ()))
        return StoredImage(sha256, fields["size"], record.stat().st_mtime, path, origin, given)

    return parsed(record, image)


def given_by(image: StoredImage, origin: ImageOrigin, source: str) -> StoredImage:
    """The image with `source` among what gave it. Of two origins that of a conversion counts, of two such the new."""
    new = Given(source, origin.index, origin.manifest)
    given = image.given if new in image.given or not (source and origin.manifest) else (*image.given, new)
    before = image.origin
    made_anew = origin.compression and (origin.compression, origin.tools) != (before.compression, before.tools)
    return image._replace(origin=origin if made_anew or not before.manifest else before, given=given)


def entries(layout: Layout) -> tuple[StoredImage, ...]:
    """Every image that the store has a receipt of, sorted by digest."""
    stems = (path.stem for path in sorted(layout.images.glob("*.json")))
    found = (read_stored(layout, stem) for stem in stems if "." not in stem)  # else it is an inventory
    return tuple(image for image in found if image is not None)


def origin_for(image: StoredImage, source: str, digest: str) -> ImageOrigin | None:
    """What the image was made from, if `source` gave it for `digest`, which is of an index or a manifest."""
    given = (one for one in image.given if digest and one.source == source and digest in (one.index, one.manifest))
    if (first := next(given, None)) is None:
        return None
    return replace(image.origin, index=digest if digest != first.manifest else "", manifest=first.manifest)


def keeper(layout: Layout, path: Path) -> Path | None:
    """The prefix in whose store the file at `path` lies, through links too; None for a file of no store.

    None too for the path that this tree's own store has for an image: a generation that links to it keeps it.
    """
    real = Path(os.path.realpath(path))
    stored = real.parent.parts[-2:] == ("images", "sha256") and real.with_suffix(".json").is_file()
    return real.parents[2] if stored and path != layout.image(real.stem) else None


def has_its_size(image: StoredImage) -> bool:
    """Whether it is there, as large as it was put in; raises OSError."""
    return image.path.is_file() and image.path.stat().st_size == image.size


def is_whole(image: StoredImage) -> bool:
    """Whether it is what its name says; one that the disk cannot give back is not."""
    try:
        return has_its_size(image) and sha256_file(image.path) == image.path.stem
    except OSError:
        return False


def read_kept(layout: Layout, sha256: str) -> bytes | None:
    """The inventory of an image; None where none is kept that can be read. Raises OSError where the disk fails."""
    return content(layout.inventory(sha256))


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
