"""`sifmod retire`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.life import since_option
from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from datetime import date

    from sifmod.config.name import ModuleName
    from sifmod.tree.life import NameLife


@click.command("retire")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--successor", metavar="MODULE", help="The module to use instead, which is installed.")
@since_option("The first day on which it does not load (default: today).")
@click.option("--message", metavar="TEXT", default="", help="What else to say to who loads it.")
@click.option("--undo", is_flag=True, help="It loads again.")
@prefix_option
@json_option
def command(
    modules: tuple[str, ...],
    successor: str | None,
    since: "date | None",
    message: str,
    undo: bool,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Hide modules and refuse to load them, with a message that names the successor.

    Shells and jobs that have one loaded go on with it, and unload it. `sifmod gc` removes it later.
    """
    from dataclasses import replace

    from sifmod.cli.context import layout_for, resolve
    from sifmod.cli.life import changed
    from sifmod.errors import OptionError
    from sifmod.tree.life import Retired, today
    from sifmod.tree.receipt import live_modules

    if undo and (since or successor or message):
        raise OptionError("--undo goes without --since, --successor and --message")
    follows = str(resolve(successor, (one for one, _ in live_modules(layout_for(prefix))))) if successor else ""

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        if str(module) == follows:
            raise OptionError(f"{module} cannot be its own successor")
        one = life.of(module.version)
        known = one.retired.since if one.retired else today()
        said = None if undo else Retired(since or known, follows, message)
        return life.with_life(module.version, replace(one, retired=said))

    changed(modules, change, prefix, as_json=as_json)
