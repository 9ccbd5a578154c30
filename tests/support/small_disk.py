"""A file system that is soon full."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.command import run

PAGE = 4096


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `directory`, which is made."""
    directory.mkdir()
    run(("mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "none", directory)).ok()
    try:
        yield directory
    finally:
        run(("umount", "--lazy", directory)).ok()
        directory.rmdir()


@contextmanager
def filled(ballast: Path, pages: int) -> Iterator[None]:
    """No more than `pages` pages are free inside; `ballast` takes the rest."""
    free = os.statvfs(ballast.parent)
    with ballast.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - pages * PAGE)
    try:
        yield
    finally:
        ballast.unlink()
