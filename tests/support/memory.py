"""Where temporary directories are: in memory where there is room, for a disk waits for each of the syncs."""

import os
import shutil
from functools import cache
from pathlib import Path

MEMORY, DISK = Path("/dev/shm"), Path("/tmp")
ROOM = 6 << 30  # bytes that a run of all tests takes at most


@cache
def temporary() -> Path:
    """A directory that every user can reach and write in."""
    roomy = os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return MEMORY if roomy else DISK
