"""stack catalogue: the pages from which users choose a module, of what is installed, of a stack, or of easyconfigs."""

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.author.check import settings_kind
from sifmod.actions.catalogue.catalogue import Catalogue, files_of, write_catalogue
from sifmod.actions.catalogue.entry import AboutSite, Entry, compared
from sifmod.actions.catalogue.gather import fits, installable, installed, of_stack
from sifmod.actions.stack.stack_options import StackOptions, read_stack
from sifmod.actions.stack.stack_plan import plan_stack
from sifmod.actions.start import layout_at, site_in_force
from sifmod.config.find import easyconfigs
from sifmod.config.load_site import LoadedSite
from sifmod.config.site import CatalogueKeys
from sifmod.config.word import resolve_easyconfig
from sifmod.errors import ConfigError

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
