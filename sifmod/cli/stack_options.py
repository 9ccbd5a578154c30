"""The options that the verbs of a stack share, and the stack with them."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.context import load_context, tree
from sifmod.cli.options import SITE_KEYS, Given, several
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.stack.plan import Planned
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.stack import Stack


# what decides which modules a stack comes to
stack_options = several(
    click.option(
        "-j", "--jobs", metavar="N", type=click.IntRange(1, 64), help="Modules at the same time (default: processors)."
    ),
    click.option("--skip-sanity-check", is_flag=True, help="Do not look for commands in the images."),
    click.option("--rebuild", is_flag=True, help="Install again even where nothing has changed."),
    click.option("--offline", is_flag=True, help="Use only what is on this machine."),
    click.option("--only", metavar="MODULE", multiple=True, help="This module and no other; may be repeated."),
)


def given_site(given: Given) -> dict[str, str]:
    """The options that say what is true of this machine."""
    from sifmod.config.prefix import in_full

    return {name: in_full(name, given[name]) for name in SITE_KEYS if given.get(name) is not None}


def planned_stack(stack: "Stack", given: Given) -> "tuple[Planned, LoadedSite]":
    """The stack with what the command line says, and the site."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.plan import Planned
    from sifmod.tree.provenance import CommandLine

    texts = given_site(given)
    site = load_context(texts)
    stores = given.get("stores", ())
    for store in stores:
        if not Layout(store.absolute()).images.is_dir():
            raise OptionError(f"--from: {store} is no tree of sifmod with images in it")
    options = InstallOptions(
        rebuild=given.get("rebuild", False),
        offline=given.get("offline", False),
        into_home=given.get("yes", False),
        stores=tuple(store.absolute() for store in stores),
        asked=CommandLine(checked=not given["skip_sanity_check"]),
    )
    jobs = given.get("jobs") or fetch_settings(site.site).processors
    return Planned(stack, tree(site.site.prefix), texts, options, jobs=jobs), site
