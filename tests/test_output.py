"""Progress: a bar on a terminal, a line per 10 % in a log, nothing when it is not wanted."""

import os
import pty
import subprocess
import sys

import pytest

from sifmod.cli.output import human_size, progress

CODE = """
from sifmod.cli.output import progress
with progress(True) as update:
    for done in range(0, 10_000_001, 100_000):
        update("copying x.sif", done, 10_000_000)
"""


def test_a_line_per_tenth_in_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(True) as update:
        for done in range(0, 10_000_001, 100_000):
            update("copying x.sif", done, 10_000_000)
        update("apptainer pull docker://x", 0, None)
        update("apptainer pull docker://x", 5, None)
    captured = capfd.readouterr()
    tenths = [f"== copying x.sif: {tenth} % of 10.0 MB" for tenth in range(10, 101, 10)]
    assert captured.err.splitlines() == [*tenths, "== apptainer pull docker://x"]
    assert captured.out == ""


def test_nothing_when_it_is_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(False) as update:
        update("copying x.sif", 10, 10)
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal() -> None:
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", CODE], stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(reader, 4096):
            shown += part
    except OSError:  # the terminal is closed when the process has ended
        pass
    assert process.wait() == 0
    assert b"copying x.sif" in shown
    assert "━".encode() in shown
    assert b"==" not in shown


def test_sizes_as_people_read_them() -> None:
    assert [human_size(size) for size in (0, 999, 1000, 1_090_000_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.1 GB",
        "5.0 TB",
    ]
