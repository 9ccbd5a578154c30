"""`sifmod stack apply --job`: its options."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.shared_options import several
from sifmod.errors import OptionError

if TYPE_CHECKING:
    from sifmod.actions.stack.job import JobOptions

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


def asked_of_jobs(context: click.Context) -> "JobOptions | None":
    """What the command line asks of jobs; None where it wants none. Raises OptionError."""
    given = context.params
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
    words = (*_words(context), *(() if given["only"] else ("--then-decide",)))
    return JobOptions(elements, words, directory, given["job_max_jobs"] or 100, tests if given["job_test"] else None)


def _words(context: click.Context) -> tuple[str, ...]:
    """The options of the command line that say what is installed, and how: each element has them too."""
    from sifmod.config.prefix import in_full

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
