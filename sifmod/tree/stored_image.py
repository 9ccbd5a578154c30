"""A StoredImage: an image of a store, with what is recorded beside it."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_file
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin, from_fields
from sifmod.tree.durable import names, parsed
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import known_modules, numbers


@dataclass(frozen=True)
class Given:
    """What gave an image: a normalized source, without tag and digest, and the index and manifest that it had."""

    source: str
    index: str
    manifest: str


class StoredImage(NamedTuple):
    """An image with a receipt in the store."""

    sha256: str
    size: int  # bytes, when it was added
    added: float  # seconds since 1970
    path: Path  # may have been removed by hand
    origin: ImageOrigin = NO_ORIGIN
    given: tuple[Given, ...] = ()


def read_stored(layout: Layout, sha256: str) -> StoredImage | None:
    """The store's receipt of the image with this digest; None if it is missing, closed, damaged or removed meanwhile.

    Raises OSError if the disk fails.
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

    with suppress(FileNotFoundError):
        return parsed(record, image)
    return None


def given_by(image: StoredImage, origin: ImageOrigin, source: str) -> StoredImage:
    """The image with `source` among its sources; its known origin stays, unless `origin` is of another conversion."""
    new = Given(source, origin.index, origin.manifest)
    given = image.given if new in image.given or not (source and origin.manifest) else (*image.given, new)
    before = image.origin
    other_conversion = origin.compression and (origin.compression, origin.tools) != (before.compression, before.tools)
    return image._replace(origin=origin if other_conversion or not before.manifest else before, given=given)


def entries(layout: Layout) -> tuple[StoredImage, ...]:
    """Every image with a receipt, sorted by digest."""
    stems: list[str] = []
    with suppress(PermissionError):
        stems = [name.removesuffix(".json") for name in names(layout.images) if name.endswith(".json")]
    found = (read_stored(layout, stem) for stem in stems if "." not in stem)  # else it is an inventory
    return tuple(image for image in found if image is not None)


def origin_for(image: StoredImage, source: str, digest: str) -> ImageOrigin | None:
    """The origin of the image, if `source` gave it for `digest` (of an index or a manifest); else None."""
    given = (one for one in image.given if digest and one.source == source and digest in (one.index, one.manifest))
    if (first := next(given, None)) is None:
        return None
    return replace(image.origin, index=digest if digest != first.manifest else "", manifest=first.manifest)


def keeper(layout: Layout, path: Path) -> Path | None:
    """The prefix whose store contains the file at `path`, also through links; None if it is in no store.

    Also None for an image path in this tree's own store: a generation that links to it keeps it.
    """
    real = Path(os.path.realpath(path))
    stored = real.parent.parts[-2:] == ("images", "sha256") and real.with_suffix(".json").is_file()
    return real.parents[2] if stored and path != layout.image(real.stem) else None


def has_its_size(image: StoredImage) -> bool:
    """Whether the image exists with its original size; raises OSError."""
    return image.path.is_file() and image.path.stat().st_size == image.size


def stored_at(prefix: Path, sha256: str) -> StoredImage | None:
    """The image in the store of a tree, if its receipt is readable and its size right; else None. Writes nothing."""
    with suppress(OSError):
        if (known := read_stored(Layout(prefix), sha256)) and has_its_size(known):
            return known
    return None


def is_whole(image: StoredImage) -> bool:
    """Whether the image's content matches its digest; False for an unreadable one."""
    try:
        return has_its_size(image) and sha256_file(image.path) == image.path.stem
    except OSError:
        return False


def used_images(root: Path) -> frozenset[str]:
    """The digests of stored images that links in the generation at `root` point to, regardless of its receipt.

    A generation that another run removes meanwhile uses none. Raises OSError.
    """
    found = set()
    with suppress(FileNotFoundError), os.scandir(root) as within:
        for entry in within:
            with suppress(FileNotFoundError):
                if entry.is_symlink():
                    target = Path(os.readlink(entry.path))  # noqa: PTH115 (an entry's path is a text)
                    if target.suffix == ".sif" and target.parent.name == "sha256":
                        found.add(target.stem)
    return frozenset(found)


def all_used_images(layout: Layout) -> frozenset[str]:
    """The digests that any generation in the tree uses, live or not."""
    roots = (
        layout.generation(module, number) for module in known_modules(layout) for number in numbers(layout, module)
    )
    return frozenset(sha256 for root in roots for sha256 in used_images(root))
