"""What lies in the root file system of a SIF, read without sifmod: unsquashfs unpacks it, lstat and getxattr look.

Devices, owners and xattrs can be unpacked and read by root only, so that an ordinary user goes through sudo.
"""

import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

BLOCK = 131072
ZEROS = bytes(BLOCK)
AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True)
class Item:
    """One name in the file system. Bytes that are not UTF-8 are surrogates."""

    kind: str
    mode: str  # octal
    owner: str  # uid:gid
    mtime: str  # seconds since 1970
    size: int  # of regular files, else 0
    content: str  # of a regular file the digest of its data, of a symlink its target, of a device its numbers
    names: str  # all names of a file that has several
    xattrs: str  # name=value in hexadecimal


Listing = Mapping[str, Item]


@dataclass(frozen=True, order=True)
class Difference:
    """One property of one path (without a leading slash; `.` is the root) that two file systems do not share."""

    path: str
    what: str  # a field of Item, or `existence`
    ours: str
    theirs: str


def differences(ours: Listing, theirs: Listing) -> tuple[Difference, ...]:
    """Everything that is not the same, by path."""
    found: list[Difference] = []
    for path in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(path), theirs.get(path)
        if mine is None or other is None:
            found.append(Difference(path, "existence", *("no" if one is None else one.kind for one in (mine, other))))
        elif mine != other:
            pairs = ((field.name, getattr(mine, field.name), getattr(other, field.name)) for field in fields(Item))
            found.extend(Difference(path, name, str(one), str(two)) for name, one, two in pairs if one != two)
    return tuple(found)


def listing(sif: Path) -> Listing:
    """Every path of the SIF's root file system."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        unpacked = Path(work) / "root"
        try:
            offset = str(_offset(sif))
            options = ("-quiet", "-no-progress", "-strict-errors", "-offset", offset, "-dest", unpacked)
            subprocess.run((*AS_ROOT, "unsquashfs", *options, sif), check=True, stdout=subprocess.DEVNULL)
            program = (*AS_ROOT, sys.executable, "-I", __file__, unpacked)
            printed = subprocess.run(program, check=True, capture_output=True).stdout
        finally:
            subprocess.run((*AS_ROOT, "rm", "-rf", unpacked), check=True)
    return {path: Item(**item) for path, item in json.loads(printed).items()}


@contextmanager
def mounted(sif: Path) -> Iterator[Path]:
    """The root file system as a directory, through squashfuse: for files of gigabytes."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        subprocess.run(("squashfuse", "-o", f"offset={_offset(sif)}", sif, work), check=True)
        try:
            yield Path(work)
        finally:
            subprocess.run(("fusermount3", "-u", work), check=True)


def _offset(sif: Path) -> int:
    """Where the primary partition begins, as siftool says."""
    listed = subprocess.run(("siftool", "list", sif), check=True, capture_output=True, text=True).stdout
    (line,) = (line for line in listed.splitlines() if "FS (Squashfs/*System" in line)
    return int(line.split("|")[3].partition("-")[0])


def items(root: bytes) -> Iterator[tuple[str, Item]]:
    """Every path below the directory and the directory itself."""
    groups: dict[int, list[str]] = {}
    paths: list[tuple[bytes, os.stat_result]] = []
    for directory, directories, files in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in (*directories, *files))):
            if path == root or path != directory:
                status = os.lstat(path)
                paths.append((path, status))
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    groups.setdefault(status.st_ino, []).append(os.fsdecode(os.path.relpath(path, root)))
    for path, status in paths:
        names = " ".join(sorted(groups.get(status.st_ino, ())))
        yield os.fsdecode(os.path.relpath(path, root)), _item(path, status, names)


def _item(path: bytes, status: os.stat_result, names: str) -> Item:
    regular = stat.S_ISREG(status.st_mode)
    content = ""
    if regular:
        content = _digest(path)
    elif stat.S_ISLNK(status.st_mode):
        content = os.fsdecode(os.readlink(path))
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        content = f"{os.major(status.st_rdev)},{os.minor(status.st_rdev)}"
    attributes = sorted(os.listxattr(path, follow_symlinks=False))
    return Item(
        kind=KINDS[stat.S_IFMT(status.st_mode)],
        mode=f"{stat.S_IMODE(status.st_mode):04o}",
        owner=f"{status.st_uid}:{status.st_gid}",
        mtime=str(int(status.st_mtime)),
        size=status.st_size if regular else 0,
        content=content,
        names=names,
        xattrs=" ".join(f"{name}={os.getxattr(path, name, follow_symlinks=False).hex()}" for name in attributes),
    )


def _digest(path: bytes) -> str:
    """Of the blocks that are not all zeros, each with its place: holes cost nothing, and count as zeros."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        size, end = os.fstat(stream.fileno()).st_size, 0
        while end < size:
            try:
                start = os.lseek(stream.fileno(), end, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:  # nothing but a hole from here on
                break
            stream.seek(start)
            _add(digest, start, stream.read(BLOCK))
            end = start + BLOCK
    return digest.hexdigest()


def digest_of_data(data: bytes) -> str:
    """What an Item says as the content of a file with this data."""
    digest = hashlib.sha256()
    for start in range(0, len(data), BLOCK):
        _add(digest, start, data[start : start + BLOCK])
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", start: int, block: bytes) -> None:
    if block != ZEROS[: len(block)]:
        digest.update(b"%d:%d:" % (start, len(block)) + block)


if __name__ == "__main__":
    json.dump({path: asdict(item) for path, item in items(os.fsencode(sys.argv[1]))}, sys.stdout)
