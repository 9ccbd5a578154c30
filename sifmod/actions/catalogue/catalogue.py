"""stack catalogue: the pages from which users choose a module, as data, Markdown, a feed and one web page."""

import base64
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.author.check import settings_kind
from sifmod.actions.author.new_file import check_not_of_others, write_below
from sifmod.actions.catalogue.entry import AboutSite, Entry, by_name, compared
from sifmod.actions.catalogue.feed import feed
from sifmod.actions.catalogue.gather import fits, installable, installed, of_stack
from sifmod.actions.catalogue.markdown import PAGES, markdown_pages, page_of
from sifmod.actions.catalogue.page import GENERATOR, INDEX, web_page
from sifmod.actions.stack.stack_plan import StackOptions, plan_stack, read_stack
from sifmod.actions.start import layout_at, site_in_force
from sifmod.config.find import easyconfigs
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import is_part
from sifmod.config.site import CatalogueKeys
from sifmod.config.word import resolve_easyconfig
from sifmod.errors import ConfigError, OptionError
from sifmod.image.disk import writing
from sifmod.module.plan import File
from sifmod.result import Beside, Described, Sha256, in_json
from sifmod.tree.durable import opened, read, regular
from sifmod.tree.removal import prune
from sifmod.tree.target_store import check_outside_trees

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
    site: Beside[AboutSite] = AboutSite()
    schema_version: Annotated[Literal[1], Described("version of this format; it changes when a field changes")] = 1

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
    first, and the data, which list the previous modules, last. Raises OptionError if a tree or another file is in the
    way, PermissionsError, NoSpaceError, FetchError.
    """
    check_outside_trees(directory)
    check_not_of_others(directory)
    before = _names_before(directory)
    if before is None:
        _check_free(directory)
    _check_own_pages(files, directory, before)
    changed = 0
    for file in files:
        target = directory / file.path
        if file.path == DATA:
            gone = {page_of(name) for name in before or ()} - {one.path for one in files}
            for place in (directory / name for name in sorted(gone)):
                _remove(place, directory)
        changed += write_below(file.text, target, directory)
    return changed


def _check_own_pages(files: tuple[File, ...], directory: Path, before: tuple[str, ...] | None) -> None:
    """Raise OptionError if a file would replace one that this user has put there, which no catalogue lists."""
    there = before is not None or os.path.lexists(directory / INDEX)
    listed = {*map(page_of, before or ())}
    for file in files:
        known = file.path in listed or (there and file.path.count("/") < 2)  # not a name's page
        place = directory / file.path
        with suppress(OSError):
            found = place.lstat()
            if known or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if read(place, _MOST, top=directory) != file.text.encode():
                raise OptionError(
                    f"{place} is no page of the catalogue, and was not replaced",
                    "move it away, or choose another -o DIR",
                )


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


_LOGOS = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".webp": "image/webp"}
_LOGO_BYTES = 256 << 10  # the largest logo, because it is in the page itself


@dataclass(frozen=True)
class CatalogueRequest:
    """What a catalogue is made of, and where it is written."""

    site: Mapping[str, str] = field(default_factory=dict)  # options, by key of the site
    names: tuple[str, ...] = ()  # easyconfigs, or one stack; (): what is installed
    everything: bool = False  # also what the easyconfigs on the easyconfig path can install here
    title: str = ""
    directory: Path | None = None  # None: no page is written


class MadeCatalogue(NamedTuple):
    """A catalogue, and how many of its files were missing or different before."""

    catalogue: Catalogue
    written: int


def make_catalogue(request: CatalogueRequest, say: Callable[[str], None]) -> MadeCatalogue:
    """Collect the entries, and write the pages into the `directory`, if given. Reports what it cannot read. Idempotent.

    Raises ConfigError for an invalid easyconfig that was named, EasyconfigNotFoundError, OptionError for a directory
    that is no catalogue's, InstallError, PermissionsError, FetchError.
    """
    site = site_in_force(request.site)
    name = "" if site.site.name == "generic" else site.site.name
    if len(request.names) == 1 and settings_kind(Path(request.names[0])) == "stack":
        planned = read_stack(Path(request.names[0]), StackOptions(request.site))
        name, found = planned.stack.name, of_stack(plan_stack(planned), os.environ, say)
    else:
        found = _entries(request, site, say)
    entries = compared(found)
    title = request.title or (f"Modules of {name}" if name else "Modules")
    made = Catalogue(title, entries, about_site(site.site.catalogue, say))
    written = write_catalogue(files_of(made), request.directory) if request.directory else 0
    return MadeCatalogue(made, written)


def _entries(request: CatalogueRequest, site: LoadedSite, say: Callable[[str], None]) -> tuple[Entry, ...]:
    """The entries, where an installed module replaces the one from an easyconfig."""
    names, everything = request.names, request.everything

    def refuse(error: ConfigError) -> None:
        if names:
            raise error
        say(f"warning: {error.problems[0]}; skipped its modules")

    here = {entry.module: entry for entry in installed(layout_at(site.site.prefix), say)}
    if not names and not everything:
        return tuple(here.values())
    paths = [resolve_easyconfig(name, site.site) for name in names] or easyconfigs(site.site.robot_paths)
    offered = {entry.module: entry for entry in installable(paths, site, os.environ, refuse)}
    if everything:
        offered = {name: entry for name, entry in offered.items() if fits(entry, site.site)}
        return tuple((offered | here).values())
    return tuple(here.get(name, offered[name]) for name in offered)


def about_site(keys: CatalogueKeys, say: Callable[[str], None]) -> AboutSite:
    """What the site says of itself; a logo that cannot be used is reported and left out."""
    logo = ""
    if keys.logo:
        path = Path(keys.logo)
        kind = _LOGOS.get(path.suffix.lower(), "")
        try:
            size = path.stat().st_size
            if not kind or size > _LOGO_BYTES:
                raise OSError(f"expected {', '.join(_LOGOS)} of at most {_LOGO_BYTES >> 10} kiB")
            logo = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        except OSError as error:
            say(f"warning: {path}: {error.strerror or error}; the catalogue has no logo")
    return AboutSite(keys.text, keys.contact, keys.home, logo)
