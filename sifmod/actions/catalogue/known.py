"""What is known of the images of installed modules beside their receipts: their packages."""

from collections.abc import Callable

from sifmod.actions.catalogue.entry import Pairs
from sifmod.actions.inventory import image_path, inventory_at
from sifmod.errors import SifmodError
from sifmod.tree.receipt import Installation


class Packages:
    """The packages of images; each image is asked once, whichever modules have it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is told what cannot be read."""
        self._say = say
        self._found: dict[str, Pairs] = {}

    def of(self, installation: Installation) -> Pairs:
        """Name and version of all that is known to be in its image, by whichever packager; sorted."""
        sha256 = installation.image.sha256
        if sha256 not in self._found:
            try:
                packages = inventory_at(image_path(installation)).packages
            except (SifmodError, OSError) as error:
                self._say(f"warning: what is in the image of {installation.module} is not known: {error}")
                packages = ()
            self._found[sha256] = tuple(sorted({(one.name, one.version) for one in packages}))
        return self._found[sha256]
