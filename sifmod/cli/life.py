"""What the verbs that decide about a module share: `default`, `hide`, `deprecate` and `retire`."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import Decorated

if TYPE_CHECKING:
    from datetime import date

    from sifmod.cli.outputs.life import DeprecatedData, LifeData, RetiredData
    from sifmod.config.name import ModuleName
    from sifmod.tree.life import NameLife
    from sifmod.tree.receipt import Installation

    Change = Callable[[ModuleName, NameLife], NameLife]


def changed(names: tuple[str, ...], change: "Change", prefix: str | None, *, as_json: bool) -> None:
    """Make of the life of each module what `change` says, and say what became of it."""
    from functools import partial

    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.life import update_life
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.spider_cache import refresh_spider_cache
    from sifmod.cli.context import load_facts, resolve, tree, typed
    from sifmod.cli.output import print_json, say
    from sifmod.tree.receipt import live_modules

    site = load_facts({"prefix": prefix}).site
    layout = tree(site.prefix)
    known = [module for module, _ in live_modules(layout)]
    modules = [resolve(name, known) for name in names]
    reporter = Reporter(say, command=typed())
    rows = []
    with changing_prefix(site):
        any_changed = False
        for module in modules:
            of_module = partial(change, module)
            done = update_life(layout, module.name, of_module, site, reporter)
            any_changed |= done.changed
            for each, what in done.news:
                say(f"{each}: {what}")
            if not done.news:
                say(f"{module}: nothing to change")
            rows.append({"module": str(module), "changed": done.changed, "life": life_data(done.life, module.version)})
        if any_changed:
            refresh_spider_cache(layout, site, reporter)
    if as_json:
        print_json(rows)


def life_data(life: "NameLife", version: str) -> "LifeData":
    """What is decided about one version, as `--json` prints it."""
    one = life.of(version)
    deprecated: DeprecatedData | None = None
    retired: RetiredData | None = None
    if said := one.deprecated:
        until = str(said.until) if said.until else None
        deprecated = {"since": str(said.since), "until": until, "message": said.message}
    if gone := one.retired:
        retired = {"since": str(gone.since), "successor": gone.successor or None, "message": gone.message}
    return {
        "default": life.default == version,
        "hidden": one.hidden,
        "deprecated": deprecated,
        "retired": retired,
        "labels": dict(one.labels),
    }


def say_life(installation: "Installation") -> None:
    """Say what a load of the module says of its end, and whether it is hidden."""
    from pathlib import Path

    from sifmod.tree.layout import Layout

    layout, module = Layout(Path(installation.root).parents[4]), installation.module
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
