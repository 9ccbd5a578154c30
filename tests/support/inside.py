"""The files of an image as the code that looks into images sees them: a squashfs, and a SIF, made in a moment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sifmod.image.convert.inode import Directory, File, Symlink
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter
from sifmod.image.inspect.rootfs import Rootfs

EPOCH = 1735787045  # 2025-01-02T03:04:05Z
PROGRAM = "#!"
"""What a program's text begins with."""

Files = Mapping[str, str | bytes | None]
"""Text by path: a program where it begins so, `-> target` for a link, None for an empty directory."""


def programs(*paths: str) -> dict[str, str | bytes | None]:
    """Programs at these paths."""
    return dict.fromkeys(paths, PROGRAM)


def of_files(files: Files) -> Callable[[DataWriter], Directory]:
    """What makes a tree of them, with the directories above."""

    def make(writer: DataWriter) -> Directory:
        root = Directory(0o755, 0, 0, EPOCH, ())
        for path, text in files.items():
            *above, name = path.strip("/").encode().split(b"/")
            at = root
            for each in (*above, name) if text is None else above:
                at = at.entries.setdefault(each, Directory(0o755, 0, 0, EPOCH, ()))  # type: ignore[assignment]
            if text is not None:
                at.entries[name] = _node(writer, text.encode() if isinstance(text, str) else text)
        return root

    return make


def _node(writer: DataWriter, data: bytes) -> File | Symlink:
    if data.startswith(b"-> "):
        return Symlink(0o777, 0, 0, EPOCH, (), data[3:])
    mode = 0o755 if data.startswith((PROGRAM.encode(), b"\x7fELF")) else 0o644
    return File(mode, 0, 0, EPOCH, (), writer.add(data))


@contextmanager
def rootfs(path: Path, files: Files) -> Iterator[Rootfs]:
    """The files of an image; `path` is where its squashfs is written."""
    with path.open("w+b") as file:
        with SquashfsWriter(file, 0, parse("lz4"), 1, EPOCH) as writer:
            size = writer.close(of_files(files)(writer))
        yield Rootfs(SquashfsReader(file, 0, size))


def sif(
    path: Path, files: Files, objects: Sequence[DataObject] = (), *, compression: str = "lz4", created: int = EPOCH
) -> Path:
    """A SIF of these files and data objects."""
    offset = partition_offset(objects)
    with path.open("w+b") as file:
        with SquashfsWriter(file, offset, parse(compression), 1, EPOCH) as writer:
            size = writer.close(of_files(files)(writer))
        write_header(file, objects, size, "amd64", created)
    return path
