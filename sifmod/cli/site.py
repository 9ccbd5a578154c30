"""`sifmod site`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.config.load_site import LoadedSite


@click.group("site")
def command() -> None:
    """Name, show or write the facts of this machine."""


@command.command("detect")
@json_option
def detect(as_json: bool) -> None:
    """Print which site this machine is, by the paths and devices that it has; runs no program."""
    from sifmod.actions.author.site import detect as look
    from sifmod.cli.output import echo, print_json, problems_data, say

    found = look(os.environ)
    if as_json:
        print_json({"site": found.name, "how": found.how, "warnings": problems_data(found.left_out)})
        return
    for problem in found.left_out:
        say(f"warning: {problem}")
    say(found.how)
    echo(found.name)


@command.command("show")
@click.argument("name", required=False, metavar="[NAME|FILE]")
@site_options
@json_option
def show(name: str | None, as_json: bool, **site: str | None) -> None:
    """Print what is true of a site (default: the one in force), where each value came from, and what is odd."""
    from sifmod.actions.author.site import origins
    from sifmod.cli.context import load_facts
    from sifmod.cli.output import origins_data, print_json, print_rows, problems_data
    from sifmod.config.lint import lint_binds

    loaded = load_facts({**site, "site": name} if name else site)
    rows = origins(loaded)
    if as_json:
        print_json({"origins": origins_data(rows), "warnings": problems_data(lint_binds(loaded.tree))})
        return
    print_rows([(key, "=", value, f"({origin})") for key, value, origin in rows])
    warn(loaded)


@command.command("new")
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", metavar="FILE", help="Write it here; - for standard output.")
@json_option
def new(name: str, output: str | None, as_json: bool) -> None:
    """Write a first site file, with what was found on this machine, and print its path.

    By default it goes to ~/.config/sifmod/sites/NAME.yaml, where --site NAME finds it; none is ever overwritten.
    """
    from sifmod.actions.author.site import shadowed_by, site_text, write_site
    from sifmod.cli.output import echo, print_json, say

    path, hidden = None, None
    if output == "-":
        text = site_text(name, os.environ)
    else:
        text, path = write_site(name, Path(output) if output else None, os.environ)
        hidden = shadowed_by(path, os.environ)
    if hidden:
        say(f"from now on it is the site {name} for you, in the place of {hidden}")
    if as_json:
        hides = str(hidden) if hidden else None
        print_json({"path": str(path.absolute()) if path else None, "site": name, "text": text, "hides": hides})
    elif path:
        echo(path)
    else:
        echo(text, nl=False)


def warn(loaded: "LoadedSite") -> None:
    """Say what is odd about the binds of a site."""
    from sifmod.cli.output import say
    from sifmod.config.lint import lint_binds

    for problem in lint_binds(loaded.tree):
        say(f"warning: {problem}")
