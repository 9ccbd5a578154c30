"""Bases for `extend`, and what its result has to be: the same changes made to a directory by the system's own calls."""

import os
import shutil
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from sifmod.image.convert.extend import Addition
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.convert.squashfs.reader import SquashfsReader
from support.squashfs_trees import mksquashfs, noise, snapshot, unpacked

EPOCH = 1_700_000_000
METADATA = b"/.singularity.d"


def sif_of(squashfs: Path, to: Path, objects: Sequence[DataObject] = ()) -> Path:
    """A SIF around a squashfs."""
    offset = partition_offset(objects)
    with to.open("w+b") as file:
        file.seek(offset)
        file.write(squashfs.read_bytes())
        write_header(file, objects, squashfs.stat().st_size, "amd64", EPOCH)
    return to


def rich_tree(top: Path) -> Path:
    """Files of many sizes, some of them alike, holes, links of both kinds, devices, a socket, attributes, odd names."""
    (top / "usr" / "lib" / "deep").mkdir(parents=True)
    (top / "many").mkdir()
    for i in range(300):
        (top / "many" / f"a rather long name to fill the listing {i}").write_bytes(b"%d" % i * i)
    for size in (0, 1, 4095, 4096, 4097, 131071, 131072, 131073, 1 << 20, (1 << 20) + 1, 3_000_000):
        (top / f"noise{size}").write_bytes(noise(size))
        (top / f"zeros{size}").write_bytes(bytes(size))
    (top / "usr" / "lib" / "same").write_bytes(noise(1 << 20))
    (top / "mixed").write_bytes(noise(5000) + bytes(3 << 20) + noise(5000))
    (top / "lib").symlink_to("usr/lib")
    (top / "absolute").symlink_to("/usr/lib/deep")
    (top / "out").symlink_to("../../../usr")
    (top / "dangling").symlink_to("nowhere")
    os.link(top / "mixed", top / "many" / "mixed again")
    os.link(top / "noise1", top / "usr" / "lib" / "one")
    os.link(top / "lib", top / "many" / "lib again", follow_symlinks=False)
    os.mkfifo(top / "fifo", 0o640)
    socket.socket(socket.AF_UNIX).bind(str(top / "socket"))
    os.mknod(top / "device", 0o600 | stat.S_IFCHR, os.makedev(4095, 1_048_575))
    os.mknod(top / "block", 0o660 | stat.S_IFBLK, os.makedev(8, 1))
    (top / os.fsdecode(b"\xff")).mkdir(mode=0o1777)
    os.chown(top / "noise4096", 1000, 4_000_000_000)
    for name, mode in (("noise4095", 0o4755), ("noise4097", 0o2755), ("zeros4097", 0o6711), ("many", 0o2775)):
        os.chmod(top / name, mode)
    os.setxattr(top / "noise1", "user.large", noise(3500))
    os.setxattr(top / "mixed", "user.large", noise(3500))
    os.setxattr(top / "usr", "trusted.overlay.opaque", b"y")
    for path in sorted(top.rglob("*"), reverse=True):
        os.utime(path, (EPOCH - 1, EPOCH - 1), follow_symlinks=False)
    return top


def base_of(top: Path, to: Path, *options: str) -> Path:
    """A SIF of a directory, by mksquashfs."""
    squashfs = mksquashfs(top, to.with_suffix(".squashfs"), *options)
    return sif_of(squashfs, to)


def apply(top: Path, addition: Addition) -> None:
    """What `addition` says, done to the directory `top`, whose directories keep their times."""
    times = {
        path: path.stat().st_mtime_ns for path in (top, *top.rglob("*")) if path.is_dir() and not path.is_symlink()
    }
    for name in addition.removed:
        path = top / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
        else:
            continue
        while path.parent != top and not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()
    times = {path: time for path, time in times.items() if path.is_dir()}
    for name, here in sorted(addition.files):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if here.is_symlink():
            path.unlink(missing_ok=True)
            path.symlink_to(here.readlink())
        elif here.is_dir():
            path.mkdir(exist_ok=True)
        else:
            path.unlink(missing_ok=True)
            shutil.copyfile(here, path)
            path.chmod(0o755 if here.stat().st_mode & 0o100 else 0o644)
    for name, content in sorted(addition.documents):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).unlink(missing_ok=True)
        (top / name).write_bytes(content)
    for path in (top, *top.rglob("*")):
        if path.is_dir() and not path.is_symlink() and path not in times:
            path.chmod(0o755)
            os.utime(path, (EPOCH, EPOCH))
    added = {path for path, _ in (*addition.files, *addition.documents)}
    for name in added:
        if not (top / name).is_dir() or (top / name).is_symlink():
            os.utime(top / name, (EPOCH, EPOCH), follow_symlinks=False)
    for path, time in times.items():
        os.utime(path, ns=(time, time))


def without_metadata(facts: dict[bytes, tuple[object, ...]]) -> dict[bytes, tuple[object, ...]]:
    """A snapshot without what `extend` writes of itself."""
    return {path: fact for path, fact in facts.items() if not path.startswith(METADATA)}


def partition(sif: Path) -> tuple[Path, int, int]:
    """The file, and where its root file system is."""
    primary = read_sif(sif).primary
    return sif, primary.offset, primary.size


def taken_out(sif: Path, to: Path) -> Path:
    """A SIF's root file system as a file of its own."""
    path, offset, size = partition(sif)
    with path.open("rb") as file:
        file.seek(offset)
        to.write_bytes(file.read(size))
    return to


def contents(sif: Path, to: Path) -> dict[bytes, tuple[object, ...]]:
    """A snapshot of a SIF's root file system, unpacked by unsquashfs."""
    path, offset, _ = partition(sif)
    return snapshot(unpacked(path, to, offset))


def squashfs_in(sif: Path) -> SquashfsReader:
    path, offset, size = partition(sif)
    return SquashfsReader(path.open("rb"), offset, size)
