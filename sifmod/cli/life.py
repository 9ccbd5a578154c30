"""`sifmod default`, `hide`, `deprecate` and `retire`, and what is decided about a module."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import layout_for, live, load_facts, reporter, resolve, tree
from sifmod.cli.output import print_json, say
from sifmod.cli.shared_options import Decorated, Given, json_option, prefix_option
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from datetime import date

    from sifmod.tree.life import NameLife
    from sifmod.tree.receipt import Installation

    Change = Callable[[ModuleName, NameLife], NameLife]


def changed(names: tuple[str, ...], change: "Change", given: Given, *, undo: bool = False) -> None:
    """Make of the life of each module what `change` says, and say what became of it.

    To `undo` a decision the module need not be there any more.
    """
    from functools import partial

    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.life import DecidedModule, update_life
    from sifmod.actions.spider_cache import refresh_spider_cache

    site = load_facts(given).site
    layout = tree(site.prefix)
    known = (*live(layout), *(_decided(layout) if undo else ()))
    modules = [resolve(name, known) for name in names]
    telling = reporter()
    rows = []
    with changing_prefix(site):
        any_changed = False
        for module in modules:
            of_module = partial(change, module)
            done = update_life(layout, module.name, of_module, site, telling)
            any_changed |= done.changed
            for each, what in done.changes:
                say(f"{each}: {what}")
            if not done.changes:
                say(f"{module}: nothing to change")
            rows.append(DecidedModule(module, done.changed, done.life.of_module(module.version)))
        if any_changed:
            refresh_spider_cache(layout, site, telling)
    if given["as_json"]:
        print_json(rows)


def _decided(layout: Layout) -> tuple[ModuleName, ...]:
    """The modules about which something is decided, and which are not installed."""
    from sifmod.tree.life import decided_names, read_life
    from sifmod.tree.receipt import live_number

    names = decided_names(layout)
    modules = (ModuleName(name, version) for name in names for version in read_life(layout, name).versions)
    return tuple(module for module in modules if live_number(layout, module) is None)


def say_life(installation: "Installation") -> None:
    """Say what a load of the module says of its end, and whether it is hidden."""
    layout, module = Layout(installation.prefix), installation.module
    if not layout.life(module.name).exists():
        return
    from sifmod.cli.output import say
    from sifmod.tree.life import notice, read_life, today

    if told := notice(module, read_life(layout, module.name).of(module.version), today()):
        say(f"warning: {told}")


def day(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> "date | None":
    """The day that an option gives."""
    from datetime import date

    if text is None:
        return None
    try:
        if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise click.BadParameter(f"expected a day such as 2027-03-31, got {text!r}", param=parameter)


def since_option(text: str) -> Callable[[Decorated], Decorated]:
    """`--since`."""
    return click.option("--since", metavar="DATE", callback=day, help=text)


@click.command("default")
@click.argument("module", metavar="MODULE")
@click.option("--none", is_flag=True, help="No module of this name is the default any more.")
@prefix_option
@json_option
def default_command(module: str, none: bool, **given: Any) -> None:
    """Make MODULE what a load of its name without a version loads; with --none the module system decides again."""
    from dataclasses import replace

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return replace(life, default=None if none else module.version)

    changed((_any_of(module, given["prefix"]) if none else module,), change, given)


def _any_of(name: str, prefix: str | None) -> str:
    """A module that is called so without its version; the name itself where there is none."""
    from sifmod.tree.life import read_life

    layout = layout_for(prefix)
    there = [module for module in live(layout) if module.name == name]
    default = read_life(layout, name).default if there else None
    return next((str(module) for module in there if module.version == default), str(there[0]) if there else name)


@click.command("hide")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--undo", is_flag=True, help="Show it again.")
@prefix_option
@json_option
def hide_command(modules: tuple[str, ...], undo: bool, **given: Any) -> None:
    """Leave modules out of `module avail` and `spider`; who names one with its version loads it as before."""
    from dataclasses import replace

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return life.with_life(module.version, replace(life.of(module.version), hidden=not undo))

    changed(modules, change, given, undo=undo)


@click.command("deprecate")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@since_option("The first day on which it is said (default: today).")
@click.option("--until", metavar="DATE", callback=day, help="The last day on which it loads; then it is retired.")
@click.option("--message", metavar="TEXT", default="", help="What to use instead, or why.")
@click.option("--undo", is_flag=True, help="It is not deprecated any more.")
@prefix_option
@json_option
def deprecate_command(
    modules: tuple[str, ...],
    since: "date | None",
    until: "date | None",
    message: str,
    undo: bool,
    **given: Any,
) -> None:
    """Have modules say at each load on a terminal that they go, until when, and what to use instead."""
    from dataclasses import replace

    from sifmod.tree.life import Deprecated, today

    if undo and (since or until or message):
        raise OptionError("--undo goes without --since, --until and --message")

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        one = life.of(module.version)
        known = one.deprecated.since if one.deprecated else today()
        said = None if undo else Deprecated(since or known, until, message)
        return life.with_life(module.version, replace(one, deprecated=said))

    changed(modules, change, given, undo=undo)


@click.command("retire")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--successor", metavar="MODULE", help="The module to use instead, which is installed.")
@since_option("The first day on which it does not load (default: today).")
@click.option("--message", metavar="TEXT", default="", help="What else to say to who loads it.")
@click.option("--undo", is_flag=True, help="It loads again.")
@prefix_option
@json_option
def retire_command(
    modules: tuple[str, ...],
    successor: str | None,
    since: "date | None",
    message: str,
    undo: bool,
    **given: Any,
) -> None:
    """Hide modules and refuse to load them, with a message that names the successor.

    Shells and jobs that have one loaded go on with it, and unload it. `sifmod gc` removes it later.
    """
    from dataclasses import replace

    from sifmod.tree.life import Retired, today

    if undo and (since or successor or message):
        raise OptionError("--undo goes without --since, --successor and --message")
    follows = str(resolve(successor, live(layout_for(given["prefix"])))) if successor else ""

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        if str(module) == follows:
            raise OptionError(f"{module} cannot be its own successor")
        one = life.of(module.version)
        known = one.retired.since if one.retired else today()
        said = None if undo else Retired(since or known, follows, message)
        return life.with_life(module.version, replace(one, retired=said))

    changed(modules, change, given, undo=undo)
