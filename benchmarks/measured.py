"""Runs one command and measures it whole: wall, CPU of all its processes, peak memory, peak of disk space."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
    disk: int  # peak of what was on the disk more than before, the result included


def measure(command: Sequence[str], environment: Mapping[str, str], log: Path, used: Callable[[], int]) -> Measured:
    """Run `command` to its end; its failure ends the benchmark. `used` says how many bytes of disk are taken now."""
    os.sync()
    before = used()
    with log.open("wb") as stream:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        watch = Watch(process.pid, used)
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.end()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed ({process.returncode}):\n{log.read_text(errors='replace')}")
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall, cpu, watch.memory, usage.ru_maxrss * 1024, watch.disk - before)


class Watch(threading.Thread):
    """Looks at a process and its descendants, and at the disk, until it is ended."""

    def __init__(self, pid: int, used: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.memory = 0
        self.disk = used()
        self._pid = pid
        self._used = used
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.disk = max(self.disk, self._used())
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


def in_directory(directory: Path) -> int:
    """Bytes of disk below `directory`, each file once, whatever its names. Exact; cheap where there are few files."""
    sizes: dict[int, int] = {}
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                status = os.lstat(os.path.join(root, name))
            except FileNotFoundError:  # removed meanwhile
                continue
            sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def on_file_system(directory: Path) -> int:
    """Bytes taken of the file system of `directory`, by whomever: for a hundred thousand files."""
    status = os.statvfs(directory)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
