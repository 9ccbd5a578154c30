"""A running apply: workers install its modules; a failure stops only those whose image could not be fetched."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.install import install_with_layers
from sifmod.actions.stack.stack_plan import StackPlan, Step
from sifmod.actions.stack.step_log import Line
from sifmod.actions.workers import Event, FinishedEvent, SendEvent, reporter_in_worker, run_workers
from sifmod.config.load_site import LoadedSite
from sifmod.digest import sha256_bytes
from sifmod.errors import HeldError, SifmodError, with_code
from sifmod.image.settings import SharedBlobs
from sifmod.tree.durable import reported
from sifmod.tree.partial import open_partial

FETCH = 10  # the exit code of what could not be fetched


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
        self._wanting: dict[str, list[int]] = {}  # the modules that want an image, the one that fetches it first
        self._views = deque(number for number, one in todo.items() if one.view)
        self._waiting = [number for number, one in todo.items() if not one.view and self._leads(number)]
        self._fetching: set[str] = set()
        self._at_once = 1  # images that are fetched at the same time, at most
        self.outcomes: dict[int, Outcome] = {}
        self.held: dict[int, HeldError] = {}  # that only the image, or another run, has shown to be held
        self.failed = {number: step.error for number, step in enumerate(plan.steps) if step.error}
        self.all = len(todo) + len(self.failed)

    def run(self, jobs: int) -> Iterator[Event | NotTried]:
        """Run the installs and yield their events; `outcomes` and `failed` are complete at the end."""
        self._at_once = max(1, min(jobs, len(self._wanting)))
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

    def _leads(self, number: int) -> bool:
        """Whether this module need not wait for another one that fetches the same image."""
        key = self._keys[number]
        if key:
            self._wanting.setdefault(key, []).append(number)
        return not key or self._wanting[key][0] == number

    def _startable(self) -> list[int]:
        """The modules that can begin, which then count as begun."""
        found = []
        for number in self._waiting:
            key = self._keys[number]
            layers = self._shared.get(key, frozenset())
            if any(layers & self._shared[other] for other in self._fetching & self._shared.keys()):
                continue
            found.append(number)
            self._fetching |= {key} - {""}
        self._waiting = [number for number in self._waiting if number not in found]
        return found

    def _finished(self, event: FinishedEvent) -> list[int]:
        """Record the outcome of a task; returns the modules that can start now."""
        key = self._keys[event.task]
        followers = []
        if key in self._fetching and self._wanting[key][0] == event.task:
            followers = self._wanting[key][1:]
            self._fetching.discard(key)
            self._forget(key)
        if event.error is None:
            self.outcomes[event.task] = event.result
            return followers + self._startable()
        if isinstance(event.error, HeldError):
            self.held[event.task] = event.error
            return followers + self._startable()
        self.failed[event.task] = event.error
        if event.error.exit_code != FETCH:
            return followers + self._startable()
        why = f"not tried: the image of {self.plan.steps[event.task]} was not fetched"
        self.failed |= {task: with_code(why, "", FETCH) for task in followers}
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
