"""What the operating system says, for people: its errors by what they mean, sizes in bytes as text."""

import errno
import os
from typing import Literal

Meaning = Literal["full", "denied", "too many files", "other"]

FILE_LIMIT = "allow more open files (`ulimit -n 1024`), then repeat the command"  # the hint for too many

_MEANINGS: dict[int, Meaning] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.EMFILE: "too many files",
    errno.ENFILE: "too many files",
}


def meaning(error: OSError) -> Meaning:
    """What kind of failure it is: the disk or a quota is full, it is not allowed, or too many files are open."""
    return _MEANINGS.get(error.errno or 0, "other")


def reason(error: OSError) -> str:
    """What the system says: `No space left on device`."""
    return os.strerror(error.errno) if error.errno else str(error)


def size_text(size: int) -> str:
    """A number of bytes: `812 B`, `1.4 MB`, `20.3 GB` (powers of ten)."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
