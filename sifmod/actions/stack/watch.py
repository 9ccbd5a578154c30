"""stack apply --wait: report the outcome of modules that jobs install, as it appears in the tree."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.actions.slurm import LAG, State, accounted, states
from sifmod.actions.stack.applying import ApplyContext, Line, Outcome, last_end
from sifmod.actions.stack.stack_plan import to_do
from sifmod.config.name import ModuleName
from sifmod.errors import HeldError, SifmodError, with_code
from sifmod.result import Described, Named
from sifmod.tree.receipt import live_number
from sifmod.tree.stack_record import Submission

_POLLS = (1.0, 15.0)  # poll intervals in seconds, shortest after a change


class StackTest(NamedTuple):
    """How a test by a job has ended."""

    modules: Annotated[
        tuple[ModuleName, ...], Named("names"), Described("the module, or several that share an element")
    ]
    passed: bool
    log: Annotated[Path, Described("path of the log, which exists if the test has not passed")]


class JobsStand(NamedTuple):
    """How many elements of some jobs are in each state; `counts` is None if Slurm does not tell."""

    jobs: tuple[str, ...]
    counts: tuple[tuple[str, int], ...] | None  # elements in each state; None: squeue does not answer


class JobWatch:
    """The running jobs of a stack; `applying` collects the outcome of each module, `tests` the test results."""

    def __init__(self, applying: ApplyContext, jobs: Sequence[Submission]) -> None:
        self.tests: tuple[StackTest, ...] = ()
        self._plan = applying.plan
        self._jobs = jobs
        self._applying = applying
        self._ended: dict[str, State] = {}
        numbers = {step.module: number for number, step in enumerate(applying.plan.steps) if to_do(step)}
        self._left = {
            numbers[module]: (job, element)
            for job in jobs
            if job.what == "apply"
            for element, modules in enumerate(job.elements)
            for module in modules
            if module in numbers
        }
        applying.all = len(self._left) + len(applying.failed)

    def run(self) -> Iterator[int | JobsStand]:
        """Wait until all jobs have ended. Yields the index of each finished module, and the jobs' changed states."""
        pause, last = _POLLS[0], JobsStand((), ())
        while True:
            known = states([job.job for job in self._jobs])
            before = len(self._left)
            yield from self._seen()
            if (stand := _stand(known)) != last:
                yield stand
            pause = _POLLS[0] if stand != last or len(self._left) != before else min(1.2 * pause, _POLLS[1])
            last = stand
            self._ended |= {number: state for number, state in (known or {}).items() if state.over}
            tests = any(job.what == "test" for job in self._jobs)
            if all(state.over for state in known.values()) if known is not None else not (self._left or tests):
                break  # not earlier: the last element sets defaults after the last module
            time.sleep(pause)
        # an element that squeue showed and forgot between two polls
        self._ended = accounted([job.job for job in self._jobs]) | self._ended
        yield from self._rest()
        self.tests = tuple(
            self._tested(job, element)
            for job in self._jobs
            if job.what == "test"
            for element, modules in enumerate(job.elements)
            if modules
        )

    def _seen(self) -> Iterator[int]:
        """Modules with a new generation."""
        for number in tuple(self._left):
            step = self._plan.steps[number]
            now = live_number(self._plan.layout, step.module) if step.module else None
            if now not in (None, step.generation):
                self._became(number, changed=True)
                yield number

    def _became(self, number: int, *, changed: bool) -> None:
        module = self._plan.steps[number].module
        now = live_number(self._plan.layout, module) if module else None
        self._applying.outcomes[number] = Outcome(now or 0, changed)
        del self._left[number]

    def _rest(self) -> Iterator[int]:
        """Settle the modules that the jobs left unchanged: already right, or failed. Yields their indexes."""
        until = time.monotonic() + LAG
        while any(self._lags(number) for number in self._left) and time.monotonic() < until:
            time.sleep(0.2)
            yield from self._seen()
        for number, (job, element) in tuple(self._left.items()):
            state = self._ended.get(f"{job.job}_{element}")
            line = last_end(self._plan.layout, self._plan.stack, self._plan.steps[number], f"{job.job}_{element}")
            if line and line.what == "held":
                self._applying.held[number] = HeldError(line.text)
            elif error := self._error(number, job, element, state, line):
                self._applying.failed[number] = error
            else:
                self._became(number, changed=False)
            yield number

    def _lags(self, number: int) -> bool:
        """Whether the module's job reports success that is not visible here yet."""
        job, element = self._left[number]
        state, module = self._ended.get(f"{job.job}_{element}"), self._plan.steps[number].module
        said = state is not None and state.name == "COMPLETED"
        return said and (module is None or live_number(self._plan.layout, module) is None)

    def _error(
        self, number: int, job: Submission, element: int, state: State | None, line: Line | None
    ) -> SifmodError | None:
        if state and state.name == "COMPLETED":
            if not self._lags(number):
                return None
            why = (
                f"its job {job.job}_{element} installed it, but {self._plan.layout.prefix} does not show it on this "
                "node"
            )
            return SifmodError(why, "choose a prefix that all nodes share")
        if state is None or state.name == "FAILED":  # by its exit code: its log names the module
            if line and line.what in ("installed", "unchanged"):
                return None
            if line and line.exit_code:
                return with_code(line.text, "", line.exit_code)
        log = job.log(self._plan.stack.name, element)
        said = f"; {log} is its log" if _is_there(log) else ""
        ended = state.name if state else "and Slurm does not know how"
        return SifmodError(f"its job {job.job}_{element} ended {ended}{said}", "the same command submits it again")

    def _tested(self, job: Submission, element: int) -> StackTest:
        state, log = self._ended.get(f"{job.job}_{element}"), job.log(self._plan.stack.name, element)
        passed = state.name == "COMPLETED" if state else not _is_there(log)
        return StackTest(job.elements[element], passed, log)


def _is_there(log: Path) -> bool:
    """Whether the path is visible; it may be in another user's directory."""
    return os.path.exists(log)  # noqa: PTH110 (pathlib raises for a closed one)


def _stand(known: Mapping[str, State] | None) -> JobsStand:
    """The jobs, and the number of their elements in each state, pending ones by their reasons."""
    if known is None:
        return JobsStand((), None)
    counts = Counter(str(state) if state.name == "PENDING" else state.name for state in known.values())
    jobs = sorted({number.partition("_")[0] for number in known}, key=int)
    return JobsStand(tuple(jobs), tuple(sorted(counts.items())))
