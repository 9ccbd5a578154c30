"""A file that somebody else may have made, read as far as a limit allows."""

import os
import stat
from pathlib import Path

from sifmod.config.limits import LimitName, bound, limits


class NotReadError(ValueError):
    """What is at a path has more bytes than its limit, or is a pipe, a device or a directory."""


def read_bounded(path: Path, name: LimitName) -> bytes:
    """Its content; a pipe is not waited for. Raises OSError and NotReadError."""
    most: int = getattr(limits(), name)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotReadError(f"{path} cannot be read: it is no regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise NotReadError(f"{path} has more bytes than {bound(name)}")
    return content
