"""A test as a job of Slurm: submitted, waited for, and its answer brought back."""

import json
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sifmod.actions.slurm import LAG, SIFMOD, Resources, cancel, states, submit
from sifmod.errors import SanityCheckError

_POLL = 3.0  # seconds


def run_job(resources: Resources, test: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Submit `sifmod test …` and wait: what it prints with `--json`. Where the wait is broken off the job is cancelled.

    The job's files are beside its user, as those of sbatch are; its log stays where the test did not pass. Raises
    OptionError where the job is refused, SanityCheckError where it ends without an answer.
    """
    wrap = shlex.join((*SIFMOD, "test", *test, "--json"))
    files = ("--output=sifmod-test-%j.json", "--error=sifmod-test-%j.log")
    number = submit("--job-name=sifmod-test", *resources.words, *files, f"--wrap=exec {wrap}")
    file = Path(f"sifmod-test-{number}.json")
    try:
        _wait(number, say)
    except BaseException:
        cancel(number)
        until = time.monotonic() + LAG  # a job that has just begun makes its files all the same
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
    """What Slurm says of a job; "" for one that has ended."""
    if (known := states((number,))) is None:
        return "squeue does not answer"
    state = known.get(number)
    return "" if state is None or state.over else str(state)


def _answer(file: Path, log: Path, number: str) -> dict[str, Any]:
    until = time.monotonic() + LAG
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
