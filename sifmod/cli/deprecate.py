"""`sifmod deprecate`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.life import day, since_option
from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from datetime import date

    from sifmod.config.name import ModuleName
    from sifmod.tree.life import NameLife


@click.command("deprecate")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@since_option("The first day on which it is said (default: today).")
@click.option("--until", metavar="DATE", callback=day, help="The last day on which it loads; then it is retired.")
@click.option("--message", metavar="TEXT", default="", help="What to use instead, or why.")
@click.option("--undo", is_flag=True, help="It is not deprecated any more.")
@prefix_option
@json_option
def command(
    modules: tuple[str, ...],
    since: "date | None",
    until: "date | None",
    message: str,
    undo: bool,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Have modules say at each load on a terminal that they go, until when, and what to use instead."""
    from dataclasses import replace

    from sifmod.cli.life import changed
    from sifmod.errors import OptionError
    from sifmod.tree.life import Deprecated, today

    if undo and (since or until or message):
        raise OptionError("--undo goes without --since, --until and --message")

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        one = life.of(module.version)
        known = one.deprecated.since if one.deprecated else today()
        said = None if undo else Deprecated(since or known, until, message)
        return life.with_life(module.version, replace(one, deprecated=said))

    changed(modules, change, prefix, as_json=as_json)
