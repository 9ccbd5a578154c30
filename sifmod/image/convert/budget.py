"""The budget of a conversion: compression threads, memory, and checks of its use.

Threads are limited by the processors this process may run on, by its control group (version 1 or 2, with its parents),
by the site, and by the memory. The memory is what the site allows, else a quarter of the machine's or control group's.
"""

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from sifmod.errors import ImageError
from sifmod.system import size_text

Item = TypeVar("Item")

_RUN = 256  # tar members; one may have a MiB of attributes
_STATUS = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
MOST = 8  # threads by default: beyond that the reader is the bottleneck
BASE = 96 << 20  # bytes of the interpreter, its libraries and a large image's file tree
LEAST = 256 << 20  # bytes: a conversion may always take this much
PER_THREAD = 64 << 20  # bytes: queued blocks, compressor tables, layers decompressed ahead

_UNLIMITED = 1 << 60  # control groups of version 1 give a huge number for "no limit"


class CpuWatch:
    """Checks this process's memory between runs of members; `limit` in bytes, None for no limit."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._members = 0

    def runs(self, members: Iterator[Item]) -> Iterator[Iterator[Item]]:
        """All members, in runs to be read to their ends. Raises ImageError if this process takes too much memory.

        A quarter of the memory is reserved for the tables that are made at the end.
        """
        for first in members:
            yield chain((first,), islice(members, _RUN - 1))
            self._members += _RUN
            if self._limit is not None and (taken := _own_memory()) > self._limit // 4 * 3:
                raise ImageError(
                    "the image has more files than fit in the memory limit, "
                    f"{size_text(self._limit)}: after about {self._members} of its entries {size_text(taken)} are "
                    "used, and a quarter is reserved for file system tables; no image was written",
                    "raise `memory` (SIFMOD_MEMORY) if this machine has more free memory, or repeat the command on a "
                    "larger one",
                )


def _own_memory() -> int:
    """Bytes of anonymous resident memory of this process; 0 if unknown."""
    try:
        _, resident, shared, *_ = map(int, _STATUS.read_bytes().split())
    except OSError:
        return 0
    return (resident - shared) * _PAGE


class Budget(NamedTuple):
    """The limits of one conversion: compression threads, and bytes of memory (None for no limit)."""

    processors: int
    memory: int | None


UNLIMITED = Budget(1, None)


def threads(processors: int | None, limit: int | None, system: Path = Path("/")) -> int:
    """The number of compression threads, at least one. `processors` and `limit` (bytes) are the site's own limits.

    Without a `limit` a quarter of the memory of the machine or control group counts. `system` is the root of `proc`
    and `sys`.
    """
    available = min(len(os.sched_getaffinity(0)), *_processors(system), _UNLIMITED)
    wanted = processors if processors is not None else MOST
    return max(1, min(available, wanted, (_allowed(limit, system) - BASE) // PER_THREAD))


def memory(limit: int | None, system: Path = Path("/")) -> int:
    """Bytes of memory for a conversion, at least LEAST; `limit` and `system` are as for `threads`."""
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
    """The first `count` words of a file, padded with empty ones."""
    words = " ".join(_lines(path)).split()[:count]
    return (*words, *("" for _ in range(count - len(words))))


def _lines(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="ascii", errors="replace").splitlines())
    except OSError:
        return ()
