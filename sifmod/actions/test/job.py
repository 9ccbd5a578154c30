"""A test as a job of Slurm: submitted, waited for, and its answer brought back."""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from sifmod.errors import OptionError, SanityCheckError
from sifmod.image.child import Ended, run_child

_POLL = 3.0  # seconds
_NOT_SET_UP = "Could not establish a configuration source"  # as every program of Slurm's says it
_ELSEWHERE = "type it where jobs are submitted"
_LAG = 15.0  # seconds that a file of another node may take to be seen here
# as the installed command starts it: nothing of the current directory, and of PYTHONPATH, is imported in its place
_START = ("-P", "-c", "import sys, sifmod_command; sys.exit(sifmod_command.main())")


@dataclass(frozen=True)
class Job:
    """What is asked of sbatch."""

    nodes: int
    gpus_per_node: int  # 0: none
    account: str | None = None
    partition: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Its options; those that a variable of sbatch's gives are left to that."""
        given = os.environ
        words = ["--parsable", "--job-name=sifmod-test", f"--nodes={self.nodes}"]
        words += [f"--account={self.account}"] if self.account else []
        words += [f"--partition={self.partition}"] if self.partition else []
        words += ["--time=30"] if "SBATCH_TIMELIMIT" not in given else []
        if self.gpus_per_node and not {"SBATCH_GRES", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE"} & given.keys():
            words += ["--exclusive", f"--gpus-per-node={self.gpus_per_node}"]
        return tuple(words)


def run_job(job: Job, test: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Submit `sifmod test …` and wait: what it prints with `--json`. Where the wait is broken off the job is cancelled.

    The job's files are beside its user, as those of sbatch are; its log stays where the test did not pass. Raises
    OptionError where the job is refused, SanityCheckError where it ends without an answer.
    """
    wrap = shlex.join((sys.executable, *_START, "test", *test, "--json"))
    files = ("--output=sifmod-test-%j.json", "--error=sifmod-test-%j.log")
    ended = _slurm("sbatch", *job.words, *files, f"--wrap=exec {wrap}")
    number = (ended.lines or ("",))[-1].partition(";")[0].strip()
    if ended.code != 0 or not number.isdigit():
        message = (ended.lines or ("no message",))[-1]
        if _NOT_SET_UP in message:
            raise OptionError(f"Slurm is not set up here: {message}", _ELSEWHERE)
        raise OptionError(
            f"sbatch refuses the job: {message}", "--account and --partition, or SBATCH_ variables, say more"
        )
    file = Path(f"sifmod-test-{number}.json")
    try:
        _wait(number, say)
    except BaseException:
        _slurm("scancel", number)
        until = time.monotonic() + _LAG  # a job that has just begun makes its files all the same
        while _state(number) and time.monotonic() < until:
            time.sleep(0.2)
        file.unlink(missing_ok=True)
        raise
    return _answer(file, file.with_suffix(".log"), number)


def _wait(number: str, say: Callable[[str], None]) -> None:
    before = ""
    while state := _state(number):
        if state != before:
            say(f"job {number}: {state}")
        before = state
        time.sleep(_POLL)


def _state(number: str) -> str:
    """What Slurm says of a job; "" for one that has ended. A controller that does not answer has ended none."""
    ended = _slurm("squeue", "--noheader", f"--jobs={number}", "--format=%T (%r)")
    said = " ".join(ended.lines)
    if ended.code == 0:
        return said.removesuffix(" (None)")
    return "" if "Invalid job id" in said else "squeue does not answer"


def _answer(file: Path, log: Path, number: str) -> dict[str, Any]:
    until = time.monotonic() + _LAG
    while not (file.exists() and file.stat().st_size) and time.monotonic() < until:
        time.sleep(0.2)
    try:
        data: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        lines = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        why = f"job {number} ended without an answer; {log.absolute()} is its log"
        raise SanityCheckError("\n".join((why, *lines))) from error
    finally:
        file.unlink(missing_ok=True)
    if "error" in data:
        raise SanityCheckError(f"job {number}: {data['error']}", data["hint"] or "")
    if data["passed"]:
        log.unlink(missing_ok=True)
    return data


def _slurm(name: str, *words: str) -> Ended:
    if (program := which(name)) is None:
        raise OptionError(f"--job needs Slurm, and there is no {name} here", _ELSEWHERE)
    return run_child((program, *words), cwd=Path.cwd(), env=os.environ)
