"""Reading a file that another user may have made, up to a limit."""

import os
import stat
from pathlib import Path

from sifmod.config.limits import LimitName, bound, limits


class NotReadError(ValueError):
    """The file is larger than its limit, or is a pipe, a device or a directory."""


def read_bounded(path: Path, name: LimitName) -> bytes:
    """The content; never waits for a pipe. Raises OSError and NotReadError."""
    most: int = getattr(limits(), name)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotReadError(f"{path} cannot be read: it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise NotReadError(f"{path} has more bytes than {bound(name)}")
    return content
