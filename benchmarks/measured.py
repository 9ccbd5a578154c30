"""Runs one command and measures it whole: wall, CPU of all its processes, peak memory, peak of disk space."""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.1  # seconds between two looks at memory and disk


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one run."""

    wall: float
    cpu: float  # user and system, of all processes
    memory: int  # peak of the proportional share (PSS) of all processes together
    largest: int  # peak resident memory (RSS) of the largest process
    disk: int  # peak of what the file system held more than before, the result included


def measure(command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> Measured:
    """Run `command` to its end; its failure ends the benchmark. `directory` is on the file system it writes to.

    What else writes to that file system meanwhile is counted too.
    """
    os.sync()
    free = _free(directory)
    with log.open("wb") as stream:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=directory
        )
        watch = Watch(process.pid, directory)
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.end()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed ({process.returncode}):\n{log.read_text(errors='replace')}")
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall, cpu, watch.memory, usage.ru_maxrss * 1024, max(0, free - watch.free))


class Watch(threading.Thread):
    """Looks at a process and its descendants, and at a file system, until it is ended."""

    def __init__(self, pid: int, directory: Path) -> None:
        super().__init__(daemon=True)
        self.memory = 0
        self.free = _free(directory)
        self._pid = pid
        self._directory = directory
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.free = min(self.free, _free(self._directory))
            self.memory = max(self.memory, sum(map(_share, descendants(self._pid))))

    def end(self) -> None:
        self._ended.set()
        self.join()


def descendants(pid: int) -> tuple[int, ...]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return tuple(found)


def _share(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _free(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bfree * status.f_frsize
