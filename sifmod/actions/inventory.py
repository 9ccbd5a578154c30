"""The inventory of an image: read from the store, or made from the image and then kept there.

It is made on first use and not at the fetch: most images never need one, and reading the packages would take longer
than hard-linking the image. A user who cannot write to the store reads the image each time.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from sifmod.errors import ModuleError, OptionError, SifmodError
from sifmod.image.inspect.inventory import read_inventory
from sifmod.image.inspect.package import Inventory
from sifmod.module.quote import shell
from sifmod.tree.durable import content
from sifmod.tree.layout import Layout
from sifmod.tree.locking import is_held, lock
from sifmod.tree.receipt import Installation
from sifmod.tree.store import GC, keep_inventory
from sifmod.tree.stored_image import read_stored

FORMAT = 2
_LEASE = 30.0  # seconds


def inventory_of(layout: Layout, sha256: str) -> Inventory:
    """The packages of the stored image of this digest.

    Raises ModuleError if the store does not have it, ImageError if its file system cannot be read, FetchError or
    PermissionsError if the file cannot be read.
    """
    if kept := kept_inventory(layout, sha256):
        return kept
    path = layout.image(sha256)
    if not path.is_file():
        raise ModuleError(f"there is no image {path}", "`sifmod list` shows what is installed")
    made = read_inventory(path)
    if made.complete and os.access(layout.images, os.W_OK) and not is_held(layout, GC):
        with suppress(SifmodError, OSError), lock(layout, GC, _LEASE, lambda who: None) as held:  # noqa: ARG005
            keep_inventory(layout, sha256, to_json(made, sha256), held)
    return made


def inventory_at(path: Path) -> Inventory:
    """The packages of the SIF at `path`, inside or outside of a store; raises the errors of `inventory_of`."""
    real = Path(os.path.realpath(path))
    with suppress(OptionError):  # the directory is not a prefix
        if re.fullmatch(r"/.+/images/sha256/[0-9a-f]{64}\.sif", str(real)):
            store = Layout(real.parents[2])
            if read_stored(store, real.stem):
                return inventory_of(store, real.stem)
    return read_inventory(path)


def image_path(installation: Installation) -> Path:
    """The image of a generation; raises ModuleError if it is gone."""
    path = image_of(installation)
    if not path.is_file():
        raise ModuleError(
            f"{installation.module}: its image {path} is gone",
            f"`sifmod install {shell(installation.provenance.easyconfig)}` fetches it again",
        )
    return path


def kept_inventory(layout: Layout, sha256: str) -> Inventory | None:
    """The stored inventory; None if it is missing or invalid, has another format, or belongs to another image."""
    from pydantic import TypeAdapter

    text = content(layout.inventory(sha256))
    try:
        fields = json.loads(text) if text else {}
        if (fields["format"], fields["sha256"]) == (FORMAT, sha256):
            return TypeAdapter(Inventory).validate_python(fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def to_json(inventory: Inventory, sha256: str) -> bytes:
    """The inventory as JSON, one package per line."""
    packages = ",\n".join(json.dumps(one, ensure_ascii=False) for one in inventory.packages)
    head = json.dumps({"format": FORMAT, "sha256": sha256, "system": inventory.system, "notes": inventory.notes})
    return f'{head[:-1]}, "packages": [\n{packages}\n]}}\n'.encode()


def image_of(installation: Installation) -> Path:
    """The image that a load takes: the link's, or a copy of the site; the receipt's path if there is neither."""
    image, copies = installation.required_image, installation.provenance.image.directories
    places = (f"{directory}/{image.filename}" for directory in (installation.root, *copies))
    return Path(next(filter(os.path.exists, places), image.path))  # False in a closed directory
