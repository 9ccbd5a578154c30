"""`sifmod config`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.origin import Origin

# what is in force where nothing is set
UNSET = {
    "umask": "not set: yours",
    "group": "not set: yours",
    "memory": "not set: a quarter of the machine's or the control group's",
    "processors": "not set: those this process may use, at most 8",
}


@click.group("config")
def command() -> None:
    """Show the configuration and where each value came from."""


@command.command("show")
@site_options
@json_option
def show(as_json: bool, **site: str | None) -> None:
    """Print every setting, its value (- where it is not set) and its origin.

    Precedence: command line > SIFMOD_* variables > ~/.config/sifmod/config.yaml > /etc/sifmod.d/*.yaml > the site >
    defaults.
    """
    from sifmod.cli.context import load_facts
    from sifmod.cli.output import print_json, print_rows

    loaded = load_facts(site)
    origins = tuple(_every(loaded))
    if as_json:
        print_json([{"key": key, "value": value or None, "origin": origin} for key, value, origin in origins])
    else:
        print_rows([(key, "=", value or "-", f"({_shorter(origin)})") for key, value, origin in origins])


def _every(loaded: "LoadedSite") -> "Iterator[Origin]":
    """What is set, and every key that is not with an empty value, in the order of docs/site.md."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.config.origin import Origin, of_default

    left = list(loaded.origins)
    for key, default in _keys():
        found = [origin for origin in left if origin.key == key or origin.key.startswith((f"{key}.", f"{key}["))]
        left = [origin for origin in left if origin not in found]
        value = str(fetch_settings(loaded.site).processors) if key == "processors" else ""
        yield from found or of_default(key, default) or [Origin(key, value, UNSET.get(key, "not set"))]
    yield from left


def _keys() -> Iterator[tuple[str, object]]:
    """Every key that a site file may have, but for those that only say when it is the site; and its default."""
    from sifmod.config.site import SiteFile
    from sifmod.config.yaml.check import Model

    for key, field in SiteFile.model_fields.items():
        default = field.get_default()
        if isinstance(default, Model) and key != "detect":
            yield from ((f"{key}.{name}", getattr(default, name)) for name in type(default).model_fields)
        elif key != "detect":
            yield key, default


def _shorter(origin: str) -> str:
    """A shipped site by its name, without the path of this installation."""
    from sifmod.config.find import shipped

    path = Path(origin.rpartition(":")[0])
    return f"site {path.stem}" if path.parent == shipped() / "sites" else origin
