"""`sifmod stack apply --job`: its options, and what is told of the jobs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from sifmod.cli.context import resolve
from sifmod.cli.output import counted
from sifmod.cli.shared_options import several
from sifmod.errors import OptionError

if TYPE_CHECKING:
    from sifmod.actions.stack.apply import Applying
    from sifmod.actions.stack.job import JobOptions
    from sifmod.actions.stack.report import StackJob, StackTest
    from sifmod.actions.stack.stack_plan import StackPlan
    from sifmod.actions.stack.watch import Tested
    from sifmod.config.name import ModuleName
    from sifmod.config.site import Site
    from sifmod.tree.stack_record import Submission

_CORES = 8  # that a conversion uses at most
_HOURS = 4
_NOT_FOR_ELEMENTS = frozenset({"only", "quiet", "as_json", "wait"})


# what is asked of Slurm
job_options = several(
    click.option("--job", is_flag=True, help="Submit it to Slurm: an array with an element for each image."),
    click.option("--wait", is_flag=True, help="With --job: wait, and end as without it."),
    click.option("--job-cores", type=click.IntRange(1), metavar="N", help=f"Of an element ({_CORES})."),
    click.option(
        "--job-max-walltime", type=click.IntRange(1, 8760), metavar="HOURS", help=f"Of an element ({_HOURS})."
    ),
    click.option("--job-max-jobs", type=click.IntRange(1), metavar="N", help="Elements of an array (100)."),
    click.option(
        "--job-output-dir", metavar="DIR", help="Where an element that fails leaves its log (the current directory)."
    ),
    click.option("--job-partition", metavar="PARTITION", help="As sbatch has it."),
    click.option("--job-account", metavar="ACCOUNT", help="As sbatch has it."),
    click.option("--job-test", is_flag=True, help="Test what was installed, by `sifmod test` in further jobs."),
    click.option("--job-test-partition", metavar="PARTITION", help="Where they run, if not in the other one."),
)


def chosen(made: "StackPlan") -> "StackPlan":
    """What is to be done for the modules of --only, where it names some. Raises ModuleError."""
    if not (only := click.get_current_context().params["only"]):
        return made
    known = [step.module for step in made.steps if step.module]
    wanted = {resolve(name, known, "`sifmod stack plan` shows the modules of the stack") for name in only}
    return made._replace(steps=tuple(step for step in made.steps if step.module in wanted), unnamed=())


class Ran(NamedTuple):
    """What has become of the jobs."""

    jobs: "tuple[StackJob, ...]"
    tests: "tuple[StackTest, ...]"
    exit_code: int  # of the tests


def asked_of_jobs() -> "JobOptions | None":
    """What the command line asks of jobs; None where it wants none. Raises OptionError."""
    given = click.get_current_context().params
    if not given["job"]:
        if alone := next((name for name in given if name.startswith(("job_", "wait")) and given[name]), None):
            raise OptionError(
                f"--{alone.replace('_', '-')} is for --job", "add --job, which submits the stack to Slurm"
            )
        return None
    from sifmod.actions.slurm import Resources
    from sifmod.actions.stack.job import JobOptions

    if given["bundled"]:
        raise OptionError("--job is not for --bundle, which fetches nothing", "leave --job out")
    directory = Path(given["job_output_dir"] or ".").absolute()
    if not directory.is_dir():
        raise OptionError(f"--job-output-dir: there is no directory {directory}", "make it, where all nodes see it")
    if given["job_test_partition"] and not given["job_test"]:
        raise OptionError("--job-test-partition is for --job-test", "add --job-test")
    account, partition = given["job_account"], given["job_partition"]
    hours, own = given["job_max_walltime"], "SBATCH_CPUS_PER_TASK" in os.environ
    cores = given["job_cores"] or (0 if own else _CORES)
    elements = Resources(hours and 60 * hours, 60 * _HOURS, cores=cores, account=account, partition=partition)
    tests = Resources(account=account, partition=given["job_test_partition"] or partition)
    words = (*_words(), *(() if given["only"] else ("--then-decide",)))
    return JobOptions(elements, words, directory, given["job_max_jobs"] or 100, tests if given["job_test"] else None)


def _words() -> tuple[str, ...]:
    """The options of the command line that say what is installed, and how: each element has them too."""
    from sifmod.config.prefix import in_full

    context = click.get_current_context()
    words = []
    for option in context.command.params:
        name, value = str(option.name), context.params[str(option.name)]
        own = name == "job" or name.startswith("job_") or name in _NOT_FOR_ELEMENTS
        if own or not isinstance(option, click.Option):
            continue
        spelled = max(option.opts, key=len)
        if value is True:
            words.append(spelled)
            continue
        given = value if isinstance(value, tuple) else (value,)
        texts = (str(one.absolute() if isinstance(one, Path) else one) for one in given if one not in (None, False))
        words += [f"{spelled}={in_full(name, text)}" for text in texts]
    return tuple(words)


def run_jobs(
    options: "JobOptions", applying: "Applying", site: "Site", say: Callable[[str], None], tell: Callable[[int], object]
) -> Ran:
    """Submit what is to be done, and with --wait wait for it, so that `applying` holds what became of it."""
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.job import submit_stack
    from sifmod.actions.stack.report import StackJob, StackTest

    made = applying.plan
    earlier, new = submit_stack(made, options, site, Reporter(say).waiting(f"the stack {made.stack.name}"))
    jobs = (*earlier, *new)
    for job in earlier:
        say(f"{_about(job)}: submitted before, and not over yet")
    for job in new:
        say(f"{_about(job)}: submitted")
    tests: tuple[Tested, ...] = ()
    if not jobs:
        say("there is nothing to submit")
    elif click.get_current_context().params["wait"]:
        tests = _wait(jobs, applying, say, tell)
    else:
        numbers = ",".join(job.job for job in jobs)
        say(f"`squeue --jobs={numbers}` shows them; the same command with --wait waits for them")
    told = tuple(StackJob(job.job, job.what, _modules(job)) for job in jobs)
    return Ran(told, tuple(StackTest(*one) for one in tests), 0 if all(one.passed for one in tests) else 22)


def _wait(
    jobs: "Sequence[Submission]", applying: "Applying", say: Callable[[str], None], tell: Callable[[int], object]
) -> "tuple[Tested, ...]":
    from sifmod.actions.stack.watch import Watch

    watch = Watch(applying, jobs)
    try:
        for event in watch.run():
            if isinstance(event, str):
                say(event)
            else:
                tell(event)
    except (KeyboardInterrupt, SystemExit):
        numbers = " ".join(job.job for job in jobs)
        say(f"the jobs go on: the same command waits for them again, `scancel {numbers}` cancels them")
        raise
    for test in (one for one in watch.tests if not one.passed):
        say(f"test of {', '.join(map(str, test.modules))}: failed; {test.log} is its log")
    if watch.tests:
        say(f"{sum(one.passed for one in watch.tests)} of {counted(len(watch.tests), 'test')} passed")
    return watch.tests


def _about(job: "Submission") -> str:

    verb = "install" if job.what == "apply" else "test"
    elements = counted(sum(map(bool, job.elements)), "element")
    return f"job {job.job}, {elements} to {verb} {counted(len(_modules(job)), 'module')}"


def _modules(job: "Submission") -> "tuple[ModuleName, ...]":
    return tuple(module for element in job.elements for module in element)
