"""Run a command to its end and keep everything it said."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from support.runtime import RUNTIME

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / RUNTIME.builds
SIFMOD = (sys.executable, "-m", "sifmod")


@dataclass(frozen=True)
class Result:
    """What a command did; output is text, with bytes that are not UTF-8 as surrogates."""

    args: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def ok(self) -> "Result":
        """Itself, or a failure of the test that shows everything."""
        assert self.code == 0, (
            f"{self.args}\nexit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        )
        return self


@dataclass(frozen=True)
class User:
    """Whom a command runs as."""

    uid: int
    gid: int


def run(
    args: Sequence[str | PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    stdin: str = "",
    user: User | None = None,
) -> Result:
    """Run `args` with exactly `env` (the test's own environment when absent); hangs are killed after ten minutes.

    Only root can run them as another user.
    """
    if user == User(os.geteuid(), os.getegid()):
        user = None
    done = subprocess.run(
        [str(arg) for arg in args],
        env=env,
        cwd=cwd,
        input=stdin.encode(errors="surrogateescape"),
        capture_output=True,
        check=False,
        timeout=600,
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
    )
    return Result(
        tuple(str(arg) for arg in args),
        done.returncode,
        done.stdout.decode(errors="surrogateescape"),
        done.stderr.decode(errors="surrogateescape"),
    )
