"""Write the catalogue: as data, as Markdown, as a feed, and as one web page that loads nothing from elsewhere."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.author.new_file import check_not_of_others, write_below
from sifmod.actions.catalogue.entry import AboutSite, Entry, by_name
from sifmod.actions.catalogue.feed import feed
from sifmod.actions.catalogue.markdown import PAGES, markdown_pages, page_of
from sifmod.actions.catalogue.page import GENERATOR, INDEX, web_page
from sifmod.config.name import is_part
from sifmod.errors import OptionError
from sifmod.image.disk import writing
from sifmod.module.plan import File
from sifmod.result import Described, Internal, OrNull, Sha256, in_json
from sifmod.tree.durable import opened, read, regular
from sifmod.tree.removal import prune

DATA = "catalogue.json"
_MOST = 1 << 28  # bytes of the data
_HEAD = 1000  # bytes at the start of a page that hold its generator


class CataloguePackage(NamedTuple):
    """A package in an image."""

    name: str
    version: str


class Inventory(NamedTuple):
    """All packages of an image; several modules may share it."""

    sha256: Sha256
    all_packages: tuple[CataloguePackage, ...]


class Catalogue(NamedTuple):
    """The modules, by name, the newest version first."""

    title: str
    entries: tuple[Entry, ...]
    site: Internal[AboutSite] = AboutSite()
    schema_version: Annotated[Literal[1], Described("version of this format; it changes when a field changes")] = 1

    @property
    def text(self) -> Annotated[OrNull[str], Described("the site's text for its users")]:
        return self.site.text

    @property
    def contact(self) -> Annotated[OrNull[str], Described("the site's contact: mail or web address, or words")]:
        return self.site.contact

    @property
    def home(self) -> Annotated[OrNull[str], Described("the site's web page")]:
        return self.site.home

    @property
    def inventories(self) -> Annotated[tuple[Inventory, ...], Described("images whose packages are known")]:
        images = {one.sha256: one.packages for one in self.entries if one.sha256 and one.packages}
        return tuple(
            Inventory(sha256, tuple(CataloguePackage(*one) for one in packages))
            for sha256, packages in sorted(images.items())
        )


def files_of(made: Catalogue) -> tuple[File, ...]:
    """The catalogue's files: the page, Markdown in `pages/`, the feed, and the data."""
    names = by_name(made.entries)
    text = json.dumps(in_json(made), indent=1, sort_keys=True) + "\n"
    return (
        web_page(made.title, made.site, names),
        *markdown_pages(made.title, made.site, names),
        feed(made.title, made.site, made.entries),
        File(DATA, text),
    )


def write_catalogue(files: tuple[File, ...], directory: Path) -> int:
    """Write the files into a directory, which is created if it is missing; returns how many files it wrote.

    Unchanged files are left alone. Only pages of names that the earlier catalogue listed and this one does not are
    removed. The next run completes a killed one: the page, which marks the directory as a catalogue's, is written
    first, and the data, which list the previous modules, last. Raises OptionError if another file is in the way,
    PermissionsError, NoSpaceError, FetchError.
    """
    check_not_of_others(directory)
    before = _names_before(directory)
    if before is None:
        _check_free(directory)
    changed = 0
    for file in files:
        target = directory / file.path
        if file.path == DATA:
            gone = {page_of(name) for name in before or ()} - {one.path for one in files}
            for place in (directory / name for name in sorted(gone)):
                _remove(place, directory)
        changed += write_below(file.text, target, directory)
    return changed


def _remove(page: Path, directory: Path) -> None:
    """Remove a page, and its directory if it becomes empty; no link is followed."""
    with writing(page), suppress(FileNotFoundError), opened(page.parent, directory) as place:
        os.unlink(page.name, dir_fd=place)
    prune(page.parent, directory)


def _names_before(directory: Path) -> tuple[str, ...] | None:
    """The modules' names in the existing catalogue, or None; raises OptionError for data of something else."""
    data = directory / DATA
    try:
        found = json.loads(read(data, _MOST, top=directory))
        names = [one["module"].partition("/")[0] for one in found["entries"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise OptionError(
            f"{data} was not written by `sifmod stack catalogue`", "give the catalogue its own directory: -o DIR"
        ) from None
    return tuple(filter(is_part, names))


def _check_free(directory: Path) -> None:
    there = next((path for name in (INDEX, PAGES) if os.path.lexists(path := directory / name)), None)
    if there is None:
        return
    with suppress(OSError), regular(directory / INDEX, directory) as page:
        if GENERATOR.encode() in os.read(page, _HEAD):
            return
    raise OptionError(
        f"{there} was not written by `sifmod stack catalogue`, and was not changed",
        "give the catalogue its own directory: -o DIR",
    )
