"""A process of its own that takes a lock of a tree, says so, and does as it is told: the other one of two.

Run as a program: `hold.py PREFIX NAME LEASE`. It prints `waiting WHO`, `held TOKEN`, then for each line it reads:
`check` → `ok` or `lost MESSAGE`; `install TAG` → `installed N` or `failed MESSAGE`; `release` → it ends.
"""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from sifmod.errors import SifmodError
from sifmod.tree.generation import HeldModule, module_lock
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock
from support.tree import MODULE, install_under, tree_of


class Other:
    """The process, seen from the test. `command` in front of it: unshare, strace."""

    def __init__(self, prefix: Path, lease: float, *command: str, name: str = str(MODULE)) -> None:
        self._process = subprocess.Popen(
            (*command, sys.executable, __file__, str(prefix), name, str(lease)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            text=True,
        )
        self.pid = self._process.pid

    def heard(self) -> str:
        """The next line that it prints; empty when it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def speaks_within(self, seconds: float) -> bool:
        """Whether it prints anything in this time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def take(self) -> "Other":
        """Wait until it holds the lock."""
        while not (line := self.heard()).startswith("held"):
            assert line.startswith("waiting"), line
        return self

    def ask(self, line: str) -> str:
        """Give it a line and hear the answer."""
        self.tell(line)
        return self.heard()

    def tell(self, line: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def release(self) -> None:
        """Let it end by itself."""
        self.tell("release")
        assert self._process.wait(60) == 0
        self._close()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and gone."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def _obey(layout: Layout, name: str, lease: float) -> None:
    tree = tree_of(layout, lease, lambda who: print("waiting", who, flush=True))
    if name == str(MODULE):
        with module_lock(tree, MODULE) as mine:
            _do(mine.held, mine)
    else:
        with tree.lock(name) as held:
            _do(held, None)


def _do(held: HeldLock, mine: HeldModule | None) -> None:
    print("held", held.directory, flush=True)
    for line in sys.stdin:
        verb, _, tag = line.strip().partition(" ")
        if verb == "release":
            return
        try:
            if verb == "check":
                held.check()
                print("ok", flush=True)
            elif mine:
                print("installed", install_under(tag, mine).generation, flush=True)
        except SifmodError as error:
            print("failed", error.message, flush=True)


if __name__ == "__main__":
    _obey(Layout(Path(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
