"""Progress of long operations: a bar on a terminal, lines in a log, with a measured rate."""

import os
import sys
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sifmod.cli import output
from sifmod.system import escape_controls, size_text

Show = Callable[[str, int, int | None], None]
"""Called with (what, bytes done, total bytes or None)."""
Clock = Callable[[], float]

NOTHING_KEPT = "nothing was downloaded, so --keep-blobs has nothing to keep: use --force to fetch the image again"

_SAMPLE = 0.1  # seconds between two samples of a Pace
_SHORTEST = 0.5  # shortest period for a meaningful rate, in seconds
_PLAIN = str.maketrans("━─…", "#-.")  # for terminals without Unicode
_SHORTEST_BAR, _LONGEST_BAR = 10, 60  # cells


class Display:
    """A progress display. `used`: whether there was any progress; an image that exists gives none."""

    def __init__(self, show: Show) -> None:
        self.used = False
        self._show = show

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show the progress of `what`."""
        self.used = True
        self._show(what, done, total)


@contextmanager
def progress(enabled: bool) -> Iterator[Display]:
    """A bar on a terminal (not a dumb one), else lines; nothing if not `enabled`.

    The bar appears with the first update, so that earlier questions have the terminal to themselves.
    """
    if not enabled:
        yield Display(lambda what, done, total: None)  # noqa: ARG005
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar() as show:
            yield Display(show)
    else:
        yield Display(log_lines())


class Pace:
    """A rate over the last `window` seconds, including stalls."""

    def __init__(self, window: float = 10.0, clock: Clock = time.monotonic) -> None:
        self._window = window
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def rate(self, done: int) -> float | None:
        """Bytes per second, now that `done` bytes are done; None within half a second of the first call."""
        now, samples = self._clock(), self._samples
        if samples and done < samples[-1][1]:  # it started over
            samples.clear()
        if not samples or now - samples[-1][0] >= _SAMPLE:
            samples.append((now, done))
        while len(samples) > 1 and now - samples[1][0] >= self._window:
            samples.popleft()
        since, before = samples[0]
        return (done - before) / (now - since) if now - since >= _SHORTEST else None


def figures(done: int, total: int | None, rate: float | None, left_out: Collection[str] = ()) -> str:
    """The figures beside a bar: `24 %, 1.0 GB of 4.1 GB, 2.0 MB/s, 25:50 left`; `left_out`: without amount or rate."""
    seconds = int((total - done) / rate) if total and rate and rate >= 1 else None
    texts = {
        "percent": f"{100 * done // total:3} %" if total else "",
        "amount": f"{size_text(done)} of {size_text(total)}" if total else size_text(done) if done else "",
        "rate": "" if rate is None else f"{size_text(int(rate))}/s",
        "left": "" if seconds is None else f"{_clock(seconds)} left",
    }
    return ", ".join(text for name, text in texts.items() if text and name not in left_out)


def fitting(what: str, done: int, total: int | None, rate: float | None, columns: int) -> str:
    """The figures; if `what` would lack room, without the amount, then also without the rate."""
    shorter = ((), ("amount",) if total else (), ("amount", "rate"))
    texts = [figures(done, total, rate, left_out) for left_out in shorter]
    room = columns - 3 - _cells(" ".join(escape_controls(what).split())) - _SHORTEST_BAR - 2
    return next((text for text in texts if len(text) <= room), texts[-1] or texts[0])


def _clock(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def bar_line(what: str, done: int, total: int | None, beside: str, columns: int) -> str:
    """One line of at most `columns` - 1 cells: `what`, shortened, a bar if there is space, and `beside`."""
    room = columns - 1 - len(beside) - 2 * bool(beside)
    most = room if room < 2 * _SHORTEST_BAR else room - _SHORTEST_BAR - 2
    label = _cut_before_file(" ".join(escape_controls(what).split()), most)
    length = min(room - _cells(label) - 2, _LONGEST_BAR)
    bar = ""
    if total and length >= _SHORTEST_BAR:
        filled = length * min(done, total) // total
        bar = f"  {'━' * filled}{'─' * (length - filled)}"
    return _cut(f"{label}{bar}  {beside}" if beside else label, columns - 1)


def _cut_before_file(label: str, room: int) -> str:
    """The label, shortened before its last word, the file, as long as that fits."""
    before, _, file = label.rpartition(" ")
    left = room - _cells(file) - 1
    return label if _cells(label) <= room else f"{_cut(before, left)} {file}" if left > 1 else _cut(file, room)


def _cells(text: str) -> int:
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _cut(text: str, room: int) -> str:
    """The text, shortened with an ellipsis if it is too long."""
    if _cells(text) <= room:
        return text
    while text and _cells(text) >= room:
        text = text[:-1]
    return f"{text}…" if room > 0 else ""


@contextmanager
def _bar() -> Iterator[Show]:
    """One line at the bottom, drawn about ten times a second; messages are printed above it."""
    paces: dict[str, Pace] = {}
    drawn = ("", 0.0)  # what, and when
    lock = threading.RLock()

    def write(text: str) -> None:
        encoding = sys.stderr.encoding or "ascii"
        utf = encoding.lower().startswith("utf") and not output.plain_signs()
        plain = text if utf else text.translate(_PLAIN)
        sys.stderr.write(plain.encode(encoding, "replace").decode(encoding))
        sys.stderr.flush()

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal drawn
        with lock:
            rate, now = paces.setdefault(what, Pace()).rate(done), time.monotonic()
            if drawn[0] == what and done != total and now - drawn[1] < _SAMPLE:
                return
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            title = output.without_typed(what)
            line = bar_line(title, done, total, fitting(title, done, total, rate, columns), columns)
            write(f"\r\x1b[K{line}")
            drawn = (what, now)

    @contextmanager
    def away() -> Iterator[None]:
        nonlocal drawn
        with lock:
            if drawn[0]:
                write("\r\x1b[K")
            drawn = ("", 0.0)
            yield

    with output.texts_go_above(away):
        try:
            yield show
        finally:
            with away():
                pass


def log_lines(interval: float = 60.0, clock: Clock = time.monotonic) -> Show:
    """For each `what` a line at the start, and then after each tenth or `interval` seconds."""
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
        output.say(f"{what}: {share}{speed}" if share else what)
        last[what] = (tenth, done, now)

    return show
