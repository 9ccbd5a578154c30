"""A file system that is soon full."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = 4096


@contextmanager
def small_disk(
    directory: Path, size: int, kind: str = "tmpfs", *, inodes: int = 0, noexec: bool = False
) -> Iterator[Path]:
    """A file system of `size` bytes, mounted on the new `directory` in a namespace of its own: the path to it.

    An ordinary user may do that too; the path leads through /proc, where the namespace can be entered. `kind`: tmpfs,
    or ext4, where a directory takes a page too; that takes root and a loop device. `inodes` of a tmpfs: 0 is no limit;
    no program starts in a `noexec` one.
    """
    directory.mkdir()
    namespace = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    mount = f'mount -t tmpfs -o size={size},nr_inodes={inodes},mode=0755{",noexec" * noexec} none "$0"'
    if kind == "ext4":
        file = f"{directory}.{kind}"
        Path(file).touch()
        os.truncate(file, size)
        subprocess.run(("mkfs.ext4", "-q", "-m", "0", "-b", str(PAGE), file), check=True)
        mount = 'mount -o loop "$0.ext4" "$0"'
    with subprocess.Popen(
        (*namespace, "sh", "-c", f"{mount} && echo mounted && exec cat", directory),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        yield Path(f"/proc/{holder.pid}/root{directory}")
        holder.communicate()


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


@contextmanager
def without_inodes(ballast: Path) -> Iterator[None]:
    """No inode is free inside; files in the new directory `ballast` take them all."""
    ballast.mkdir()
    try:
        while os.statvfs(ballast).f_ffree:
            ballast.joinpath(os.urandom(8).hex()).touch()
        yield
    finally:
        shutil.rmtree(ballast)
