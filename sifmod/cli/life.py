"""`sifmod default`, `hide`, `deprecate` and `retire`, and how decisions are shown."""

from datetime import date

from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts, reporter
from sifmod.cli.later import later
from sifmod.cli.output import print_json, say
from sifmod.cli.shared_options import TreeOptions
from sifmod.errors import InstallError, OptionError
from sifmod.tree.layout import Layout

with later():
    from sifmod.actions import life
    from sifmod.tree import life as lives
    from sifmod.tree import receipt


def _decide(request: "life.LifeRequest", given: TreeOptions) -> None:
    rows = life.decide_lives(request, load_facts(given.settings).site, reporter(), _report)
    if given.as_json:
        print_json(rows)


def _report(row: "life.DecidedModule") -> None:
    for each, what in row.changes:
        say(f"{each}: {what}")
    if not row.changes:
        say(f"{row.module}: nothing to change")
    for view in row.views:
        say(f"{row.module}: {view} loads it and can no longer be loaded")


def say_life(installation: "receipt.Installation") -> None:
    """Warn of a module that is retired, else deprecated, else hidden; say nothing of any other."""
    layout, module = Layout(installation.prefix), installation.module
    if not layout.life(module.name).exists():
        return
    try:
        text = lives.notice(module, lives.read_life(layout, module.name).of(module.version), lives.today())
    except InstallError as error:  # the command itself has done its work
        text = error.message
    if text:
        say(f"warning: {text}")


class DefaultOptions(TreeOptions):
    module: str = argument("MODULE")
    none: bool = False


@command("default", DefaultOptions, lambda: list[life.DecidedModule])
def default_command(given: DefaultOptions) -> None:
    """Make MODULE the one that its name without a version loads; with --none, the module system decides again."""
    _decide(life.Default(given.module, given.none), given)


class LifeOptions(TreeOptions):
    modules: tuple[str, ...] = argument("MODULE...", many=True)
    undo: bool = False


@command("hide", LifeOptions, lambda: list[life.DecidedModule])
def hide_command(given: LifeOptions) -> None:
    """Hide modules from `module avail` and `spider`; the full name still loads."""
    _decide(life.Hide(given.modules, given.undo), given)


class DeprecateOptions(LifeOptions):
    since: "date | None" = None
    until: "date | None" = None
    message: str = ""


@command("deprecate", DeprecateOptions, lambda: list[life.DecidedModule])
def deprecate_command(given: DeprecateOptions) -> None:
    """Print a notice at each load on a terminal: that the module will go, when, and what to use instead."""
    if given.undo and (given.since or given.until or given.message):
        raise OptionError("--undo cannot be combined with --since, --until or --message")
    _decide(life.Deprecate(given.modules, given.undo, given.since, given.until, given.message), given)


class RetireOptions(LifeOptions):
    successor: str | None = None
    since: "date | None" = None
    message: str = ""


@command("retire", RetireOptions, lambda: list[life.DecidedModule])
def retire_command(given: RetireOptions) -> None:
    """Hide modules and refuse to load them, with a message that names the successor.

    Shells and jobs that have one loaded can keep using it and unload it. `sifmod gc` later removes the modules.
    """
    if given.undo and (given.since or given.successor or given.message):
        raise OptionError("--undo cannot be combined with --since, --successor or --message")
    _decide(life.Retire(given.modules, given.undo, given.since, given.successor or "", given.message), given)
