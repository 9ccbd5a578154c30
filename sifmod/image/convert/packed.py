"""A directory of the host as a squashfs: the same files give the same bytes, wherever and whenever they were made."""

import os
import stat
from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Directory, File, Node, Symlink
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter

_EPOCH = 1_577_836_800  # seconds since 1970, for every file: 2020, which a zip can say too
_PIECE = 1 << 20


def pack(directory: Path, target: Path, compression: str, processors: int) -> tuple[int, int]:
    """Write the squashfs `target` of what is in `directory`: how many files it has, and its size in bytes.

    Every file belongs to root, may be read by all, and run by all where its owner may. Raises ImageError for what is
    no file, link or directory, OSError as the file system does.
    """
    count = [0]
    with (
        target.open("xb") as file,
        SquashfsWriter(file, 0, parse(compression), processors, _EPOCH) as writer,
    ):
        size = writer.close(_directory(writer, directory, count))
    return count[0], size


def _directory(writer: DataWriter, directory: Path, count: list[int]) -> Directory:
    made = Directory((0o755, 0, 0, _EPOCH, ()))
    for entry in sorted(os.scandir(directory), key=lambda one: os.fsencode(one.name)):
        made.entries[os.fsencode(entry.name)] = _node(writer, entry, count)
    return made


def _node(writer: DataWriter, entry: "os.DirEntry[str]", count: list[int]) -> Node:
    if entry.is_symlink():
        return Symlink((0o777, 0, 0, _EPOCH, ()), os.fsencode(os.readlink(entry.path)))  # noqa: PTH115 (bytes)
    if entry.is_dir():
        return _directory(writer, Path(entry.path), count)
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"{entry.path} is neither a file nor a directory nor a link")
    count[0] += 1
    with open(entry.path, "rb") as file:  # noqa: PTH123 (thousands of them)
        writer.start()
        while piece := file.read(_PIECE):
            writer.write(piece)
    return File((0o755 if status.st_mode & 0o100 else 0o644, 0, 0, _EPOCH, ()), writer.finish())
