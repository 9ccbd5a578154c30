"""Slurm: submit, query and cancel jobs with Slurm's own commands."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, NamedTuple

from sifmod.config.partition import Nodes, SlurmKeys, partition_for
from sifmod.errors import OptionError
from sifmod.image.child import Ended, run_child
from sifmod.system import open_to_others

if TYPE_CHECKING:
    from subprocess import CompletedProcess

# as the installed command starts: modules in the current directory are ignored, those on PYTHONPATH come last
SIFMOD = (sys.executable, "-P", "-c", "import sys, sifmod_command; sys.exit(sifmod_command.main())")
LAG = 15.0  # seconds until another node's file may be visible here
_NOT_SET_UP = "Could not establish a configuration source"  # the message of all Slurm commands
_ELSEWHERE = "run the command on a node where jobs are submitted"
_OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
_OVER |= {"PREEMPTED", "REVOKED", "TIMEOUT"}


@dataclass(frozen=True)
class Resources:
    """The resources that a job requests."""

    minutes: int | None = None  # None: from an SBATCH_ variable, else `usual_minutes`
    usual_minutes: int = 30
    nodes: int = 1
    cores: int = 0  # 0: Slurm's default
    gpus_per_node: int = 0  # 0: none
    account: str | None = None
    partition: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The options of sbatch; SBATCH_ variables replace the usual time, and the GPUs."""
        given = os.environ
        words = [f"--nodes={self.nodes}"]
        words += [f"--account={self.account}"] if self.account else []
        words += [f"--partition={self.partition}"] if self.partition else []
        words += [f"--cpus-per-task={self.cores}"] if self.cores else []
        if self.minutes or "SBATCH_TIMELIMIT" not in given:
            words.append(f"--time={self.minutes or self.usual_minutes}")
        if self.gpus_per_node and not {"SBATCH_GRES", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE"} & given.keys():
            words += ["--exclusive", f"--gpus-per-node={self.gpus_per_node}"]
        return tuple(words)


def at_site(asked: Resources, slurm: SlurmKeys) -> Resources:
    """The resources, with the site's account and partition, unless options or SBATCH_ variables say them, and its GPUs.

    Raises OptionError for partitions that `partition_for` rejects.
    """
    given = os.environ
    nodes = Nodes(asked.gpus_per_node)
    partition, nodes = partition_for(slurm, asked.partition or given.get("SBATCH_PARTITION"), nodes)
    return replace(
        asked,
        account=asked.account or (None if "SBATCH_ACCOUNT" in given else slurm.account),
        partition=asked.partition or (None if "SBATCH_PARTITION" in given else partition),
        gpus_per_node=nodes.gpus,
    )


class State(NamedTuple):
    """The state of a job or an array element."""

    name: str  # Slurm's name: PENDING, RUNNING, NODE_FAIL
    reason: str = ""  # the reason; for a pending job, what it waits for

    @property
    def over(self) -> bool:
        """Whether the job has ended, for any reason."""
        return self.name in _OVER

    def __str__(self) -> str:
        """The state's name, followed by the reason, if any, in parentheses."""
        return f"{self.name} ({self.reason})" if self.reason not in ("", "None") else self.name


def this_element() -> str:
    """The array element that this process is part of, such as `12_3`; "" if it is none."""
    numbers = (os.environ.get(f"SLURM_ARRAY_{part}", "") for part in ("JOB_ID", "TASK_ID"))
    return "_".join(filter(None, numbers))


def check_output_directory(place: Path, hint: str) -> None:
    """Raise OptionError if other users could plant links there, which Slurm follows when it opens a job's output.

    The names are no secret, as job numbers count up.
    """
    if open_to_others(place):
        why = f"other users can write in {place}, and could lead the job's output into another file of yours"
        raise OptionError(why, hint)


def submit(*words: str) -> str:
    """Submit a job; returns its number. Raises OptionError if the job is rejected, or without Slurm."""
    ended = _slurm("sbatch", "--parsable", *words)
    number = (ended.lines or ("",))[-1].partition(";")[0].strip()
    if ended.code != 0 or not number.isdigit():
        message = (ended.lines or ("no message",))[-1]
        if _NOT_SET_UP in message:
            raise OptionError(f"Slurm is not set up here: {message}", _ELSEWHERE)
        raise OptionError(
            f"sbatch rejected the job: {message}", "try giving an account and a partition, or SBATCH_ variables"
        )
    return number


def cancel(*numbers: str) -> None:
    """Cancel jobs; finished ones are not affected. Raises OptionError without Slurm."""
    _slurm("scancel", *numbers)


def states(jobs: Sequence[str]) -> dict[str, State] | None:
    """The states of these jobs from the controller and the accounting, if any; arrays by element (`12_3`).

    A job that neither knows has no entry; callers treat it as finished. None if the controller does not answer, which
    does not end jobs. Raises OptionError without Slurm.
    """
    words = ("--noheader", "--all", "--array", "--states=all", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r")
    ended = _slurm("squeue", *words)
    if ended.code != 0:
        return accounted(jobs) if any("Invalid job id" in line for line in ended.lines) else None
    rows = (line.split("|") for line in ended.lines if line.count("|") == 2)  # warnings have none
    found = {number.strip(): State(name, why) for number, name, why in rows}
    known = {number.partition("_")[0] for number in found}
    return found | accounted([job for job in jobs if job not in known])


def accounted(jobs: Sequence[str]) -> dict[str, State]:
    """The final states of jobs that the controller has forgotten; empty without accounting."""
    if not jobs or which("sacct") is None:
        return {}
    words = ("--noheader", "--parsable2", "--allocations", f"--jobs={','.join(jobs)}", "--format=JobID,State")
    ended = _slurm("sacct", *words)
    rows = [line.split("|") for line in ended.lines if ended.code == 0 and line.count("|") == 1]
    found = {number: State(state.partition(" ")[0]) for number, state in rows}  # CANCELLED by 1000
    return {number: state for number, state in found.items() if state.over}


def _slurm(name: str, *words: str) -> Ended:
    if (program := which(name)) is None:
        raise OptionError(f"--job needs Slurm, and {name} was not found", _ELSEWHERE)
    return run_child((program, *words), cwd=Path.cwd(), env=_environment(), kept=1 << 22)


def _environment() -> dict[str, str]:
    """The environment without variables that hide jobs or change what a command does, waits for or prints."""
    others = ("SBATCH_WAIT", "SBATCH_ARRAY_INX", "SLURM_TIME_FORMAT")
    return {name: value for name, value in os.environ.items() if name not in others and not name.startswith("SQUEUE_")}


_TIMEOUT = 20  # seconds


class Jobs(NamedTuple):
    """Slurm's jobs that matter for gc."""

    earliest: float | None  # submit time of the oldest known job, in seconds since 1970; None: no job
    unknown: str = ""  # why an installed Slurm could not be queried


NO_JOBS = Jobs(None)


def ask_slurm(prefix: Path) -> Jobs:
    """The jobs of all users, or of the owner if nobody else reads `prefix`; none without Slurm. Raises nothing."""
    from subprocess import TimeoutExpired

    squeue, scontrol = which("squeue"), which("scontrol")
    if squeue is None:
        return NO_JOBS
    command = [squeue, "--noheader", "--all", "--format=%V"]
    if (owner := _only_reader(prefix)) is not None:
        command.append(f"--user={owner}")
    try:
        answer = _answer(command)
        if answer.returncode != 0:
            # commands without a cluster: no configuration file, no server, no DNS record
            named = any(name in os.environ for name in ("SLURM_CONF", "SLURM_CONF_SERVER"))
            if not named and all(text in answer.stderr for text in (_NOT_SET_UP, "Unknown host")):
                return NO_JOBS
            return Jobs(None, f"squeue failed: {_why(answer)}")
        if owner is None and scontrol and os.geteuid() != 0:  # root sees all jobs
            configured = _answer([scontrol, "show", "config"])
            if configured.returncode != 0:
                return Jobs(None, f"scontrol failed: {_why(configured)}")
            if _hides_jobs(configured.stdout):
                return Jobs(None, "Slurm hides the jobs of other users (PrivateData)")
    except (OSError, TimeoutExpired) as error:
        return Jobs(None, f"Slurm did not answer: {error}")
    return _read(answer.stdout)


def _answer(command: Sequence[str]) -> "CompletedProcess[str]":
    import subprocess

    return subprocess.run(
        command, capture_output=True, errors="replace", timeout=_TIMEOUT, check=False, env=_environment()
    )


def _why(answer: "CompletedProcess[str]") -> str:
    return answer.stderr.strip().partition("\n")[0] or f"exit code {answer.returncode}"


def _hides_jobs(configuration: str) -> bool:
    """Whether squeue leaves out other users' jobs without a word; SlurmUser sees them."""
    import re

    sees_all = re.search(rf"(?m)^SlurmUser\s*=.*\({os.geteuid()}\)", configuration)
    return not sees_all and re.search(r"(?m)^PrivateData\s*=.*\bjobs\b", configuration) is not None


def _read(output: str) -> Jobs:
    from datetime import datetime

    try:
        # squeue prints local time without a zone.
        times = [datetime.fromisoformat(line.strip()).timestamp() for line in output.splitlines() if line.strip()]
    except ValueError as error:
        return Jobs(None, f"squeue printed an invalid time: {error}")
    return Jobs(min(times, default=None))


def _only_reader(prefix: Path) -> int | None:
    """The owner's uid if no other user can reach the prefix; None if others can or it is unknown."""
    for directory in (prefix, *prefix.parents):
        try:
            status = directory.stat()
        except OSError:
            return None
        if status.st_mode & 0o011 == 0:
            return status.st_uid
    return None
