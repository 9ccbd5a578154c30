"""Files with holes that claim more than the disk has: to read one takes hours, and it costs its maker nothing."""

import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.disk import reading
from sifmod.system import size_text


def check_holes(paths: Iterable[Path], place: Path, hint: str) -> None:
    """Raise FetchError for a file with holes that is larger than what is free at `place`."""
    free = shutil.disk_usage(place).free
    for path in paths:
        with reading(path):
            status = path.lstat()
        there = status.st_blocks * 512
        if stat.S_ISREG(status.st_mode) and status.st_size > free and there < status.st_size // 2:
            sizes = f"{size_text(status.st_size)}, of which {size_text(there)} are there"
            raise FetchError(f"{path} has {sizes}, and {size_text(free)} are free for the image", hint)
