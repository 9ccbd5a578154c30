"""`sifmod stack`."""

import os
import time
from functools import partial
from pathlib import Path

import click

from sifmod.cli.command import Options, argument, command, fields, group, typed_again
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.output import quiet as silent
from sifmod.cli.shared_options import ConversionOptions, SiteOptions
from sifmod.cli.stack_files import bundle, catalogue, init, lock, outdated
from sifmod.cli.stack_format import counts, disk_needed, lines, of_jobs, of_views, summary, tell
from sifmod.config.option import in_full, option_of
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout

with later():
    from sifmod.actions import slurm
    from sifmod.actions.install import install_easyconfigs
    from sifmod.actions.stack import apply as applying
    from sifmod.actions.stack import job as stack_jobs
    from sifmod.actions.stack import lifecycle, report, stack_plan
    from sifmod.cli import progress
    from sifmod.tree import provenance

_CORES = 8  # most cores that a conversion uses
_HOURS = 4


class SlurmOptions(Options):
    job: bool = False
    wait: bool = False
    job_cores: int | None = None
    job_max_walltime: int | None = None
    job_max_jobs: int | None = None
    job_output_dir: str | None = None
    job_partition: str | None = None
    job_account: str | None = None
    job_test: bool = False
    job_test_partition: str | None = None


def asked_of_jobs(given: "ApplyOptions") -> "stack_jobs.JobOptions | None":
    """The job options; None without --job. Raises OptionError for options that do not fit, or an unusable directory."""
    if not given.job:
        if alone := next((name for name in fields(SlurmOptions) if getattr(given, name)), None):
            spelled = option_of("stack apply", alone).spellings[-1]
            raise OptionError(f"{spelled} is for --job", "add --job to submit the stack to Slurm")
        return None
    if given.bundled:
        raise OptionError("--job cannot be used with --bundle, which fetches nothing", "leave --job out")
    directory = Path(given.job_output_dir or ".").absolute()
    if not directory.is_dir():
        raise OptionError(f"--job-output-dir: there is no directory {directory}", "create it where all nodes see it")
    if not os.access(directory, os.W_OK | os.X_OK):  # or each job would fail without a log
        raise OptionError(f"--job-output-dir: you cannot write in {directory}", "name a directory of your own")
    slurm.check_output_directory(directory, "name a directory of your own: --job-output-dir DIRECTORY")
    if given.job_test_partition and not given.job_test:
        raise OptionError("--job-test-partition needs --job-test", "add --job-test")
    account, partition = given.job_account, given.job_partition
    hours, own = given.job_max_walltime, "SBATCH_CPUS_PER_TASK" in os.environ
    cores = given.job_cores or (0 if own else _CORES)
    elements = slurm.Resources(hours and 60 * hours, 60 * _HOURS, cores=cores, account=account, partition=partition)
    tests = slurm.Resources(account=account, partition=given.job_test_partition or partition)
    words, most = typed_again("stack apply", given), given.job_max_jobs or 100
    return stack_jobs.JobOptions(elements, words, directory, most, not given.only, tests if given.job_test else None)


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


@command("stack plan", PlanOptions, lambda: report.StackReport)
def plan(given: PlanOptions) -> int:
    """Print what `apply` would do and why: a line for each module, then what it would fetch or copy.

    [ ] new; [x] installed; [R] installed again, and why; [L] its layers replaced by the lock's; [H] held after a
    rollback, and skipped; [E] retired, then removed, and left out; [!] cannot be installed; [D] a lifecycle change:
    default, hidden, deprecated or retired; [-] installed by this stack, which no longer names it. Nothing is changed.
    """
    found = applying.preview_stack(given.file, _asked(given))
    plan = found.plan
    if given.as_json:
        if found.lives:
            lifecycle.check_decisions(found.plan, found.lives)
        print_json(report.report(plan, found.lives)._replace(needed=found.fetches))
    else:
        for line in lines(plan, found.lives, all_of_them=True):
            echo(line)
        for line in (*counts(plan), *disk_needed(found)):
            say(line)
        if found.lives:
            lifecycle.check_decisions(found.plan, found.lives)
    failed = (step.error.exit_code for step in plan.steps if step.error)
    return max((*failed, fails_for_held(plan, given)))


class ApplyOptions(MakeOptions, ConversionOptions, SlurmOptions):
    file: Path | None = argument("[FILE]", Path, default=None)
    bundled: Path | None = None
    local_settings: bool = False


@command("stack apply", ApplyOptions, lambda: report.StackReport)
def apply(given: ApplyOptions) -> int:
    """Make the installed modules match FILE.

    If a module fails, the others are still installed; a summary has the results and the directory of the logs. After an
    interruption, run the command again to continue. Modules held after a rollback are skipped and listed. Modules that
    the stack no longer names stay installed and are listed. With --job, Slurm jobs do the work; running the command
    again submits only what is missing and not in the queue.
    """
    jobs, wait = asked_of_jobs(given), given.wait
    file, bundled = given.file, given.bundled
    if given.local_settings and not bundled:
        raise click.UsageError("--local-settings needs --bundle")
    if (file is None) == (bundled is None):
        raise click.UsageError("give a stack FILE or --bundle")
    asked = applying.StackRun(file, _asked(given, into_home=given.yes), bundled, given.local_settings, jobs, wait)
    speak = silent if given.quiet else say
    with progress.progress(not given.quiet) as update:
        outcome = applying.apply_stack(asked, reporter(speak, update), partial(tell, speak))
    failed, plan = outcome.failed, outcome.plan
    tests = (22 for one in outcome.tests if not one.passed)
    codes = (error.exit_code for error in failed.values())
    code = max((*codes, *tests, fails_for_held(plan, given, len(outcome.held))))
    speak = say if code else speak
    for line in (*of_jobs(outcome), *of_views(outcome)):
        speak(line)
    if given.as_json:
        print_json(report.report(plan, outcome.lives, outcome))
    elif code or (any(step.todo for step in plan.steps) and (wait or not jobs)):
        for line in summary(outcome):
            speak(line)
    return code


def fails_for_held(made: "stack_plan.StackPlan", given: MakeOptions, more: int = 0) -> int:
    """The exit code for modules held after a rollback: 1 with --fail-on-held, else 0."""
    return int(given.fail_on_held and bool(more or any(step.mark == "H" for step in made.steps)))


def _asked(given: MakeOptions, *, into_home: bool = False) -> "stack_plan.StackOptions":
    """The options of the command line for a stack. Raises OptionError for a --from that is not a tree with images."""
    for store in given.stores:
        layout = Layout(store.absolute())
        if not (layout.images.is_dir() or layout.software.is_dir()):  # its images may all be references
            raise OptionError(f"--from: {store} is not a tree of sifmod")
    install = install_easyconfigs.InstallOptions(
        rebuild=given.rebuild,
        checked_since=time.time() if given.rebuild else 0.0,
        offline=given.offline,
        into_home=into_home,
        stores=tuple(store.absolute() for store in given.stores),
        asked=provenance.CommandLine(checked=not given.skip_sanity_check),
    )
    return stack_plan.StackOptions(in_full(given.settings), install, given.locked, given.only, given.jobs)


stack_command = group(
    "stack", "Publish many modules from one file.", plan, apply, lock, outdated, bundle, init, catalogue
)
