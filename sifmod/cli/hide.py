"""`sifmod hide`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.config.name import ModuleName
    from sifmod.tree.life import NameLife


@click.command("hide")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--undo", is_flag=True, help="Show it again.")
@prefix_option
@json_option
def command(modules: tuple[str, ...], undo: bool, prefix: str | None, as_json: bool) -> None:
    """Leave modules out of `module avail` and `spider`; who names one with its version loads it as before."""
    from dataclasses import replace

    from sifmod.cli.life import changed

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return life.with_life(module.version, replace(life.of(module.version), hidden=not undo))

    changed(modules, change, prefix, as_json=as_json)
