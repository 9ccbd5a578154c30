"""`sifmod default`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.config.name import ModuleName
    from sifmod.tree.life import NameLife


@click.command("default")
@click.argument("module", metavar="MODULE")
@click.option("--none", is_flag=True, help="No module of this name is the default any more.")
@prefix_option
@json_option
def command(module: str, none: bool, prefix: str | None, as_json: bool) -> None:
    """Make MODULE what a load of its name without a version loads; with --none the module system decides again."""
    from dataclasses import replace

    from sifmod.cli.life import changed

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return replace(life, default=None if none else module.version)

    changed((_any_of(module, prefix) if none else module,), change, prefix, as_json=as_json)


def _any_of(name: str, prefix: str | None) -> str:
    """A module that is called so without its version; the name itself where there is none."""
    from sifmod.cli.context import layout_for
    from sifmod.tree.life import read_life
    from sifmod.tree.receipt import live_modules

    layout = layout_for(prefix)
    there = [module for module, _ in live_modules(layout) if module.name == name]
    default = read_life(layout, name).default if there else None
    return next((str(module) for module in there if module.version == default), str(there[0]) if there else name)
