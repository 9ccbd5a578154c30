"""A Subject: an image to inspect, alone or as part of a module's generation."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.inventory import image_of, image_path, inventory_at
from sifmod.config.name import ModuleName
from sifmod.config.redact import shown
from sifmod.config.site import Site
from sifmod.errors import ModuleError
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.package import Inventory
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.registry.mirrors import source_of
from sifmod.image.sources.source_kinds import parse
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.tree.history import previous, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live_number, numbers, read_receipt
from sifmod.tree.stored_image import StoredImage, entries, read_stored

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


@dataclass(frozen=True)
class Subject:
    """The image or module that a name on the command line refers to."""

    name: str  # Name/version@3, a digest or a path
    sha256: str  # "" if it is unknown without reading the whole image
    source: str  # the image's source, "" if unknown
    origin: ImageOrigin
    image: Path | None = None
    installation: Installation | None = None

    @property
    def view(self) -> Installation | None:
        """The installation if it is a view, which has no image."""
        return self.installation if self.installation and self.installation.image is None else None

    @property
    def path(self) -> Path:
        """The image's path; raises ModuleError if an installation's image is gone."""
        return image_path(self.installation) if self.installation else self.image or Path()

    @property
    def inventory(self) -> Inventory:
        """The packages of the image; raises the errors of `inventory_at`, and ModuleError if it is gone."""
        return inventory_at(self.path)


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-256 or at least its first twelve digits."""
    return _DIGEST.fullmatch(text) is not None


def of_installation(installation: Installation) -> Subject:
    """The subject for one generation of a module."""
    name, image = f"{installation.module}@{installation.generation}", installation.image
    if image is None or image_of(installation) not in (Path(installation.root, image.filename), Path(image.path)):
        return Subject(name, "", "", NO_ORIGIN, installation=installation)  # a view, or a copy of the site, not hashed
    return Subject(name, image.sha256, image.source, image.origin, installation=installation)


def of_generation(layout: Layout, module: ModuleName, number: int | None) -> Subject:
    """The subject for the generation with this number, None: the live one; raises ModuleError if none can be read."""
    there = numbers(layout, module)
    wanted = live_number(layout, module) if number is None else number
    known = read_receipt(layout.generation(module, wanted)) if wanted in there and wanted else None
    if known is None:
        what = "live generation" if wanted is None else f"generation {wanted} that can be read"
        raise ModuleError(
            f"{module} has no {what} in {layout.prefix}", f"generations there: {', '.join(map(str, there)) or 'none'}"
        )
    return of_installation(known)


def before(layout: Layout, module: ModuleName) -> Subject:
    """The subject for the previously live generation; raises ModuleError if there is none."""
    number = previous(read_history(layout, module), numbers(layout, module))
    if number is None:
        raise ModuleError(
            f"{module} has no earlier generation in {layout.prefix}", "name two modules or images to compare"
        )
    return of_generation(layout, module, number)


def of_image(layout: Layout, text: str) -> Subject:
    """The subject for a SIF by path, or for a stored image by digest or original reference.

    Raises ModuleError if the store has no such image or several, FetchError for an invalid reference.
    """
    if match := _DIGEST.fullmatch(text):
        return _stored(text, [one for one in entries(layout) if one.sha256.startswith(match[1])])
    reference = parse(text)
    path = reference.kind.local_sif(reference, ())
    if path is None and reference.kind.location == "repository":
        source, digest = source_of(reference), reference.digest
        return _stored(text, [one for one in entries(layout) if _gave(one, source, digest)])
    if path is None:
        raise ModuleError(
            f"the store does not know which image was fetched from {shown(text)}",
            "name the image by its digest or path",
        )
    digest = stored_digest(path, layout.prefix)
    known = read_stored(layout, digest) if digest else None
    return _subject(known) if known else Subject(str(path.absolute()), "", "", NO_ORIGIN, path)


def _gave(image: StoredImage, source: str, digest: str) -> bool:
    return any(one.source == source and digest in ("", one.index, one.manifest) for one in image.given)


def _stored(text: str, found: list[StoredImage]) -> Subject:
    if len(found) == 1:
        return _subject(found[0])
    if found:
        listed = "\n".join(f"  {image.sha256}" for image in found)
        raise ModuleError(f"`{shown(text)}` matches several images\n{listed}", "name one by its digest")
    raise ModuleError(f"the store has no image {shown(text)}", "`sifmod fetch REFERENCE` fetches one")


def _subject(image: StoredImage) -> Subject:
    sources = [one.source for one in image.given if "://" in one.source]
    return Subject(f"sha256:{image.sha256}", image.sha256, "".join(sources[-1:]), image.origin, image.path)


def stored_digest(path: Path, prefix: Path) -> str:
    """The SHA-256 of a SIF in this prefix's store, from its name; "" for other files."""
    real = path.resolve()
    known = re.fullmatch("[0-9a-f]{64}", real.stem)
    return real.stem if known and real == Layout(prefix).image(real.stem).resolve() else ""


def describe(text: str, site: Site, arch: str) -> ImageDescription:
    """The metadata of the image that `text` names; only the metadata is fetched.

    Raises FetchError, ImageError or PermissionsError.
    """
    reference = parse(text)
    path = reference.kind.local_sif(reference, site.image_dirs)
    if path is None:
        return reference.kind.describe(reference, arch, fetch_settings(site))
    return replace(describe_sif(path), sha256=stored_digest(path, site.prefix))
