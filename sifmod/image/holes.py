"""Sparse files that claim more than the disk has: reading one takes hours, making one costs nothing."""

import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.disk import reading
from sifmod.system import size_text


def check_holes(paths: Iterable[Path], place: Path, hint: str) -> None:
    """Raise FetchError for a sparse file that is larger than the free space at `place`."""
    free = shutil.disk_usage(place).free
    for path in paths:
        with reading(path):
            status = path.lstat()
        there = status.st_blocks * 512
        if stat.S_ISREG(status.st_mode) and status.st_size > free and there < status.st_size // 2:
            sizes = f"{size_text(status.st_size)}, of which {size_text(there)} are allocated"
            raise FetchError(f"{path} has {sizes}, and {size_text(free)} are free for the image", hint)
