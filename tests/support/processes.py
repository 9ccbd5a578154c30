"""Look for processes by a mark in their environment, and wait for what they do."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def with_mark(mark: str, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`env` for a process that `marked` finds, and whatever it starts."""
    return {**env, "MARK": mark}


def marked(mark: str) -> list[str]:
    """The command lines of all processes that have the mark, words separated by blanks."""
    found: list[str] = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (directory / "environ").read_bytes().split(b"\0"):
                found.append((directory / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what must happen soon; the test fails when it does not happen within a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "this should have happened long ago"
        time.sleep(0.02)
