"""The life of a stack's modules: set defaults, hide, deprecate or retire them as the stack file says."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from sifmod.actions.changing_prefix import site_umask
from sifmod.actions.life import change_life, check_life, differences
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.stack_plan import Mark, StackPlan, Step, refuse_twice
from sifmod.actions.start import live_names
from sifmod.actions.view_modules import broken_views
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.config.stack import Entry
from sifmod.errors import SifmodError
from sifmod.tree.life import Deprecated, Life, NameLife, Retired, read_life
from sifmod.tree.receipt import live_number
from sifmod.tree.stack_record import read_applied

_AWAY: tuple[Mark, ...] = ("H", "E", "!")  # an apply does not install these
_DEFAULT = "default"


class LifecycleChanges(NamedTuple):
    """The stack's decisions about its modules."""

    wanted: Mapping[str, NameLife]  # by name; existing decisions where the stack has none
    changes: tuple[tuple[ModuleName, str], ...]  # the changes, for people
    decided: tuple[str, ...]  # what the stack decides (see `Applied`)


def lifecycle_changes(plan: StackPlan) -> LifecycleChanges:
    """Merge the stack's decisions over manual ones; those that it no longer has are undone, manual ones stay.

    About a module that stays uninstalled nothing is decided. Raises ConfigError for two defaults of one name,
    InstallError for an unreadable life-cycle file.
    """
    steps = [step for step in plan.steps if step.module]
    defaults = _defaults(steps)
    before = read_applied(plan.layout, plan.stack.name)
    ours = set(before.decided if before else ())
    wanted: dict[str, NameLife] = {}
    changes: list[tuple[ModuleName, str]] = []
    # of what is named no more they end where it is named again: a retired module keeps its life after a gc
    named = {str(step.module) for step in steps} | {_name(step) for step in steps}
    decided = [each for each in ours if _subject(each) not in named and _is_there_still(plan, each)]
    for name, of_name in groupby(sorted(steps, key=_name), key=_name):
        now = life = read_life(plan.layout, name)
        away = set[str]()
        for step in of_name:
            module = step.module
            assert module is not None  # noqa: S101 (for mypy: see `steps`)
            mine = {part for part in Life._fields if {f"{module} {part}", str(module)} & ours}
            if step.generation is None and step.mark in _AWAY:
                away.add(module.version)
                decided += [f"{module} {part}" for part in mine]
                continue
            said, one = _life(step.member.entry), life.of(module.version)
            has = {part for part in Life._fields if getattr(said, part)}
            if (wants := one._replace(**{part: getattr(said, part) for part in has | mine})) != one:
                life = life.with_life(module.version, wants)
            decided += [f"{module} {part}" for part in has]
        if defaults.get(name) in away:
            decided += [each for each in ours if _default(each) and _name_in(each) == name]
        elif name in defaults or {name, f"{name}/{life.default} {_DEFAULT}"} & ours:
            life = NameLife(defaults.get(name), life.versions)
            decided += [f"{name}/{life.default} {_DEFAULT}"] if name in defaults else []
        if life != now:
            wanted[name] = life
            changes += differences(name, now, life)
    return LifecycleChanges(wanted, tuple(changes), tuple(sorted({*decided})))


def after_an_error(plan: StackPlan, decided: LifecycleChanges) -> LifecycleChanges:
    """The decisions that are in force, and those of before, which may not be undone yet."""
    before = read_applied(plan.layout, plan.stack.name)
    ours = {each for each in decided.decided if _is_in_force(plan, decided, each)}
    return decided._replace(decided=tuple(sorted(ours.union(before.decided if before else ()))))


def _is_in_force(plan: StackPlan, decided: LifecycleChanges, one: str) -> bool:
    name, (module, _, part) = _name_in(one), one.partition(" ")
    wanted, now, version = decided.wanted.get(name), read_life(plan.layout, name), module.partition("/")[2]
    if wanted and _default(one):
        return wanted.default == now.default
    return wanted is None or not part or bool(getattr(wanted.of(version), part) == getattr(now.of(version), part))


def _default(one: str) -> bool:
    """Whether an entry of `decided` is about a default: that of earlier versions of sifmod is the name alone."""
    return one.partition(" ")[2] == _DEFAULT or "/" not in one


def _subject(one: str) -> str:
    """The module that an entry of `decided` is about; for a default, the name."""
    return _name_in(one) if _default(one) else one.partition(" ")[0]


def _is_there_still(plan: StackPlan, one: str) -> bool:
    life, (module, _, part) = read_life(plan.layout, _name_in(one)), one.partition(" ")
    mine = life.of(module.partition("/")[2])
    return bool(life.default) if _default(one) else bool(getattr(mine, part)) if part else mine != Life()


def _name_in(one: str) -> str:
    return one.partition(" ")[0].partition("/")[0]


def check_decisions(plan: StackPlan, decided: LifecycleChanges) -> None:
    """Raise OptionError for decisions that `apply_lifecycle` will refuse, since others contradict them."""
    for name, life in decided.wanted.items():
        check_life(name, read_life(plan.layout, name), life)


def _name(step: Step) -> str:
    return step.module.name if step.module else ""


def _defaults(steps: Iterable[Step]) -> dict[str, str]:
    """The default version of each name that has one. Raises ConfigError for a name with two."""
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


def apply_lifecycle(
    plan: StackPlan, decided: LifecycleChanges, site: Site, reporter: Reporter, *, waits: bool = False
) -> tuple[str, ...]:
    """Apply the decisions; those for missing modules are left to the next apply, or with `waits` to the last job.

    Until a new default is there, the old one stays; so does a module until its successor is there. With `waits` returns
    these missing modules, else (). Raises the first error of `change_life`, after all others.
    """
    later: list[str] = []
    failed: SifmodError | None = None
    for name, life in decided.wanted.items():
        named = {step.module.version: step for step in plan.steps if step.module and step.module.name == name}
        new = {version for version in named if not _is_there(plan, name, version)}
        if waits:
            comes = {version for version in new if named[version].mark not in _AWAY}
            later += [f"{name}/{version}" for version in sorted(comes & {*life.versions, life.default})]
        before = read_life(plan.layout, name)
        there = {version: one for version, one in life.versions.items() if version not in new}
        there |= {version: one for version, one in before.versions.items() if version in new}
        for version, one in there.items():
            if successor := _missing_successor(plan, one, before.of(version)):
                there[version] = one._replace(retired=before.of(version).retired)
                later += [f"{name}/{version}"] if waits else []
                if not waits:
                    reporter.say(f"warning: {name}/{version} was not retired: {successor} is not installed")
            elif one.retired and one.retired != before.of(version).retired and not _is_known(plan, one.retired):
                reporter.say(f"warning: {name}/{version}: its successor {one.retired.successor} is not installed here")
        default = life.default
        if default and not _is_there(plan, name, default):
            if not waits:
                reporter.say(f"warning: {name}/{default} is not installed, so it was not made the default")
            default = before.default if _can_stay(plan, name, NameLife(before.default, there)) else None
        if there or default or before != NameLife():
            try:
                with site_umask(site):
                    done = change_life(plan.layout, name, NameLife(default, there), site, reporter)
                for module in dict.fromkeys(module for module, _ in done.changes):
                    for view in broken_views(plan.layout, module):
                        reporter.say(f"{module}: {view} loads it and can no longer be loaded")
            except SifmodError as error:
                failed = failed or error
    if failed:
        raise failed
    return tuple(later)


def _missing_successor(plan: StackPlan, one: Life, before: Life) -> str:
    """The successor that a retired module names, if it is of this stack and not installed; "" if users can load it."""
    if one.retired is None or one.retired == before.retired:
        return ""
    of_stack = (step.module for step in plan.steps if step.module and str(step.module) == one.retired.successor)
    return next((str(module) for module in of_stack if live_number(plan.layout, module) is None), "")


def _is_known(plan: StackPlan, retired: Retired) -> bool:
    """Whether a successor is installed, by its name alone too; true without one."""
    known = live_names(plan.layout)
    return not retired.successor or any(retired.successor in (str(one), one.name) for one in known)


def _can_stay(plan: StackPlan, name: str, life: NameLife) -> bool:
    """Whether a default is installed, and not to be hidden or retired."""
    one = life.of(life.default or "")
    return life.default is not None and _is_there(plan, name, life.default) and not (one.hidden or one.retired)


def _is_there(plan: StackPlan, name: str, version: str) -> bool:
    return live_number(plan.layout, ModuleName(name, version)) is not None
