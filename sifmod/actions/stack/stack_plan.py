"""stack plan: a stack with its options, the changes that would make a tree match it, and the reasons."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from sifmod import __version__
from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.current import check_installed_from, compare, outgoing_layers
from sifmod.actions.install.decision import Decision, decide, pin_to_lock, variants_here
from sifmod.actions.install.hold import check_hold
from sifmod.actions.install.install import check_locked
from sifmod.actions.install.install_easyconfigs import InstallOptions, find_unchanged, installed_by
from sifmod.actions.install.sanity_check import words_of
from sifmod.actions.layer.locked_layers import check_layers, layers_match, unlocked_layers
from sifmod.actions.layer.places import OutgoingLayer
from sifmod.actions.lock import Lock, lock_beside, read_lock
from sifmod.actions.start import layout_at, resolve, site_in_force
from sifmod.actions.workers import in_order
from sifmod.config.input import OWN_FILES, HostFacts
from sifmod.config.load_site import LoadedSite, Sites
from sifmod.config.name import ModuleName
from sifmod.config.option import deciding
from sifmod.config.stack import Member, Stack, load_stack
from sifmod.config.yaml.node import problem_at
from sifmod.errors import ConfigError, HeldError, InstallError, SifmodError, error_of
from sifmod.system import abbreviated
from sifmod.tree.history import read_past
from sifmod.tree.layer import Layer
from sifmod.tree.layout import Layout
from sifmod.tree.life import decided_names, read_life, today
from sifmod.tree.provenance import CommandLine, Pairs
from sifmod.tree.receipt import Installation, live_number
from sifmod.tree.stack_record import applied_by_others, read_applied
from sifmod.tree.state import edited, edited_stubs, missing

Given = Mapping[str, str]


@dataclass(frozen=True)
class StackOptions:
    """The options of the command line for a stack."""

    site: Given = field(default_factory=dict)  # options by key of the site (option.KEYS)
    install: InstallOptions = field(default_factory=InstallOptions)
    locked: bool = False  # every module must match the lock beside the stack's file
    only: tuple[str, ...] = ()  # these modules, by their names or beginnings, and no others
    jobs: int | None = None  # modules at the same time; None: as many as processors
    whole: bool = False  # the stack is a bundle's, which may only name files below its directory


class Planned(NamedTuple):
    """A stack, and the options for all of its modules."""

    stack: Stack
    layout: Layout
    site: LoadedSite  # of a member that names none
    given: Given  # options of the command line by key of the site
    options: InstallOptions  # of the command line, without those that decide what is installed
    lock: Lock | None = None  # which every module must match
    redecide: bool = False  # everything is decided again, though a receipt says that nothing has changed
    jobs: int = 1  # how many are installed at the same time


def read_stack(stack: Path | Stack, options: StackOptions) -> Planned:
    """A stack, or the one in this file, with its options.

    Raises the errors of `load_stack`, PermissionsError; OptionError, also for a lock that cannot be read.
    """
    site = site_in_force(options.site)
    found = load_stack(stack, whole=options.whole) if isinstance(stack, Path) else stack
    layout = layout_at(site.site.prefix)
    lock = read_lock(lock_beside(found.path)) if options.locked else None
    jobs = options.jobs or fetch_settings(site.site).processors
    return Planned(found, layout, site, options.site, options.install, lock, jobs=jobs)


# new, installed, to be installed again, held after a rollback, retired and removed, error
Mark = Literal[" ", "x", "R", "L", "H", "E", "!"]


class Work(NamedTuple):
    """The pending work for a module, kept small because there may be thousands."""

    image: str  # digest of the image request; "" if the image is there, and for a view
    view: bool
    gpus: int  # GPUs per node for its test
    asked: str  # the same digest, even if the image is there
    words: tuple[str, ...]  # commands and paths for its sanity check


class Step(NamedTuple):
    """One module of a stack: its state, and the pending work."""

    member: Member
    variant: str | None
    mark: Mark
    module: ModuleName | None = None  # None if unknown
    why: tuple[str, ...] = ()  # reasons for its mark
    todo: Work | None = None  # None if there is nothing to do, or after an error
    generation: int | None = None  # the live one
    error: SifmodError | None = None
    outgoing: tuple[OutgoingLayer, ...] = ()  # layers of this user that will not fit its new image
    unlocked: tuple[Layer, ...] = ()  # layers of the tree that the lock does not name

    def __str__(self) -> str:
        """The module's name; if that is unknown, its easyconfig and variant."""
        variant = f" --variant {self.variant}" if self.variant else ""
        return str(self.module or f"{self.member.easyconfig}{variant}")


class StackPlan(NamedTuple):
    """The plan of a stack for one tree."""

    stack: Stack
    layout: Layout
    steps: tuple[Step, ...]
    unnamed: tuple[ModuleName, ...]  # modules that the stack installed and no longer names
    others: Mapping[ModuleName, Sequence[str]]  # the other stacks that installed a module, and may name it
    # decides again, since a large plan cannot keep its requests; raises what deciding raises
    decide: Callable[[Step], Decision]


def only(plan: StackPlan, names: tuple[str, ...]) -> StackPlan:
    """The steps for these modules, for all if none is named. Raises ModuleError for a name of none or several."""
    if not names:
        return plan
    known = [step.module for step in plan.steps if step.module]
    wanted = {resolve(name, known, "`sifmod stack plan` shows the modules of the stack") for name in names}
    return plan._replace(steps=tuple(step for step in plan.steps if step.module in wanted), unnamed=())


def plan_stack(planned: Planned) -> StackPlan:
    """Plan a stack; changes nothing. An easyconfig that cannot be installed becomes a step with its error.

    Raises ConfigError if two members give the same module; if only the lock names a module, InstallError or the error
    of a member whose module is unknown.
    """
    around, sites, members = HostFacts(os.environ), Sites(), planned.stack.members
    found = in_order(lambda number: _of_member(members[number], planned, around, sites), len(members), planned.jobs)
    before = read_applied(planned.layout, planned.stack.name)
    names, decided = decided_names(planned.layout), before.decided if before else ()
    pairs = zip(members, found, strict=True)  # a worker's steps bring copies of their member
    there = (step._replace(member=member) for member, some in pairs for step in some)
    steps = [_unless_ended(step, planned.layout, names, decided) for step in there]
    modules = ((step.module, step) for step in steps if step.module and not step.error)
    refuse_twice(
        modules,
        lambda step, other: f"gives {step.module}, as {other.member.easyconfig} does ({other.member.mark})",
    )
    named = {step.module for step in steps}
    if planned.lock and (more := sorted(set(planned.lock.modules) - named)):
        unknown = next((step.error for step in steps if step.error and not step.module), None)
        hint = "`sifmod stack lock` writes it again"
        raise unknown or InstallError(f"the lock {planned.lock.path} names {more[0]}, which the stack does not", hint)
    if planned.lock:
        prefix = planned.layout.prefix
        locks = {name: unlocked_layers(prefix, locked) for name, locked in planned.lock.modules.items()}
        steps = [step._replace(unlocked=locks[step.module]) if step.module in locks else step for step in steps]
    gone = (module for module in (before.modules if before else ()) if module not in named)
    unnamed = tuple(module for module in gone if live_number(planned.layout, module) is not None)
    others = applied_by_others(planned.layout, planned.stack.name) if unnamed else {}
    again = partial(_decide_again, planned, sites)
    return StackPlan(planned.stack, planned.layout, tuple(steps), unnamed, others, again)


def _unless_ended(step: Step, layout: Layout, names: Collection[str], decided: Collection[str]) -> Step:
    """The step, marked if its module stays uninstalled because it was retired and then removed.

    `names` are those with decisions, `decided` what this stack decided.
    """
    module, entry = step.module, step.member.entry
    if step.mark != " " or module is None or module.name not in names:
        return step
    life = read_life(layout, module.name).of(module.version)
    ours = {str(module), f"{module} {'retired' if life.retired else 'deprecated'}"}.intersection(decided)
    if ours and not (entry.retired or entry.deprecated):
        return step  # the stack reinstates it
    day = life.refused_from
    if day is None or day > today():
        return step
    why = f"it was retired on {day}, and removed; `sifmod retire --undo {module}` and another apply install it again"
    return step._replace(mark="E", why=(why,), todo=None)


def _of_member(member: Member, planned: Planned, around: HostFacts, sites: Sites) -> list[Step]:
    wanted = member.entry.variants
    try:
        here = variants_here(member.easyconfig, sites.of(_given(member, planned))) if wanted == "all" else wanted
        return [_step(member, variant, planned, around, sites) for variant in here or (None,)]
    except (SifmodError, OSError) as error:
        return _made_before(Step(member, None, "!", error=error_of(error)), planned.layout, None)


def _given(member: Member, planned: Planned) -> dict[str, str]:
    """The options for a member: the stack's own override those of the command line."""
    entry, directory = member.entry, Path(member.mark.file).parent
    given = dict(planned.given)
    if member.site:
        # a site may set its own prefix, but a stack is for one tree
        given |= {"site": member.site, "prefix": str(planned.layout.prefix)}
    if entry.accelerator:
        given["accelerator"] = entry.accelerator
    if entry.source:
        beside = (directory / entry.source).exists()
        given["source"] = str(directory / entry.source) if beside else entry.source
    return given


def _options(given: Given, variant: str | None, planned: Planned) -> InstallOptions:
    asked = CommandLine(options=deciding({**given, "variant": variant}), checked=planned.options.asked.checked)
    return replace(planned.options, variant=variant, source=given.get("source"), asked=asked)


def _decide_again(planned: Planned, sites: Sites, step: Step) -> Decision:
    given = _given(step.member, planned)
    decision = decide(step.member.easyconfig, sites.of(given), _options(given, step.variant, planned))
    if decision.plan.module != step.module:
        raise SifmodError(f"its easyconfig now gives {decision.plan.module}", "repeat the command")
    return pin_to_lock(decision, planned.lock) if planned.lock else decision


def _step(member: Member, variant: str | None, planned: Planned, around: HostFacts, sites: Sites) -> Step:
    given, layout = _given(member, planned), planned.layout
    options = _options(given, variant, planned)
    redecide = planned.redecide or planned.lock is not None
    module: ModuleName | None = None
    number: int | None = None
    try:
        if not redecide and (found := find_unchanged(layout, member.easyconfig, options, around)):
            return Step(member, variant, "x", found.module, generation=found.generation)
        decision = decide(member.easyconfig, sites.of(given), options)
        module = decision.plan.module
        decision = pin_to_lock(decision, planned.lock) if planned.lock else decision
        there = compare(layout, decision)
        before, todo = there.before, _todo(there.before, decision)
        other = [f"changed since the lock was written: {decision.differing}"] if decision.differing else []
        if decision.locked and decision.locked.layers:
            check_layers(layout.prefix, decision.locked, decision.options.stores)
        if not check_locked(before, decision):
            other.append("image-dependent files are compared with the lock during the install")
        number = before.generation if before else None
        if before is None or not there.complete:
            if before:
                check_installed_from(before, decision)
            past = read_past(layout, module)
            check_hold(past, decision)
            if past.held and todo.image and decision.locked is None:
                other.append("its image shows during the install whether it has the held content, which is skipped")
        if before is None:
            return Step(member, variant, " ", module, tuple(other), todo=todo)
        if not there.complete:
            why = (*_why(layout, before, decision, around), *other)
            leaves = outgoing_layers(before, decision)
            return Step(member, variant, "R", module, why, todo, number, outgoing=leaves)
        lacks = decision.locked and not layers_match(layout, decision.locked)
        if lacks:
            why = ("its layers differ from the lock, which a copy of the locked ones replaces", *other)
            return Step(member, variant, "L", module, why, todo, number)
        needed = planned.redecide or there.receipt
        return Step(member, variant, "x", module, tuple(other), todo if needed else None, number)
    except HeldError as held:
        return Step(member, variant, "H", module, (f"{held.message}; {held.hint}",), generation=number)
    except (SifmodError, OSError) as error:
        step = Step(member, variant, "!", module, error=error_of(error))
        return step if module else _made_before(step, layout, options.asked.options)[0]


def _todo(before: Installation | None, decision: Decision) -> Work:
    plan, image = decision.plan, decision.image.request
    there = before is not None and before.provenance.image.request == image
    gpus = 0 if plan.accelerator == "none" else plan.gpus_per_node
    return Work("" if there else image, plan.image is None, gpus, image, words_of(plan))


def _made_before(failed: Step, layout: Layout, options: Pairs | None) -> list[Step]:
    """A step for each module that the easyconfig made, with these options if any: an error does not stop the others."""
    made = sorted(installed_by(layout, failed.member.easyconfig), key=lambda one: one.module)
    there = [one for one in made if options is None or one.provenance.asked.options == options]
    variants = [dict(one.provenance.asked.options).get("--variant") for one in there]
    pairs = zip(there, variants, strict=True)
    made_before = (failed._replace(module=one.module, generation=one.generation, variant=v) for one, v in pairs)
    return list(made_before) or [failed]


def _why(layout: Layout, before: Installation, decision: Decision, around: HostFacts) -> Iterator[str]:
    """The reasons why a module is installed again."""
    made = before.provenance
    if decision.options.rebuild:
        yield "it was requested"
    edits = (f"{path} was changed or removed" for path in edited(before))
    if harmed := (*missing(layout, before), *edits, *edited_stubs(layout, before)):
        yield f"{harmed[0]}{f', and {len(harmed) - 1} more' if len(harmed) > 1 else ''}"
    if decision.locked and before.image_sha256 != decision.locked.digest:
        yield "its image differs from the lock"
    if made.image.request != decision.image.request:
        yield "it needs a different image"
    own = os.path.dirname(made.easyconfig) + "/"  # noqa: PTH120 (a text)
    if elsewhere := os.path.realpath(made.easyconfig) != os.path.realpath(decision.loaded.path):
        yield f"it was installed from {made.easyconfig}, which its files name"
    there = (seen for seen in made.inputs if not (elsewhere and seen.path.startswith(own)))
    changed = [seen.path for seen in there if not around.unchanged((seen,))]
    yield from (f"{path.lstrip('*?@')} has changed" for path in changed)
    if made.asked.options != decision.options.asked.options:
        yield "its options have changed"
    if made.site != decision.site.site.name:
        yield f"its site was {made.site} and is {decision.site.site.name}"
    if made.sifmod != __version__:
        yield f"it was made by sifmod {made.sifmod}"
    facts = dict(made.facts)
    now = facts | {OWN_FILES: dict(decision.site.facts)[OWN_FILES]}
    if made.sifmod == __version__ and facts.get(OWN_FILES) != now[OWN_FILES]:
        yield f"it was made by sifmod {made.sifmod} with different files"
    elif (others := sorted({name for name, _ in {*now.items()} ^ {*decision.site.facts}})) and not changed:
        yield f"this machine or its environment has changed: {abbreviated(others, 3)}"


def to_do(step: Step) -> bool:
    """Whether a module needs an install, not just a new receipt."""
    return step.todo is not None and step.mark != "x"


def refuse_twice(steps: Iterable[tuple[object, Step]], message: Callable[[Step, Step], str]) -> None:
    """Raise ConfigError for steps that decide the same thing twice."""
    first: dict[object, Step] = {}
    problems = []
    for thing, step in steps:
        other = first.setdefault(thing, step)
        if other is not step:
            problems.append(problem_at(step.member.mark, "easyconfigs", message(step, other)))
    if problems:
        raise ConfigError(tuple(problems))
