"""`sifmod stack apply --job`: its options."""

import os
from pathlib import Path

from sifmod.cli.command import Options, fields, typed_again
from sifmod.cli.later import later
from sifmod.config.option import option_of
from sifmod.errors import OptionError

with later():
    from sifmod.actions import slurm
    from sifmod.actions.stack import job as stack_jobs
    from sifmod.cli import stack

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


def asked_of_jobs(given: "stack.ApplyOptions") -> "stack_jobs.JobOptions | None":
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
    if given.job_test_partition and not given.job_test:
        raise OptionError("--job-test-partition needs --job-test", "add --job-test")
    account, partition = given.job_account, given.job_partition
    hours, own = given.job_max_walltime, "SBATCH_CPUS_PER_TASK" in os.environ
    cores = given.job_cores or (0 if own else _CORES)
    elements = slurm.Resources(hours and 60 * hours, 60 * _HOURS, cores=cores, account=account, partition=partition)
    tests = slurm.Resources(account=account, partition=given.job_test_partition or partition)
    words, most = typed_again("stack apply", given), given.job_max_jobs or 100
    return stack_jobs.JobOptions(elements, words, directory, most, not given.only, tests if given.job_test else None)
