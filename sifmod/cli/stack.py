"""`sifmod stack`."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.command import argument, command, group
from sifmod.cli.context import reporter
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.output import quiet as silent
from sifmod.cli.shared_options import ConversionOptions, SiteOptions
from sifmod.cli.stack_files import bundle, catalogue, init, lock, outdated
from sifmod.cli.stack_format import counts, disk_needed, lines, of_jobs, summary, tell
from sifmod.cli.stack_job import SlurmOptions, asked_of_jobs
from sifmod.config.option import in_full
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.stack.stack_options import StackOptions
    from sifmod.actions.stack.stack_plan import StackPlan


class MakeOptions(SiteOptions):
    locked: bool = False
    stores: tuple[Path, ...] = ()
    jobs: int | None = None
    skip_sanity_check: bool = False
    rebuild: bool = False
    offline: bool = False
    only: tuple[str, ...] = ()
    fail_on_held: bool = False


class PlanOptions(MakeOptions):
    file: Path = argument("FILE", Path)


@command("stack plan", PlanOptions)
def plan(given: PlanOptions) -> int:
    """Print what `apply` would do and why: a line for each module, then what it would fetch or copy.

    [ ] new; [x] installed; [R] installed again, and why; [H] held after a rollback, and skipped; [E] retired, then
    removed, and left out; [!] cannot be installed; [D] a lifecycle change: default, hidden, deprecated or retired; [-]
    installed by this stack, which no longer names it. Nothing is changed.
    """
    from sifmod.actions.stack.apply import preview_stack
    from sifmod.actions.stack.lifecycle import check_decisions
    from sifmod.actions.stack.report import report

    found = preview_stack(given.file, _asked(given))
    plan = found.plan
    if given.as_json:
        if found.lives:
            check_decisions(found.lives)
        print_json(report(plan, found.lives)._replace(needed=found.fetches))
    else:
        for line in lines(plan, found.lives, all_of_them=True):
            echo(line)
        for line in (*counts(plan), *disk_needed(found)):
            say(line)
        if found.lives:
            check_decisions(found.lives)
    failed = (step.error.exit_code for step in plan.steps if step.error)
    return max((*failed, fails_for_held(plan, given)))


class ApplyOptions(MakeOptions, ConversionOptions, SlurmOptions):
    file: Path | None = argument("[FILE]", Path, default=None)
    bundled: Path | None = None
    local_settings: bool = False


@command("stack apply", ApplyOptions)
def apply(given: ApplyOptions) -> int:
    """Make the installed modules match FILE.

    If a module fails, the others are still installed; a summary has the results and the directory of the logs. After an
    interruption, run the command again to continue. Modules held after a rollback are skipped and listed. Modules that
    the stack no longer names stay installed and are listed. With --job, Slurm jobs do the work; running the command
    again submits only what is missing and not in the queue.
    """
    from sifmod.actions.stack.apply import StackRun, apply_stack
    from sifmod.actions.stack.report import report
    from sifmod.cli.progress import progress

    jobs, wait = asked_of_jobs(given), given.wait
    file, bundled = given.file, given.bundled
    if given.local_settings and not bundled:
        raise click.UsageError("--local-settings needs --bundle")
    if (file is None) == (bundled is None):
        raise click.UsageError("give a stack FILE or --bundle")
    asked = StackRun(file, _asked(given, into_home=given.yes), bundled, given.local_settings, jobs, wait)
    speak = silent if given.quiet else say
    with progress(not given.quiet) as update:
        outcome = apply_stack(asked, reporter(speak, update), partial(tell, speak))
    failed, plan = outcome.failed, outcome.plan
    for line in of_jobs(outcome):
        speak(line)
    if given.as_json:
        print_json(report(plan, outcome.lives, outcome))
    elif failed or (any(step.todo for step in plan.steps) and (wait or not jobs)):
        for line in summary(outcome):
            speak(line)
    tests = (22 for one in outcome.tests if not one.passed)
    codes = (error.exit_code for error in failed.values())
    return max((*codes, *tests, fails_for_held(plan, given, len(outcome.held))))


def fails_for_held(made: "StackPlan", given: MakeOptions, more: int = 0) -> int:
    """The exit code for modules held after a rollback: 1 with --fail-on-held, else 0."""
    return int(given.fail_on_held and bool(more or any(step.mark == "H" for step in made.steps)))


def _asked(given: MakeOptions, *, into_home: bool = False) -> "StackOptions":
    """The options of the command line for a stack. Raises OptionError for a --from that is not a tree with images."""
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_options import StackOptions
    from sifmod.tree.provenance import CommandLine

    for store in given.stores:
        layout = Layout(store.absolute())
        if not (layout.images.is_dir() or layout.software.is_dir()):  # its images may all be references
            raise OptionError(f"--from: {store} is not a tree of sifmod")
    install = InstallOptions(
        rebuild=given.rebuild,
        checked_since=time.time() if given.rebuild else 0.0,
        offline=given.offline,
        into_home=into_home,
        stores=tuple(store.absolute() for store in given.stores),
        asked=CommandLine(checked=not given.skip_sanity_check),
    )
    return StackOptions(in_full(given.settings), install, given.locked, given.only, given.jobs)


stack_command = group(
    "stack", "Publish many modules from one file.", plan, apply, lock, outdated, bundle, init, catalogue
)
