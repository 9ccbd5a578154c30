"""References: modules whose image is in another tree's store, and the marks there that keep it."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.config.name import ModuleName
from sifmod.errors import FetchError, OptionError
from sifmod.system import reason
from sifmod.tree.layout import Layout
from sifmod.tree.mark import LINK, is_name, leave, remove
from sifmod.tree.receipt import ImageRecord, Installation, known_modules, live, numbers, read_receipt
from sifmod.tree.stored_image import keeper

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter


@contextmanager
def referring(layout: Layout, module: ModuleName, image: Path | None, reporter: "Reporter") -> Iterator[Path | None]:
    """Leave a mark if the image is in another tree's store; yields the mark, or None if none is needed or possible.

    A new mark is removed if the block fails. Raises FetchError if a gc there has removed the image meanwhile.
    """
    if image is None or (prefix := keeper(layout, image)) is None or (store := _tree(prefix)) is None:
        yield None
        return
    sha256, new = image.resolve().stem, False
    mark: Path | None = None
    try:
        mark, new = leave(store, sha256, layout.prefix)
    except OSError as error:
        reporter.say(
            f"warning: {module} uses {image}, and no mark can be left in {prefix} ({reason(error)}): `sifmod gc` there "
            f"removes the image once no module there uses it; --link copy makes a copy for {module}"
        )
    else:
        reporter.say(f"{module} uses {image} without a copy; a mark there keeps the image")
    try:
        if not image.is_file():
            raise FetchError(f"{image} was removed meanwhile, as by gc", "repeat the command")
        yield mark
    except BaseException:
        if new:
            with suppress(OSError):
                remove(store, sha256, layout.prefix)
        raise


def renew(layout: Layout, installation: Installation) -> None:
    """Renew the mark of a module that refers to another tree's image, if possible."""
    for link in installation.links:
        image, name = installation.image, Path(link.target).name
        if link.path == LINK and is_name(name) and image and (store := _store(image)):
            with suppress(OSError):
                leave(store, image.sha256, layout.prefix, name)


def release(layout: Layout, images: Collection[ImageRecord | None], *, live_only: bool = False) -> None:
    """Remove the marks for those `images` that no generation uses; `live_only`: that no live module uses.

    A mark that cannot be removed expires.
    """
    stores = {image: store for image in images if image and (store := _store(image))}
    with suppress(OSError):
        used = _used(layout, live_only=live_only) if stores else frozenset()
        for image, store in stores.items():
            if image.path not in used:
                remove(store, image.sha256, layout.prefix)


def _store(image: ImageRecord) -> Layout | None:
    """The tree whose store a reference points to, even if the image is gone; None for an image that is no reference."""
    real = Path(image.path).resolve()
    of_store = image.link == "reference" and real.parent.parts[-2:] == ("images", "sha256")
    return _tree(real.parents[2]) if of_store else None


def _tree(prefix: Path) -> Layout | None:
    with suppress(OptionError):  # a receipt that another user wrote may name a path that is no prefix
        return Layout(prefix)
    return None


def _used(layout: Layout, *, live_only: bool = False) -> frozenset[str]:
    """The paths of the images that the tree's generations use, or only the live ones."""
    found = []
    for module in known_modules(layout):
        if live_only:
            found.append(live(layout, module))
        else:
            found += [read_receipt(layout.generation(module, number)) for number in numbers(layout, module)]
    return frozenset(one.image.path for one in found if one and one.image)
