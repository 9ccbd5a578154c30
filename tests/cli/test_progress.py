"""Progress: a bar on a terminal, lines in a log, nothing when it is not wanted."""

import os
import pty
import subprocess
import sys
import termios

import pytest

from sifmod.cli.progress import Pace, bar_line, figures, fitting, log_lines, progress

LABEL = "copying a[b]c [bold]x.sif"


class Hands:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def sent_to_a_terminal(code: str, columns: int = 100) -> str:
    """What a terminal so wide gets of a program."""
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    environment = {**os.environ, "TERM": "xterm"}
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
    assert figures(1_000_000, 61_000_000, 1_000_000.0) == "  1 %, 1.0 MB of 61.0 MB, 1.0 MB/s, 1:00 left"
    assert figures(0, 61_000_000, 0.0) == "  0 %, 0 B of 61.0 MB, 0 B/s"
    assert figures(0, 7_384_000_000, 1_000_000.0).endswith(", 2:03:04 left")


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("what", ["copying x.sif", "downloading and converting " + "x" * 90, "漢字" * 40])
def test_at_any_width_all_figures_are_there_and_it_is_one_line(what: str, columns: int) -> None:
    beside = figures(999_900_000_000, 999_900_000_001, 999_900_000.0)
    line = bar_line(what, 1, 2, beside, columns)
    assert line.endswith(f"  {beside}")
    assert sum(2 if each in "漢字" else 1 for each in line) < columns
    assert line.startswith((what[:3], what.split()[-1][:3]))
    if columns > 60:
        assert line.count("━") == line.count("─") > 4 or line.count("━") + 1 == line.count("─")
    assert len(bar_line(what, 1, 2, beside, 20)) < 20
    assert bar_line("a\nb \x1b[2J", 0, None, "", columns) == "a b \\x1b[2J"


def test_nothing_when_it_is_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(False) as update:
        used = [update.used]
        update("copying x.sif", 10, 10)
        used.append(update.used)
    assert used == [False, True]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_messages_stand_above_the_bar_and_nothing_is_torn(columns: int) -> None:
    """Each piece between two erased lines is a bar that fits the line, or a message and its end."""
    code = f"""
import threading
from sifmod.cli.output import say
from sifmod.cli.progress import progress
with progress(True) as update:
    def go(what):
        for done in range(0, 10_000_001, 10_000):
            update(what, done, 10_000_000)
    beside = threading.Thread(target=go, args=({LABEL!r},))
    beside.start()
    for number in range(20):
        say(f"message {{number}}")
    beside.join()
    go("hashing x.sif")
    say("the last")
"""
    pieces = sent_to_a_terminal(code, columns).split("\r\x1b[K")
    messages = "".join(piece for piece in pieces if piece.startswith("=="))
    assert messages.splitlines() == [*(f"== message {number}" for number in range(20)), "== the last"]
    bars = [piece for piece in pieces if piece and not piece.startswith("==")]
    assert bars[-1].startswith("hashing x.sif  ")
    assert "100 %, 10.0 MB of 10.0 MB" in bars[-1]
    for bar in bars:
        assert bar.startswith((LABEL[:5], "hashing"))
        assert len(bar) < columns
        assert "\n" not in bar


@pytest.mark.parametrize("error", ["", "raise ValueError", "raise KeyboardInterrupt"])
def test_a_bar_ends_with_its_block(error: str) -> None:
    """Also where that fails: its line is empty, and nothing is drawn any more."""
    code = f"""
import sys
from sifmod.cli.progress import progress
try:
    with progress(True) as update:
        update("copying x.sif", 1, 10)
        {error or "pass"}
except BaseException:
    pass
print("then", file=sys.stderr, flush=True)
"""
    sent = sent_to_a_terminal(code)
    assert sent.startswith("\r\x1b[Kcopying x.sif  ")
    assert sent.endswith(" 10 %, 1 B of 10 B\r\x1b[Kthen\r\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_matters_is_there_at_any_width(columns: int) -> None:
    """The file, how much is done and how long it takes; the amounts and the rate as long as there is room."""
    for what in ("copying PyTorch-2.13.0.sif", "downloading and converting PyTorch-2.13.0.sif"):
        beside = fitting(what, 10**9, 4 * 10**9, None, columns)
        line = bar_line(what, 10**9, 4 * 10**9, beside, columns)
        assert "PyTorch-2.13.0.sif  " in line
        assert " 25 %" in line
        assert len(line) < columns
    beside = fitting(what, 10**9, 4 * 10**9, 2e6, columns)
    assert "25 %, " in beside
    assert beside.endswith("25:00 left")
    assert ("2.0 MB/s" in beside, "1.0 GB of 4.0 GB" in beside) == (columns > 80, columns > 80)
    assert bar_line("copying a-very-long-name-of-a-file.sif", 1, 2, "x", 24).startswith("a-very-…  ")


def test_a_bar_in_the_locale_c_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    code = "from sifmod.cli.progress import progress\nwith progress(True) as show: show('copying x.sif', 1, 4)"
    shown = sent_to_a_terminal(code)
    assert "copying x.sif  ###" in shown
    assert shown.isascii()
