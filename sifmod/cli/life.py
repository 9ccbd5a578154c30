"""`sifmod default`, `hide`, `deprecate` and `retire`, and how decisions are shown."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sifmod.cli.command import argument, command
from sifmod.cli.context import layout_for, live, load_facts, reporter, resolve, tree
from sifmod.cli.output import print_json, say
from sifmod.cli.shared_options import TreeOptions
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from datetime import date

    from sifmod.tree.life import NameLife
    from sifmod.tree.receipt import Installation

    Change = Callable[[ModuleName, NameLife], NameLife]


def changed(names: tuple[str, ...], change: "Change", given: TreeOptions, *, undo: bool = False) -> None:
    """Apply `change` to the life of each module and report the result.

    To `undo` a decision, the module need not be installed.
    """
    from functools import partial

    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.life import DecidedModule, update_life
    from sifmod.actions.spider_cache import refresh_spider_cache

    site = load_facts(given.settings).site
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
    if given.as_json:
        print_json(rows)


def _decided(layout: Layout) -> tuple[ModuleName, ...]:
    """Modules with decisions that are not installed."""
    from sifmod.tree.life import decided_names, read_life
    from sifmod.tree.receipt import live_number

    names = decided_names(layout)
    modules = (ModuleName(name, version) for name in names for version in read_life(layout, name).versions)
    return tuple(module for module in modules if live_number(layout, module) is None)


def say_life(installation: "Installation") -> None:
    """Show a module's deprecation or retirement notice, and whether it is hidden."""
    layout, module = Layout(installation.prefix), installation.module
    if not layout.life(module.name).exists():
        return
    from sifmod.cli.output import say
    from sifmod.tree.life import notice, read_life, today

    if told := notice(module, read_life(layout, module.name).of(module.version), today()):
        say(f"warning: {told}")


class DefaultOptions(TreeOptions):
    module: str = argument("MODULE")
    none: bool = False


@command("default", DefaultOptions)
def default_command(given: DefaultOptions) -> None:
    """Make MODULE the one that its name without a version loads; with --none, the module system decides again."""

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return replace(life, default=None if given.none else module.version)

    changed((_any_of(given.module, given.prefix) if given.none else given.module,), change, given)


def _any_of(name: str, prefix: str | None) -> str:
    """Any module with this name; the name itself if there is none."""
    from sifmod.tree.life import read_life

    layout = layout_for(prefix)
    there = [module for module in live(layout) if module.name == name]
    default = read_life(layout, name).default if there else None
    return next((str(module) for module in there if module.version == default), str(there[0]) if there else name)


class LifeOptions(TreeOptions):
    modules: tuple[str, ...] = argument("MODULE...", many=True)
    undo: bool = False


@command("hide", LifeOptions)
def hide_command(given: LifeOptions) -> None:
    """Hide modules from `module avail` and `spider`; the full name still loads."""

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        return life.with_life(module.version, replace(life.of(module.version), hidden=not given.undo))

    changed(given.modules, change, given, undo=given.undo)


class DeprecateOptions(LifeOptions):
    since: "date | None" = None
    until: "date | None" = None
    message: str = ""


@command("deprecate", DeprecateOptions)
def deprecate_command(given: DeprecateOptions) -> None:
    """Print a notice at each load on a terminal: that the module will go, when, and what to use instead."""
    from sifmod.tree.life import Deprecated, today

    if given.undo and (given.since or given.until or given.message):
        raise OptionError("--undo cannot be combined with --since, --until or --message")

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        one = life.of(module.version)
        known = one.deprecated.since if one.deprecated else today()
        said = None if given.undo else Deprecated(given.since or known, given.until, given.message)
        return life.with_life(module.version, replace(one, deprecated=said))

    changed(given.modules, change, given, undo=given.undo)


class RetireOptions(LifeOptions):
    successor: str | None = None
    since: "date | None" = None
    message: str = ""


@command("retire", RetireOptions)
def retire_command(given: RetireOptions) -> None:
    """Hide modules and refuse to load them, with a message that names the successor.

    Shells and jobs that have one loaded can keep using it and unload it. `sifmod gc` removes it later.
    """
    from sifmod.tree.life import Retired, today

    if given.undo and (given.since or given.successor or given.message):
        raise OptionError("--undo cannot be combined with --since, --successor or --message")
    follows = str(resolve(given.successor, live(layout_for(given.prefix)))) if given.successor else ""

    def change(module: "ModuleName", life: "NameLife") -> "NameLife":
        if str(module) == follows:
            raise OptionError(f"{module} cannot be its own successor")
        one = life.of(module.version)
        known = one.retired.since if one.retired else today()
        said = None if given.undo else Retired(given.since or known, follows, given.message)
        return life.with_life(module.version, replace(one, retired=said))

    changed(given.modules, change, given, undo=given.undo)
