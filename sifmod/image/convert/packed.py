"""Pack a directory of the host as a squashfs: the same files give the same bytes, at any place and time."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Directory, File, Node, Symlink
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter
from sifmod.image.disk import reading

_EPOCH = 1_577_836_800  # seconds since 1970, for every file: 2020, which is also valid in a zip
_PIECE = 1 << 20

Read = Callable[[], bytes]
More = dict[str, Read]  # path → content of files outside of the directory
_Tree = dict[str, "Read | _Tree"]


def pack(
    directory: Path, target: Path, compression: str, processors: int, more: Mapping[str, Read] | None = None
) -> tuple[int, int]:
    """Write the squashfs `target` of `directory` and `more`; returns its number of files and size in bytes.

    Every file belongs to root and is readable by all, and executable by all if it is by its owner. Raises ImageError
    for anything but files, links and directories, PermissionsError or FetchError for unreadable ones, OSError of
    `target`.
    """
    count = [0]
    with target.open("xb") as file, SquashfsWriter(file, 0, parse(compression), processors, _EPOCH) as writer:
        size = writer.close(_directory(writer, directory, _tree(more or {}), count))
    return count[0], size


def _tree(more: Mapping[str, Read]) -> _Tree:
    top: _Tree = {}
    for path, read in more.items():
        *above, name = path.split("/")
        tree = top
        for each in above:
            below = tree.setdefault(each, {})
            if callable(below):
                raise ImageError(f"{path} is inside a file")
            tree = below
        tree[name] = read
    return top


def _directory(writer: DataWriter, directory: Path | None, more: _Tree, count: list[int]) -> Directory:
    """A directory with its content on the host, if it exists, and more."""
    made = Directory(0o755, 0, 0, _EPOCH, ())
    here = {entry.name: entry for entry in os.scandir(directory)} if directory else {}
    for name in sorted(here.keys() | more.keys(), key=os.fsencode):
        entry, added = here.get(name), more.get(name, {})
        if callable(added):
            writer.start()
            writer.write(added())
            node: Node = File(0o644, 0, 0, _EPOCH, (), writer.finish())
        elif entry is None or entry.is_dir(follow_symlinks=False):
            node = _directory(writer, Path(entry.path) if entry else None, added, count)
        else:
            node = packed_node(writer, entry.path, _EPOCH)
        made.entries[os.fsencode(name)] = node
        count[0] += isinstance(node, File)
    return made


def packed_node(writer: DataWriter, path: str | Path, epoch: int) -> Node:
    """A file, a link, or a directory without content, as packed. Raises like `pack`."""
    with reading(Path(path)):
        status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Symlink(0o777, 0, 0, epoch, (), os.fsencode(os.readlink(path)))  # noqa: PTH115 (bytes)
    if stat.S_ISDIR(status.st_mode):
        return Directory(0o755, 0, 0, epoch, ())
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"{path} is neither a file nor a directory nor a link")
    writer.start()
    for piece in _pieces(path):
        writer.write(piece)
    return File(0o755 if status.st_mode & 0o100 else 0o644, 0, 0, epoch, (), writer.finish())


def _pieces(path: str | Path) -> Iterator[bytes]:
    with reading(Path(path)), open(path, "rb") as file:  # noqa: PTH123 (thousands of them)
        while piece := file.read(_PIECE):
            yield piece
