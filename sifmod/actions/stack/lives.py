"""The life of a stack's modules: which are the default, hidden, deprecated or retired, as its file says."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from sifmod.actions.changing_prefix import site_umask
from sifmod.actions.life import change_life, differences
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.stack_plan import StackPlan, Step, refuse_twice
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.config.stack import Entry
from sifmod.tree.life import Deprecated, Life, NameLife, Retired, read_life
from sifmod.tree.receipt import live_number
from sifmod.tree.stack_record import read_applied

_NOTHING = Life()


class Lives(NamedTuple):
    """What a stack decides about its modules."""

    wanted: Mapping[str, NameLife]  # by name; of what it says nothing about, what is decided already
    changes: tuple[tuple[ModuleName, str], ...]  # what will be different, for people
    decided: tuple[str, ...]  # the modules, and names for a default, of which the stack says something


def lives(plan: StackPlan) -> Lives:
    """What the stack says, over what is decided by hand; what it no longer says of a module is undone.

    Raises ConfigError for two defaults of one name, InstallError for a file about a life that cannot be read.
    """
    steps = [step for step in plan.steps if step.module]
    defaults = _defaults(steps)
    before = read_applied(plan.layout, plan.stack.name)
    ours = set(before.decided if before else ())
    wanted: dict[str, NameLife] = {}
    changes: list[tuple[ModuleName, str]] = []
    decided: list[str] = []
    for name, of_name in groupby(sorted(steps, key=_name), key=_name):
        now = life = read_life(plan.layout, name)
        for step in of_name:
            said = _life(step.member.entry)
            if step.module and (said != _NOTHING or str(step.module) in ours):
                life = life.with_life(step.module.version, said)
                decided += [str(step.module)] if said != _NOTHING else []
        if name in defaults or name in ours:
            life = NameLife(defaults.get(name), life.versions)
            decided += [name] if name in defaults else []
        if life != now:
            wanted[name] = life
            changes += differences(name, now, life)
    return Lives(wanted, tuple(changes), tuple(sorted(decided)))


def _name(step: Step) -> str:
    return step.module.name if step.module else ""


def _defaults(steps: Iterable[Step]) -> dict[str, str]:
    """The version that is the default, of each name that has one."""
    found = []
    for step in steps:
        default = step.member.entry.default
        if step.module and default and default in (True, step.variant):
            found.append((step.module, step))
    refuse_twice(
        ((module.name, step) for module, step in found),
        lambda step, other: f"{step.module} and {other.module} cannot both be the default",
    )
    return {module.name: module.version for module, _ in found}


def _life(entry: Entry) -> Life:
    deprecated, retired = entry.deprecated, entry.retired
    return Life(
        entry.hidden,
        Deprecated(deprecated.since, deprecated.until, deprecated.message) if deprecated else None,
        Retired(retired.since, retired.successor or "", retired.message) if retired else None,
        entry.labels,
    )


def apply_lives(
    plan: StackPlan, decided: Lives, site: Site, reporter: Reporter, *, waits: bool = False
) -> tuple[str, ...]:
    """Make it so; of modules that are not installed the next apply does it, or where it `waits` for jobs their last.

    Gives the modules that it waits for. Raises what `change_life` does.
    """
    later: list[str] = []
    for name, life in decided.wanted.items():
        new = {step.module.version for step in plan.steps if step.module and step.module.name == name}
        new = {version for version in new if not _is_there(plan, name, version)}
        if waits:
            later += [f"{name}/{version}" for version in sorted(new & {*life.versions, life.default})]
        there = {version: one for version, one in life.versions.items() if version not in new}
        default = life.default if life.default and _is_there(plan, name, life.default) else None
        if default != life.default and not waits:
            reporter.say(f"warning: {name}/{life.default} is not installed, so it is not made the default")
        if there or default or read_life(plan.layout, name) != NameLife():
            with site_umask(site):
                change_life(plan.layout, name, NameLife(default, there), site, reporter)
    return tuple(later)


def _is_there(plan: StackPlan, name: str, version: str) -> bool:
    return live_number(plan.layout, ModuleName(name, version)) is not None
