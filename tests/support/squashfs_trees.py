"""Squashfs images made by our writer, from a directory or by hand, and what the tools of squashfs say of them."""

import hashlib
import os
import random
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.image.convert.inode import Device, Directory, Fifo, File, Node, Symlink, Xattrs
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter

Attributes = tuple[int, int, int, int, Xattrs]
PLAIN: Attributes = (0o644, 0, 0, 1_700_000_000, ())
FOLDER: Attributes = (0o755, 0, 0, 1_700_000_000, ())
Make = Callable[[DataWriter], Directory]


def build(path: Path, make: Make, compression: str = "zstd:3", processors: int = 2, offset: int = 0) -> int:
    """Write an image and return its size; `make` gives the data and returns the tree."""
    with path.open("w+b") as file, SquashfsWriter(file, offset, parse(compression), processors, 0) as writer:
        return writer.close(make(writer))


def reader(path: Path, offset: int = 0) -> SquashfsReader:
    """A reader of an image; its file is closed with it."""
    return SquashfsReader(path.open("rb"), offset, path.stat().st_size - offset)


def file(writer: DataWriter, data: bytes, attributes: Attributes = PLAIN) -> File:
    """A file of any size, given in pieces of odd sizes where it is large."""
    if len(data) < writer.BLOCK:
        return File(*attributes, writer.add(data))
    writer.start()
    for at in range(0, len(data), 99_991):
        writer.write(data[at : at + 99_991])
    return File(*attributes, writer.finish())


def from_directory(writer: DataWriter, top: Path) -> Directory:
    """The tree of a real directory, hard links included."""
    known: dict[tuple[int, int], Node] = {}

    def attributes(path: bytes, status: os.stat_result) -> Attributes:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        xattrs = tuple((os.fsencode(name), os.getxattr(path, name, follow_symlinks=False)) for name in names)
        return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime), xattrs

    def fresh(path: bytes, status: os.stat_result) -> Node:
        own = attributes(path, status)
        if stat.S_ISLNK(status.st_mode):
            return Symlink(*own, os.readlink(path))
        if stat.S_ISREG(status.st_mode):
            return file(writer, Path(os.fsdecode(path)).read_bytes(), own)
        if stat.S_ISFIFO(status.st_mode):
            return Fifo(*own)
        kind = "b" if stat.S_ISBLK(status.st_mode) else "c"
        return Device(*own, kind, os.major(status.st_rdev), os.minor(status.st_rdev))

    def node(path: bytes) -> Node:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            return Directory(*attributes(path, status), {name: node(path + b"/" + name) for name in os.listdir(path)})
        key = status.st_dev, status.st_ino
        if key not in known:
            known[key] = fresh(path, status)
        return known[key]

    root = node(os.fsencode(top))
    assert isinstance(root, Directory)
    return root


def snapshot(top: Path, with_xattrs: bool = True) -> dict[bytes, tuple[object, ...]]:
    """Everything below a directory, as lstat, readlink and getxattr tell it; names of one file share a first name."""
    found: dict[bytes, tuple[object, ...]] = {}
    first: dict[int, bytes] = {}
    above = os.fsencode(top)
    for folder, folders, names in os.walk(above):
        folders.sort()
        for entry in sorted((*folders, *names)):
            path = folder + b"/" + entry
            status = os.lstat(path)
            own = path[len(above) :]
            data = b""
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as opened:
                    data = hashlib.file_digest(opened, "sha256").digest()
            elif stat.S_ISLNK(status.st_mode):
                data = os.readlink(path)
            listed = os.listxattr(path, follow_symlinks=False) if with_xattrs else []
            xattrs = {name: os.getxattr(path, name, follow_symlinks=False) for name in listed}
            is_folder = stat.S_ISDIR(status.st_mode)
            same = own if is_folder else first.setdefault(status.st_ino, own)
            size = 0 if is_folder else status.st_size
            owner = status.st_uid, status.st_gid
            facts = (oct(status.st_mode), *owner, int(status.st_mtime), size, status.st_nlink, status.st_rdev)
            found[own] = (*facts, data, same, xattrs)
    return found


def unpacked(image: Path, target: Path, offset: int = 0) -> Path:
    """Unpack an image with unsquashfs, which must have nothing to complain about."""
    command = ["unsquashfs", "-n", "-q", "-o", str(offset), "-d", str(target), str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return target


def listed(image: Path) -> list[str]:
    """What unsquashfs lists, with numeric owners."""
    command = ["unsquashfs", "-lln", str(image)]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "TZ": "UTC"})
    assert done.stderr == b""
    return os.fsdecode(done.stdout).split("\n")[:-1]


def all_below(top: Path) -> list[Path]:
    """All below a directory; `rglob` of Debian 12's Python fails at a link to a name that is too long."""
    return [Path(at, name) for at, directories, files in os.walk(top) for name in (*directories, *files)]


def mksquashfs(source: Path, image: Path, *options: str) -> Path:
    """An image by mksquashfs."""
    command = ["mksquashfs", str(source), str(image), "-noappend", "-quiet", "-no-progress", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return image


@contextmanager
def mounted(image: Path, target: Path) -> Iterator[Path]:
    """The image mounted with squashfuse, as Apptainer does."""
    target.mkdir()
    subprocess.run(["squashfuse", str(image), str(target)], check=True)
    try:
        yield target
    finally:
        subprocess.run(["fusermount", "-u", str(target)], check=True)


@contextmanager
def mounted_by_kernel(image: Path, target: Path) -> Iterator[Path]:
    """The image mounted by root on a loop device."""
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    target.mkdir()
    subprocess.run([*as_root, "mount", "-t", "squashfs", "-o", "loop,ro", str(image), str(target)], check=True)
    try:
        yield target
    finally:
        subprocess.run([*as_root, "umount", str(target)], check=True)


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that no compressor makes shorter."""
    return random.Random(seed).randbytes(size)
