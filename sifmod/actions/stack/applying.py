"""A running apply: workers install its modules; a failure stops only those whose image could not be fetched.

The log of a module has one line of JSON per message of an apply, with the time.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.install import install_with_layers
from sifmod.actions.slurm import this_element
from sifmod.actions.stack.stack_plan import StackPlan, Step
from sifmod.actions.workers import Event, FinishedEvent, SendEvent, reporter_in_worker, run_workers
from sifmod.config.load_site import LoadedSite
from sifmod.config.stack import Stack
from sifmod.digest import sha256_bytes
from sifmod.errors import HeldError, SifmodError, with_code
from sifmod.image.settings import SharedBlobs
from sifmod.tree.durable import read
from sifmod.tree.explain import reported
from sifmod.tree.layout import Layout
from sifmod.tree.log import to_append
from sifmod.tree.partial import open_partial

What = Literal["said", "installed", "unchanged", "held", "failed"]
FETCH = 10  # the exit code of what could not be fetched


class Line(NamedTuple):
    """A log entry of a module; every kind but `said` ends its apply."""

    what: What
    text: str = ""  # for people
    generation: int = 0
    exit_code: int = 0
    job: str = ""  # the element that wrote it, such as 12_3; "" outside of jobs


class Outcome(NamedTuple):
    """The outcome of a module: its generation, and whether it is new."""

    generation: int
    changed: bool


class NotTried(NamedTuple):
    """A module that fails without being tried, since its image could not be fetched."""

    task: int


class ModuleEnded(NamedTuple):
    """How the install of a module ended, as number `number` of `all`."""

    step: Step
    line: Line  # of its log
    error: SifmodError | None
    number: int
    all: int


class ApplyContext:
    """The state of an apply: the modules that can start, and the outcomes of the others.

    For each image the first of its modules fetches it, and the others wait; if the fetch fails, they are skipped.
    Images that share layers are fetched one after the other, and the shared layers are kept until the last of them is
    there.
    """

    def __init__(self, plan: StackPlan, shared: Mapping[str, frozenset[str]], command: str) -> None:
        self.plan = plan
        self._command = command
        self._shared = dict(shared)  # digests of layers, of the images that are not there yet, by their requests
        own = f"stack {plan.stack.name} {' '.join(map(str, plan.steps))}"  # other elements of a job have other modules
        self._blobs = plan.layout.partials / sha256_bytes(own.encode())[:32]
        todo = {number: step.todo for number, step in enumerate(plan.steps) if step.todo}
        self._keys = {number: one.image for number, one in todo.items()}
        self._beside = _words_of_images(plan)
        self._views = deque(number for number, one in todo.items() if one.view)
        self._waiting = [number for number, one in todo.items() if not one.view]
        self._fetching: dict[str, int] = {}  # images, and the modules that fetch them
        self._there = {""}  # images that no module has to fetch
        self._at_once = 1  # images that are fetched at the same time, at most
        self.outcomes: dict[int, Outcome] = {}
        self.held: dict[int, HeldError] = {}  # that only the image, or another run, has shown to be held
        self.failed = {number: step.error for number, step in enumerate(plan.steps) if step.error}
        self.all = len(todo) + len(self.failed)

    def run(self, jobs: int) -> Iterator[Event | NotTried]:
        """Run the installs and yield their events; `outcomes` and `failed` are complete at the end."""
        self._at_once = max(1, min(jobs, len({*self._keys.values()} - self._there)))
        if self._shared:
            with reported(f"cannot make {self._blobs}"):
                open_partial(self._blobs, self.plan.layout.prefix)
        for tasks in (deque(self._startable()), self._views):
            for event in run_workers(self._install, tasks, jobs):
                before = set(self.failed)
                if isinstance(event, FinishedEvent):
                    tasks += self._finished(event)
                yield event
                yield from (NotTried(task) for task in self.failed.keys() - before - {event.task})

    def line(self, number: int) -> Line:
        """The line of a module's log with its outcome."""
        if error := self.failed.get(number):
            return Line("failed", error.message, exit_code=error.exit_code)
        if held := self.held.get(number):
            return Line("held", "; ".join(filter(None, (held.message, held.hint))))
        outcome = self.outcomes[number]
        if outcome.changed:
            return Line("installed", f"installed, generation {outcome.generation}", outcome.generation)
        return Line("unchanged", "there already", outcome.generation)

    def ended(self, number: int) -> ModuleEnded:
        """How the install of a module ended, and how many (without held ones) have ended by now."""
        done = len(self.outcomes) + len(self.failed)
        return ModuleEnded(self.plan.steps[number], self.line(number), self.failed.get(number), done, self.all)

    def _startable(self) -> list[int]:
        """The modules that can begin, which then count as begun."""
        found = []
        for number in self._waiting:
            key = self._keys[number]
            layers = self._shared.get(key, frozenset())
            common = (layers & self._shared.get(other, frozenset()) for other in self._fetching)
            if key in self._fetching or any(common):
                continue
            found.append(number)
            if key not in self._there:
                self._fetching[key] = number
        self._waiting = [number for number in self._waiting if number not in found]
        return found

    def _finished(self, event: FinishedEvent) -> list[int]:
        """Record the outcome of a task; returns the modules that can start now."""
        key, error = self._keys[event.task], event.error
        if fetched := self._fetching.get(key) == event.task:
            del self._fetching[key]
            self._there.add(key)
            self._forget(key)
        if error is None:
            self.outcomes[event.task] = event.result
        elif isinstance(error, HeldError):
            self.held[event.task] = error
        else:
            self.failed[event.task] = error
            if fetched and error.exit_code == FETCH:
                why = f"not tried: the image of {self.plan.steps[event.task]} was not fetched"
                self.failed |= {task: with_code(why, "", FETCH) for task in self._waiting if self._keys[task] == key}
                self._waiting = [task for task in self._waiting if task not in self.failed]
        return self._startable()

    def _forget(self, key: str) -> None:
        """Remove the shared layers that no other image still needs."""
        layers = self._shared.pop(key, frozenset())
        for digest in layers.difference(*self._shared.values()):
            (self._blobs / digest.replace(":", "-")).unlink(missing_ok=True)
        if layers and not self._shared:
            with suppress(OSError):
                self._blobs.rmdir()

    def _install(self, number: int, tell: SendEvent) -> Outcome:
        """Install a module, in a worker."""
        step, digests = self.plan.steps[number], self._shared.get(self._keys[number])
        decision = self.plan.decide(step)
        shared = SharedBlobs(self._blobs, digests) if digests else None
        beside = self._beside[step.todo.asked] if step.todo else ()
        decision = replace(decision, options=replace(decision.options, shared=shared, beside=beside))
        if self._keys[number]:
            decision = replace(decision, site=_shared(decision.site, self._at_once))
        reporter = reporter_in_worker(number, tell, self._command)
        outcome = install_with_layers(decision, reporter.tree(decision.site.site), reporter)
        return Outcome(outcome.installation.generation, outcome.changed)


def _words_of_images(plan: StackPlan) -> dict[str, tuple[str, ...]]:
    """The checks in each image for all of its modules, so that one start is enough for all."""
    words: dict[str, dict[str, None]] = {}
    for step in plan.steps:
        if step.todo:
            words.setdefault(step.todo.asked, {}).update(dict.fromkeys(step.todo.words))
    return {image: tuple(each) for image, each in words.items()}


def _shared(loaded: LoadedSite, images: int) -> LoadedSite:
    """The site for one of `images` runs that convert images at the same time: each has its share of the machine."""
    settings = fetch_settings(loaded.site)
    share = None if settings.memory is None else settings.memory // images
    processors = max(1, settings.processors // images)
    return replace(loaded, site=replace(loaded.site, processors=processors, memory=share)) if images > 1 else loaded


def log_of(layout: Layout, stack: Stack, step: Step) -> Path:
    """The log file of a module in a stack."""
    return layout.logs / "stacks" / stack.name / f"{str(step).strip('/').replace('/', '@')}.log"


def write_line(layout: Layout, stack: Stack, step: Step, line: Line) -> None:
    """Append a line to a module's log of this stack, with the element that this process is. Raises OSError."""
    path = log_of(layout, stack, step)
    fields = line._replace(job=this_element())._asdict()
    data = json.dumps({"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **fields}, ensure_ascii=False)
    with (
        to_append(path, layout.prefix) as (descriptor, _, _),
        open(descriptor, "a", encoding="utf-8", errors="replace", closefd=False) as file,
    ):
        file.write(f"{data}\n")


def last_end(layout: Layout, stack: Stack, step: Step, job: str) -> Line | None:
    """How the last apply of a module by this element ended; None if its log does not say so or cannot be read."""
    try:
        text = read(log_of(layout, stack, step), top=layout.prefix).decode(errors="replace")
    except OSError:
        return None
    found = None
    for row in text.splitlines():
        with suppress(ValueError, TypeError, RecursionError):  # other users may write to the log
            line = Line(**{name: value for name, value in json.loads(row).items() if name in Line._fields})
            typed = type(line.text) is str and type(line.generation) is int and type(line.exit_code) is int
            if typed and line.job == job and line.what in get_args(What) and line.what != "said":
                found = line
    return found
