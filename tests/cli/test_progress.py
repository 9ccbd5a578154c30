"""Progress: a bar on a terminal, lines in a log, nothing when it is not wanted."""

import os
import pty
import re
import subprocess
import sys

import pytest

from sifmod.cli.progress import Pace, figures, log_lines, progress

LABEL = "copying a[b]c [bold]x.sif"
CODE = f"""
from sifmod.cli.progress import progress
with progress(True) as update:
    for done in range(0, 10_000_001, 100_000):
        update({LABEL!r}, done, 10_000_000)
    update("hashing x.sif", 5_000_000, 10_000_000)
"""


class Hands:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def on_a_terminal(code: str) -> str:
    """What a terminal shows of a program."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent_to_a_terminal(code))


def sent_to_a_terminal(code: str) -> str:
    """What a terminal gets of a program, with what moves its cursor and hides it."""
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(reader, 4096):
            shown += part
    except OSError:  # the terminal is closed when the process has ended
        pass
    assert process.wait() == 0, shown
    return shown.decode()


def test_a_line_at_once_and_one_per_tenth_in_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Hands()
    show = log_lines(clock=clock)
    for done in range(0, 10_000_001, 100_000):
        show("copying x.sif", done, 10_000_000)
        clock.now += 0.05
    captured = capfd.readouterr()
    tenths = [f"== copying x.sif: {tenth} % of 10.0 MB, 2.0 MB/s" for tenth in range(10, 101, 10)]
    assert captured.err.splitlines() == ["== copying x.sif: 0 % of 10.0 MB", *tenths]
    assert captured.out == ""


def test_a_slow_link_gives_a_line_a_minute(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Hands()
    show = log_lines(clock=clock)
    for second in range(0, 121, 10):
        show("downloading x.sif", second * 1_000_000, 10_000_000_000)
        show("downloading y.sif", second * 1_000_000, None)
        show("apptainer pull docker://x", 0, None)
        clock.now += 10
    assert capfd.readouterr().err.splitlines() == [
        "== downloading x.sif: 0 % of 10.0 GB",
        "== downloading y.sif",
        "== apptainer pull docker://x",
        "== downloading x.sif: 0 % of 10.0 GB, 1.0 MB/s",
        "== downloading y.sif: 60.0 MB, 1.0 MB/s",
        "== apptainer pull docker://x",
        "== downloading x.sif: 1 % of 10.0 GB, 1.0 MB/s",
        "== downloading y.sif: 120.0 MB, 1.0 MB/s",
        "== apptainer pull docker://x",
    ]


def test_a_pace_is_that_of_the_last_seconds() -> None:
    clock = Hands()
    pace = Pace(window=10, clock=clock)
    assert pace.rate(500_000_000) is None  # what an earlier run had is no speed
    clock.now += 0.01
    assert pace.rate(501_000_000) is None  # nor is a burst
    for _ in range(100):
        clock.now += 1
        rate = pace.rate(done := 501_000_000)
    assert rate == 0
    for _ in range(20):
        clock.now += 1
        rate = pace.rate(done := done + 2_000_000)
    assert rate == pytest.approx(2_000_000)
    assert pace.rate(0) is None  # it started over


def test_figures() -> None:
    assert figures(0, None, None) == ""
    assert figures(1000, None, 10.0) == "1.0 kB, 10 B/s"
    assert figures(1_000_000, 61_000_000, 1_000_000.0) == "1.0 MB of 61.0 MB, 1.0 MB/s, 1:00 left"
    assert figures(0, 61_000_000, 0.0) == "0 B of 61.0 MB, 0 B/s"


def test_nothing_when_it_is_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(False) as update:
        used = [update.used]
        update("copying x.sif", 10, 10)
        used.append(update.used)
    assert used == [False, True]
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal() -> None:
    shown = on_a_terminal(CODE)
    assert LABEL in shown
    assert "━" in shown
    assert "10.0 MB of 10.0 MB" in shown or "5.0 MB of 10.0 MB" in shown
    assert "==" not in shown


@pytest.mark.parametrize("error", ["", "raise ValueError", "raise KeyboardInterrupt"])
def test_a_bar_ends_with_its_block(error: str) -> None:
    """Also where that fails: the bar is gone, the cursor is back, and nothing is drawn any more."""
    code = f"""
import sys, time
from sifmod.cli.progress import progress
try:
    with progress(True) as update:
        update("copying x.sif", 1, 10)
        {error or "pass"}
except BaseException:
    pass
print("then", file=sys.stderr, flush=True)
time.sleep(0.5)  # a bar that goes on is drawn ten times a second
"""
    sent = sent_to_a_terminal(code)
    assert "copying x.sif" in sent
    drawn, then, after = sent.partition("then")
    assert (then, after.strip()) == ("then", "")
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l") > -1
