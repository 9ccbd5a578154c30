"""What is known of installed modules beside their receipts: what is in their images, and what staff have decided."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache

from sifmod.actions.catalogue.entry import Ending, Entry, Pairs
from sifmod.actions.inventory import image_path, inventory_at
from sifmod.errors import SifmodError
from sifmod.tree.layout import Layout
from sifmod.tree.life import Life, NameLife, read_life
from sifmod.tree.receipt import Installation


class Packages:
    """The packages of images; each image is asked once, whichever modules have it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is told what cannot be read."""
        self._say = say
        self._found: dict[str, Pairs] = {}

    def of(self, installation: Installation) -> Pairs:
        """Name and version of all that is known to be in its image, by whichever packager; sorted."""
        if installation.image is None:
            return ()
        sha256 = installation.image.sha256
        if sha256 not in self._found:
            try:
                packages = inventory_at(image_path(installation)).packages
            except (SifmodError, OSError) as error:
                self._say(f"warning: what is in the image of {installation.module} is not known: {error}")
                packages = ()
            self._found[sha256] = tuple(sorted({(one.name, one.version) for one in packages}))
        return self._found[sha256]


def with_life(layout: Layout, entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries that are not hidden, each with what is decided about it. Raises InstallError for a damaged file."""
    life_of = cache(lambda name: read_life(layout, name))
    for entry in entries:
        of_name: NameLife = life_of(entry.module.name)
        life = of_name.of(entry.module.version)
        if not life.hidden:
            default = of_name.default == entry.module.version
            yield replace(_decided(entry, life), default=default, labels=life.labels)


def _decided(entry: Entry, life: Life) -> Entry:
    said = life.retired or life.deprecated
    if said is None:
        return entry
    until = str(life.refused_from - timedelta(days=1)) if life.refused_from else ""
    ending = Ending(until, said.message, life.retired.successor if life.retired else "")
    return replace(entry, status="retired" if life.retired else "deprecated", ending=ending)
