"""`sifmod stack catalogue`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sifmod.actions.catalogue.entry import Entry
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.stack import Stack


@click.command("catalogue")
@click.argument("easyconfigs", nargs=-1, metavar="[STACK | FILE|NAME...]")
@click.option("--all", "everything", is_flag=True, help="Also what the easyconfigs on the easyconfig path can install.")
@click.option("--title", metavar="TEXT", help="What stands above it (default: Modules of SITE).")
@click.option(
    "-o", "--output", metavar="DIR", help="Write it here: index.html, catalogue.json, and Markdown in pages/."
)
@site_options
@json_option
def command(
    easyconfigs: tuple[str, ...],
    everything: bool,
    title: str | None,
    output: str | None,
    as_json: bool,
    **site: str | None,
) -> None:
    """Write pages from which users choose a module: of what is installed, of a stack, or of these easyconfigs.

    index.html needs no server and loads nothing from elsewhere: search over names and packages, and for each module
    the commands that load it, a job script, what is in it, and what is new. --json prints the data.
    """
    from pathlib import Path

    from sifmod.actions.author.check import settings_kind
    from sifmod.actions.catalogue.catalogue import catalogue, document, write_catalogue
    from sifmod.actions.catalogue.entry import compared
    from sifmod.cli.context import load_context
    from sifmod.cli.output import counted, print_json, say
    from sifmod.config.stack import load_stack

    if not output and not as_json:
        raise click.UsageError("missing option: -o DIR, or --json")
    if everything and easyconfigs:
        raise click.UsageError("--all goes without easyconfigs")
    context = load_context(site)
    name = "" if context.site.name == "generic" else context.site.name
    if len(easyconfigs) == 1 and settings_kind(Path(easyconfigs[0])) == "stack":
        stack = load_stack(Path(easyconfigs[0]))
        name, entries = stack.name, compared(_of_stack(stack, context, site))
    else:
        entries = compared(_entries(easyconfigs, everything, context))
    title = title or (f"Modules of {name}" if name else "Modules")
    if output:
        changed = write_catalogue(catalogue(title, entries), Path(output))
        say(f"{counted(len(entries), 'module')} in {output}, {counted(changed, 'file')} written")
    if as_json:
        print_json(document(title, entries))


def _of_stack(stack: "Stack", context: "LoadedSite", given: "Mapping[str, str | None]") -> "tuple[Entry, ...]":
    import os

    from sifmod.actions.catalogue.gather import of_stack
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.plan import Planned, plan_stack
    from sifmod.cli.context import tree
    from sifmod.cli.options import SITE_KEYS
    from sifmod.cli.output import say
    from sifmod.config.prefix import in_full

    texts = {name: in_full(name, value) for name, value in given.items() if value is not None and name in SITE_KEYS}
    planned = Planned(stack, tree(context.site.prefix), texts, InstallOptions())
    return of_stack(plan_stack(planned), os.environ, say)


def _entries(names: tuple[str, ...], everything: bool, context: "LoadedSite") -> "tuple[Entry, ...]":
    """Of a module that is both installed and in an easyconfig, what is installed."""
    import os

    from sifmod.actions.catalogue.gather import installable, installed
    from sifmod.cli.context import tree
    from sifmod.cli.output import say
    from sifmod.config.find import easyconfigs
    from sifmod.config.wanted import wanted_easyconfig
    from sifmod.errors import ConfigError

    def refuse(error: ConfigError) -> None:
        if names:
            raise error
        say(f"warning: {error.problems[0]}; its modules are left out")

    here = {entry.module: entry for entry in installed(tree(context.site.prefix), say)}
    if not names and not everything:
        return tuple(here.values())
    paths = [wanted_easyconfig(name, context.site) for name in names] or easyconfigs(context.site.robot_paths)
    offered = {entry.module: entry for entry in installable(paths, context, os.environ, refuse)}
    return tuple((offered | here).values() if everything else (here.get(name, offered[name]) for name in offered))
