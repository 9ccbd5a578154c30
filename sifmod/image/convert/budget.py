"""The budget of a conversion: how many threads may compress, and how much memory it may take, beside others' work.

What counts is the smallest of: the processors this process may run on, the processor and memory limits of its control
group (version 1 or 2, its parents included), and what the site allows.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST = 8  # threads, where the site does not say: beyond that the reader is what limits
BASE = 96 << 20  # bytes of the interpreter, its libraries and a large image's file tree
LEAST = 256 << 20  # bytes: no conversion is refused for taking less
PER_THREAD = 64 << 20  # bytes: blocks on their way, a compressor's tables, layers that are decompressed ahead

_UNLIMITED = 1 << 60  # control groups of version 1 say a huge number for no limit


class Budget(NamedTuple):
    """What one conversion may take: processors, and bytes of memory, None for any."""

    processors: int
    memory: int | None


UNLIMITED = Budget(1, None)


def threads(processors: int | None, limit: int | None, system: Path = Path("/")) -> int:
    """How many threads may compress, at least one. `processors` and `limit` (bytes) are the site's own limits.

    Without a limit of memory by the site a quarter of the machine's, or of the control group's, is taken. `system`
    is where `proc` and `sys` are.
    """
    available = min(len(os.sched_getaffinity(0)), *_processors(system), _UNLIMITED)
    wanted = processors if processors is not None else MOST
    return max(1, min(available, wanted, (_allowed(limit, system) - BASE) // PER_THREAD))


def memory(limit: int | None, system: Path = Path("/")) -> int:
    """Bytes of memory that a conversion may take, LEAST or more; `limit` is the site's, and the rest as `threads`."""
    return max(LEAST, _allowed(limit, system))


def _allowed(limit: int | None, system: Path) -> int:
    return limit if limit is not None else min(_memory(system), default=_UNLIMITED) // 4


def _processors(system: Path) -> Iterator[int]:
    for group in _groups(system, "cpu"):
        quota, period = _words(group / "cpu.max", 2)
        if not quota:
            (quota,), (period,) = _words(group / "cpu.cfs_quota_us", 1), _words(group / "cpu.cfs_period_us", 1)
        if quota.isdecimal() and period.isdecimal() and int(period):
            yield max(1, -(-int(quota) // int(period)))


def _memory(system: Path) -> Iterator[int]:
    for line in _lines(system / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            yield int(line.split()[1]) << 10
    for group in _groups(system, "memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            (limit,) = _words(group / name, 1)
            if limit.isdecimal() and int(limit) < _UNLIMITED:
                yield int(limit)


def _groups(system: Path, controller: str) -> Iterator[Path]:
    """The control groups of this process that limit `controller`, from its own up to the root."""
    top = system / "sys/fs/cgroup"
    for line in _lines(system / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = top if not controllers else top / controller
        if controllers and controller not in controllers.split(","):
            continue
        own = base / path.strip("/")
        yield from (group for group in (own, *own.parents) if group == base or base in group.parents)


def _words(path: Path, count: int) -> tuple[str, ...]:
    """The first `count` words of a file, empty ones where it has none."""
    words = " ".join(_lines(path)).split()[:count]
    return (*words, *("" for _ in range(count - len(words))))


def _lines(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="ascii", errors="replace").splitlines())
    except OSError:
        return ()
