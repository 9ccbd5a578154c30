"""Ahead: installs that are asked for one after the other, and done by workers before."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sifmod.actions.install.request import Request
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.apply import Became, failure, install_in_worker, reporter_in_worker
from sifmod.actions.stack.workers import Finished, Tell, Told, run_workers


class Ahead:
    """Installs in their order, so many at the same time."""

    def __init__(self, requests: Sequence[Request], command: str, jobs: int) -> None:
        warned: set[str] = set()  # what holds for all is told once by each worker

        def do(number: int, tell: Tell) -> Became:
            reporter = replace(reporter_in_worker(number, tell, command), warned=warned)
            return install_in_worker(requests[number], reporter)

        self._events = run_workers(do, deque(range(len(requests))), jobs)
        self._told: dict[int, list[str]] = {}
        self._finished: dict[int, Finished] = {}

    def close(self) -> None:
        """Leave what has not been asked for as it was, or done."""
        self._events.close()

    def became(self, number: int, reporter: Reporter) -> Became:
        """What became of this one, which is waited for; raises what it failed with. What it tells is told here."""
        for text in self._told.pop(number, ()):
            reporter.say(text)
        while number not in self._finished:
            event = next(self._events)
            if isinstance(event, Finished):
                self._finished[event.task] = event
            elif isinstance(event, Told) and event.task == number:
                reporter.say(event.text)
            elif isinstance(event, Told):
                self._told.setdefault(event.task, []).append(event.text)
        finished = self._finished.pop(number)
        if finished.error:
            raise failure(*finished.error)
        assert isinstance(finished.result, Became)  # noqa: S101 (for mypy: what `do` gives)
        return finished.result
