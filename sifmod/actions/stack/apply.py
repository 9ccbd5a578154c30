"""stack apply and stack plan: make a tree match a stack, here or by jobs of Slurm, or show a preview."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.changing_prefix import check_group, site_umask
from sifmod.actions.lock import Lock, images_of
from sifmod.actions.reporter import Reporter
from sifmod.actions.spider_cache import is_stale, refresh_spider_cache
from sifmod.actions.stack.applying import ApplyContext, Line, ModuleEnded, NotTried, Outcome, write_line
from sifmod.actions.stack.fetches import Fetches, fetches
from sifmod.actions.stack.job import JobOptions, end_of_element, submit_stack
from sifmod.actions.stack.lifecycle import LifecycleChanges, after_an_error, apply_lifecycle, lifecycle_changes
from sifmod.actions.stack.record import change_record
from sifmod.actions.stack.stack_plan import Planned, StackOptions, StackPlan, only, plan_stack, read_stack, to_do
from sifmod.actions.stack.unbundle import OpenBundle, opened_bundle, or_undone
from sifmod.actions.stack.watch import JobsStand, JobWatch, StackTest
from sifmod.actions.view_modules import lost_modules
from sifmod.actions.workers import FinishedEvent, ProgressEvent, TextEvent
from sifmod.config.name import ModuleName
from sifmod.config.site import DECIDING, Site
from sifmod.errors import HeldError, SifmodError
from sifmod.tree.generation import tidy
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_number, view_at
from sifmod.tree.stack_record import Applied, Submission


@dataclass(frozen=True)
class StackRun:
    """The request of an apply: the modules of a file, or those of a bundle."""

    file: Path | None
    options: StackOptions = field(default_factory=StackOptions)
    bundle: Path | None = None
    local_settings: bool = False  # this machine's settings, not the bundle's, decide about its modules
    jobs: JobOptions | None = None  # None: the modules are installed here, not by jobs of Slurm
    wait: bool = False  # for the jobs


class Preview(NamedTuple):
    """A preview of an apply."""

    plan: StackPlan
    lives: LifecycleChanges | None  # None: the apply decides about the life of no module
    fetches: Fetches | None  # None: nothing is fetched
    prefix: Path


class Submitted(NamedTuple):
    """The jobs of a stack: earlier ones that have not ended, and new ones."""

    earlier: tuple[Submission, ...]
    new: tuple[Submission, ...]
    waits: bool  # whether the apply waits for the jobs

    @property
    def jobs(self) -> tuple[Submission, ...]:
        """The earlier jobs and the new ones."""
        return (*self.earlier, *self.new)


class JobsGoOn(NamedTuple):
    """The apply was interrupted while it waited for these jobs, which go on."""

    jobs: tuple[Submission, ...]


Event = OpenBundle | Preview | ModuleEnded | Submitted | JobsStand | JobsGoOn
"""The events that the caller receives while a stack is applied."""
Tell = Callable[[Event], None]


class LostModule(NamedTuple):
    """A name that a view of the stack loads, and what there is instead of a module that can be loaded."""

    view: ModuleName
    name: str
    found: str


@dataclass(frozen=True)
class StackOutcome:
    """The outcomes of the modules of a stack, by their numbers in its plan."""

    plan: StackPlan
    lives: LifecycleChanges | None
    outcomes: Mapping[int, Outcome]
    held: Mapping[int, HeldError]  # found to be held during the install
    failed: Mapping[int, SifmodError]
    submitted: Submitted | None = None
    tests: tuple[StackTest, ...] = ()
    later: tuple[str, ...] = ()  # modules whose life is decided when the jobs end
    lost: tuple[LostModule, ...] = ()


def preview_stack(file: Path, options: StackOptions) -> Preview:
    """A preview of an apply and its downloads. Changes nothing."""
    planned = read_stack(file, options)
    plan = only(plan_stack(planned), options.only)
    decided = None if options.only else lifecycle_changes(plan)
    return Preview(plan, decided, fetches(plan, planned.jobs), planned.site.site.prefix)


def apply_stack(run: StackRun, reporter: Reporter, tell: Tell) -> StackOutcome:
    """Install the missing or different modules of a stack; then decide about the lives of all its modules.

    The failure of a module is in the outcome, and the others go on, except those that need an image that it did not
    fetch; with a lock nothing is begun if a module cannot match it. Idempotent. Raises ConfigError, OptionError,
    ModuleError, LockError, InstallError, PermissionsError, and for a bundle the errors of `opened_bundle`.
    """
    if run.bundle is None:
        apply = _Apply(read_stack(run.file or Path(), run.options), run, reporter, tell)
        return apply.outcome(*apply.plans())
    with opened_bundle(run.bundle, run.options, reporter, local=run.local_settings) as opened:
        tell(opened)
        with or_undone(opened.undo):
            apply = _Apply(read_stack(opened.file, opened.options), run, reporter, tell)
            plans = apply.plans(_own_settings(opened, run.options))
        return apply.outcome(*plans)


def _own_settings(opened: OpenBundle, options: StackOptions) -> str:
    """A hint about the settings of this run that take precedence over those of the bundle; "" without any."""
    if opened.local:
        differ = f"these settings differ: {'; '.join(opened.differing)}. " if opened.differing else ""
        return differ and f"{differ}Without --local-settings the bundle's settings are used"
    typed = ", ".join(f"--{key.replace('_', '-')}" for key in options.site if key in DECIDING)
    return typed and f"without {typed} the bundle's settings are used"


@dataclass(frozen=True)
class _Apply:
    planned: Planned
    run: StackRun
    reporter: Reporter
    tell: Tell

    def plans(self, hint: str = "") -> tuple[StackPlan, StackPlan]:
        """Remove files of dead runs; then the plan of all modules, and that of those which this run is about.

        `hint`, if there is one, is that of a lock which does not match.
        """
        planned, site, reporter = self.planned, self.planned.site.site, self.reporter
        check_group(site)
        if os.access(planned.layout.prefix, os.W_OK):
            with site_umask(site):
                tidy(reporter.tree(site))  # leftovers on this node would make every module look changed
        whole = plan_stack(planned)
        plan = only(whole, self.run.options.only)
        if planned.lock and (refused := next((step.error for step in plan.steps if step.error), None)):
            refused.hint = hint or refused.hint
            raise refused  # with a lock every module is installed, or none
        return whole, plan

    def outcome(self, whole: StackPlan, plan: StackPlan) -> StackOutcome:
        """Apply `plan`, a part of the plan `whole`."""
        planned, site, reporter = self.planned, self.planned.site.site, self.reporter
        needed = fetches(plan, planned.jobs) if any(step.todo for step in plan.steps) else None
        decided = None if self.run.options.only else lifecycle_changes(plan)
        self.tell(Preview(plan, decided, needed, site.prefix))
        applying = ApplyContext(plan, needed.shared if needed else {}, reporter.command)
        submitted, tests = None, tuple[StackTest, ...]()
        if jobs := self.run.jobs:
            jobs = jobs._replace(together=needed.together) if needed else jobs
            found = submit_stack(plan, jobs, site, reporter.tree(site))
            self.tell(submitted := Submitted(*found, self.run.wait))
            if self.run.wait and submitted.jobs:
                tests = self._wait(submitted.jobs, applying)
                self._compare(submitted.earlier, applying)
        else:
            self._install(applying)
        waits = bool(submitted and submitted.jobs and not self.run.wait)
        try:
            later = self._decide(plan, decided, waits=waits)
        finally:
            decided = self._end(whole, applying, decided, submitted=bool(submitted and submitted.jobs))
        lost = () if waits else tuple(_lost(plan, site))
        done = (applying.outcomes, applying.held, applying.failed)
        return StackOutcome(plan, decided, *done, submitted, tests, later, lost)

    def _install(self, applying: ApplyContext) -> None:
        """Install the modules in workers; the messages about a module go to its log."""
        with site_umask(self.planned.site.site):  # others of the group write into the same logs
            for event in applying.run(self.planned.jobs):
                match event:
                    case ProgressEvent(_, what, done, total):
                        self.reporter.progress(what, done, total)
                        continue
                    case TextEvent(_, text):
                        line = Line("said", text)
                    case NotTried(task):
                        line = applying.line(task)
                    case FinishedEvent(task):
                        line = applying.line(task)
                        self.tell(applying.ended(task))
                step = applying.plan.steps[event.task]
                try:
                    write_line(applying.plan.layout, applying.plan.stack, step, line)
                except OSError as error:
                    why = error.strerror or error
                    self.reporter.warn_once("the logs", f"the log of {step} cannot be written: {why}")

    def _wait(self, jobs: tuple[Submission, ...], applying: ApplyContext) -> tuple[StackTest, ...]:
        """Wait for jobs, so that `applying` has the outcomes of their modules."""
        watch = JobWatch(applying, jobs)
        try:
            for event in watch.run():
                self.tell(event if isinstance(event, JobsStand) else applying.ended(event))
        except (KeyboardInterrupt, SystemExit):
            self.tell(JobsGoOn(jobs))
            raise
        return watch.tests

    def _compare(self, earlier: tuple[Submission, ...], applying: ApplyContext) -> None:
        """Let modules fail that earlier jobs installed from files which have changed meanwhile."""
        covered = {module for job in earlier for element in job.elements for module in element}
        if not covered:
            return
        late = {step.module for step in plan_stack(self.planned).steps if to_do(step)} & covered
        for number, step in enumerate(applying.plan.steps):
            if step.module in late and number in applying.outcomes:
                del applying.outcomes[number]
                why = "an earlier job installed it, and its files have changed since"
                applying.failed[number] = SifmodError(why, "the same command submits it again")
                self.tell(applying.ended(number))

    def _decide(self, plan: StackPlan, decided: LifecycleChanges | None, *, waits: bool = False) -> tuple[str, ...]:
        """Apply the decisions as `apply_lifecycle`; what was installed and decided is recorded, also after an error."""
        site, reporter = self.planned.site.site, self.reporter
        try:
            return apply_lifecycle(plan, decided, site, reporter, waits=waits) if decided else ()
        except BaseException:
            decided = decided and after_an_error(plan, decided)
            raise
        finally:
            _write_down(plan, decided, self.planned.lock, site, reporter)

    def _end(
        self, whole: StackPlan, applying: ApplyContext, decided: LifecycleChanges | None, *, submitted: bool
    ) -> LifecycleChanges | None:
        """Refresh the spider cache if needed; returns the lifecycle decisions.

        With jobs, their last element does that, unless a module has failed by now, and decides about all modules.
        """
        plan, site, reporter = applying.plan, self.planned.site.site, self.reporter
        stale = bool(decided and decided.changes)
        ended = end_of_element(plan, site, reporter.tree(site)) if self.run.options.only else None
        if ended:
            stale = ended.last
        elif not submitted or applying.failed:
            stale |= any(one.changed for one in applying.outcomes.values()) or is_stale(plan.layout, site)
        try:
            if ended and ended.decides:  # nothing is submitted that would do it later
                decided = lifecycle_changes(whole)
                self._decide(whole, decided)
        finally:
            if stale:
                refresh_spider_cache(plan.layout, site, reporter)
        return decided


def _lost(plan: StackPlan, site: Site) -> Iterator[LostModule]:
    """The modules that the stack's views load and that do not load."""
    trees = (plan.layout, *map(Layout, site.trees))
    for module in (step.module for step in plan.steps if step.module):
        if (view := view_at(plan.layout, module, live_number(plan.layout, module))) and view.modules:
            with suppress(SifmodError, OSError):  # `verify` reports it
                yield from (LostModule(view.module, *one) for one in lost_modules(view, trees, os.environ))


def _write_down(
    plan: StackPlan, decided: LifecycleChanges | None, lock: Lock | None, site: Site, reporter: Reporter
) -> None:
    """Record the stack's installed modules, those whose lifecycle it decides, and the images of its lock.

    Without `decided` or `lock`, that part of the previous record stays. Raises LockError, InstallError.
    """
    layout, name = plan.layout, plan.stack.name
    named: set[ModuleName] = {step.module for step in plan.steps if step.module}

    def applied(before: Applied | None) -> Applied:
        modules = sorted(named | set(before.modules if before else ()))
        there = tuple(module for module in modules if live_number(layout, module) is not None)
        said = decided.decided if decided else before.decided if before else ()
        images = images_of(lock.modules.values()) if lock else before.images if before else ()
        return Applied(name, str(plan.stack.path), there, said, images)

    change_record(layout, name, applied, site, reporter)
