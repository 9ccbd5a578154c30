"""A file that somebody else may have made, read as far as a limit allows."""

import errno
import os
import stat
from pathlib import Path

from sifmod.config.limits import LimitName, bound, limits


class TooLargeError(ValueError):
    """A file has more bytes than its limit."""


def read_bounded(path: Path, name: LimitName) -> bytes:
    """Its content; a pipe is not waited for. Raises OSError, also for no regular file, and TooLargeError."""
    most: int = getattr(limits(), name)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise TooLargeError(f"{path} has more bytes than {bound(name)}")
    return content
