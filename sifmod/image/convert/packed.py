"""Pack a directory of the host as a squashfs: the same files give the same bytes, at any place and time."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Directory, File, Node, Symlink
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter
from sifmod.image.disk import reading

_EPOCH = 1_577_836_800  # seconds since 1970, for every file: 2020, which is also valid in a zip
_PIECE = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Read = Callable[[bytes], object]


class More(Protocol):
    """Files that are made from those of a packed directory, and packed after them."""

    def reader(self, path: str) -> Read | None:
        """A function to call with each piece of the directory's file `path`; None if its content is not needed."""

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The path and the content of each file; called after all files of the directory were read."""


def pack(directory: Path, target: Path, compression: str, processors: int, more: More | None = None) -> tuple[int, int]:
    """Write the squashfs `target` of `directory` and `more`; returns its number of files and size in bytes.

    Every file belongs to root and is readable by all, and executable by all if it is by its owner. Raises ImageError
    for anything but files, links and directories, PermissionsError or FetchError for unreadable ones, OSError of
    `target`.
    """
    with target.open("xb") as file, SquashfsWriter(file, 0, parse(compression), processors, _EPOCH) as writer:
        packing = _Packing(writer, more)
        root = packing.directory(directory, "")
        for path, content in more.files() if more else ():
            packing.add(root, path, content)
        size = writer.close(root)
    return packing.count, size


class _Packing:
    """A tree that is being written; `count` is the number of its files."""

    def __init__(self, writer: DataWriter, more: More | None) -> None:
        self.count = 0
        self._writer = writer
        self._more = more

    def directory(self, directory: str | Path, inside: str) -> Directory:
        """A directory with its content; `inside`: its path in the squashfs, ending with a slash unless empty."""
        made = _new_directory()
        with reading(Path(directory)):
            entries = sorted(os.scandir(directory), key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            path = inside + entry.name
            if entry.is_dir(follow_symlinks=False):
                node: Node = self.directory(entry.path, f"{path}/")
            else:
                read = self._more.reader(path) if self._more and entry.is_file(follow_symlinks=False) else None
                node = packed_node(self._writer, entry.path, _EPOCH, read)
            made.entries[os.fsencode(entry.name)] = node
            self.count += isinstance(node, File)
        return made

    def add(self, root: Directory, path: str, content: bytes) -> None:
        """Add a file with this content, and the directories above it. Raises ImageError if one of these is a file."""
        *above, name = os.fsencode(path).split(b"/")
        for part in above:
            below = root.entries.setdefault(part, _new_directory())
            if not isinstance(below, Directory):
                raise ImageError(f"{path} is inside a file")
            root = below
        self.count += name not in root.entries
        root.entries[name] = File(0o644, 0, 0, _EPOCH, (), self._writer.add(content))


def _new_directory() -> Directory:
    return Directory(0o755, 0, 0, _EPOCH, ())


def packed_node(writer: DataWriter, path: str | Path, epoch: int, read: Read | None = None) -> Node:
    """The node of a file, a link, or a directory (without content); `read` gets a file's pieces. Raises like `pack`."""
    with reading(Path(path)):
        status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Symlink(0o777, 0, 0, epoch, (), os.fsencode(os.readlink(path)))  # noqa: PTH115 (bytes)
    if stat.S_ISDIR(status.st_mode):
        return Directory(0o755, 0, 0, epoch, ())
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"{path} is neither a file nor a directory nor a link")
    writer.start()
    for piece in _pieces(path, status.st_size):
        writer.write(piece)
        if read:
            read(piece)
    return File(0o755 if status.st_mode & 0o100 else 0o644, 0, 0, epoch, (), writer.finish())


def _pieces(path: str | Path, size: int) -> Iterator[bytes]:
    """The content of a file of about `size` bytes."""
    with reading(Path(path)):
        descriptor = os.open(path, _READ)
        try:
            while piece := os.read(descriptor, min(size + 1, _PIECE)):
                yield piece
        finally:
            os.close(descriptor)
