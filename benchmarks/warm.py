"""Memory that the machine has at hand, so that every command finds the same.

The host of a virtual machine may take free memory back. Who then writes files first pays for getting it again, up to
ten times what the same writes cost otherwise, and which command that is decides who looks fast.
"""

import mmap

SIZE = 4 << 30  # bytes; more than most commands fill
PAGE = 4096


def warm_memory() -> None:
    """Take and free SIZE bytes, at most half of what is free."""
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    with mmap.mmap(-1, min(SIZE, available // 2)) as memory:
        for place in range(0, len(memory), PAGE):
            memory[place] = 1
