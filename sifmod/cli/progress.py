"""Progress of what takes long: a bar on a terminal, lines in a log, with a rate that was measured."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sifmod.cli.output import say
from sifmod.system import size_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Show = Callable[[str, int, int | None], None]
"""Called as (what, bytes done, bytes in all or None)."""
Clock = Callable[[], float]

NOTHING_KEPT = "nothing was downloaded, and --keep-blobs keeps nothing: --force fetches the image again"

_SAMPLE = 0.1  # seconds between two samples of a Pace
_SHORTEST = 0.5  # seconds over which a rate says something


class Display:
    """A Progress. `used` says whether anything was told: nothing is, where an image is there already."""

    def __init__(self, show: Show) -> None:
        self.used = False
        self._show = show

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show how far `what` is."""
        self.used = True
        self._show(what, done, total)


@contextmanager
def progress(enabled: bool) -> Iterator[Display]:
    """A bar on a terminal, lines in a log, nothing when not enabled.

    The bar appears with the first update, so that a question asked before has the terminal for itself.
    """
    if not enabled:
        yield Display(lambda what, done, total: None)  # noqa: ARG005
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar() as show:
            yield Display(show)
    else:
        yield Display(log_lines())


class Pace:
    """How fast something goes: over the last `window` seconds, stalls included."""

    def __init__(self, window: float = 10.0, clock: Clock = time.monotonic) -> None:
        self._window = window
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def rate(self, done: int) -> float | None:
        """Bytes a second, now that `done` bytes are; None while that cannot be said yet."""
        now, samples = self._clock(), self._samples
        if samples and done < samples[-1][1]:  # it started over
            samples.clear()
        if not samples or now - samples[-1][0] >= _SAMPLE:
            samples.append((now, done))
        while len(samples) > 1 and now - samples[1][0] >= self._window:
            samples.popleft()
        since, before = samples[0]
        return (done - before) / (now - since) if now - since >= _SHORTEST else None


def figures(done: int, total: int | None, rate: float | None) -> str:
    """What stands beside a bar: `1.0 GB of 4.1 GB, 2.0 MB/s, 25:50 left`."""
    parts = [f"{size_text(done)} of {size_text(total)}" if total else size_text(done)] if done or total else []
    if rate is not None:
        parts.append(f"{size_text(int(rate))}/s")
        if total and rate >= 1:
            minutes, seconds = divmod(int((total - done) / rate), 60)
            parts.append(f"{minutes}:{seconds:02} left")
    return ", ".join(parts)


@contextmanager
def _bar() -> Iterator[Show]:
    """One line: a new `what` takes the place of the one before."""
    bars: Bars | None = None
    tasks: dict[str, tuple[TaskID, Pace]] = {}
    shown = ""

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal bars, shown
        if bars is None:
            bars = _bars()
            bars.start()
        if what not in tasks:
            tasks[what] = (bars.add_task(what, total=total, figures=""), Pace())
        if shown not in ("", what):
            bars.update(tasks[shown][0], visible=False)
        shown = what
        task, pace = tasks[what]
        text = figures(done, total, pace.rate(done))
        bars.update(task, completed=done, total=total, visible=True, figures=text)

    try:
        yield show
    finally:
        if bars is not None:
            bars.stop()


def _bars() -> "Bars":
    """Without markup: names of files and images may have brackets."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def log_lines(interval: float = 60.0, clock: Clock = time.monotonic) -> Show:
    """A line at once, and then one whenever another tenth is done or `interval` seconds have passed."""
    last: dict[str, tuple[int, int, float]] = {}  # tenth, bytes and time of the last line

    def show(what: str, done: int, total: int | None) -> None:
        now = clock()
        tenth = 10 * done // total if total else 0
        if what in last:
            before, then, since = last[what]
            if tenth <= before and now - since < interval:
                return
            elapsed = now - since
            speed = f", {size_text(int((done - then) / elapsed))}/s" if elapsed > 0 and done >= then else ""
        else:
            speed = ""
        share = f"{100 * done // total} % of {size_text(total)}" if total else size_text(done) if done else ""
        say(f"{what}: {share}{speed}" if share else what)
        last[what] = (tenth, done, now)

    return show
