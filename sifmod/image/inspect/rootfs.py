"""A Rootfs: the files of an image, read without starting it. Links are only followed inside the image."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.image.convert.sif.header import SifInfo, read_sif
from sifmod.image.convert.squashfs.blocks import Stat
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.reader import tree_digest as digest_of
from sifmod.image.disk import reading

_WHENCE = ("/.singularity.d/Singularity", "/.singularity.d/labels.json")  # name the source of an image, not its content
USUAL_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# commands of Python that people start from a shell, in the order of a wrapper list
PYTHON_COMMANDS = (
    "python", "python3", "pip", "pip3", "ipython", "jupyter", "jupyter-lab", "torchrun", "accelerate", "deepspeed",
    "lightning", "vllm", "sglang", "ray", "trtllm-build", "hf", "huggingface-cli", "tensorboard",
)  # fmt: skip
_EXECUTABLE = 0o111


def tree_digest(path: Path) -> str:
    """The SHA-256, as hexadecimal, of the root file system of the SIF at `path`; reads all of it.

    Definition and labels are excluded, so that the same image has the same digest wherever it was fetched.

    Raises ImageError for a SIF that is damaged or whose file system is not a squashfs.
    """
    with open_rootfs(path, read_sif(path)) as rootfs:
        found = (rootfs.reader.lookup(name, follow=False) for name in _WHENCE)
        return digest_of(rootfs.reader, {stat.number for stat in found if stat and stat.kind == "f"})


class Rootfs:
    """Answers for absolute paths; empty or False for missing ones. Every method raises ImageError for damage.

    `reader` is for code that walks through all files.
    """

    def __init__(self, reader: SquashfsReader) -> None:
        self.reader = reader

    def entries(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted; () for anything else. A byte that is not UTF-8 becomes a half surrogate."""
        return tuple(name for name, _ in self._listed(path))

    def programs(self, path: str) -> tuple[str, ...]:
        """The names of all programs in a directory, sorted, links to programs among them."""
        names = []
        for name, reference in self._listed(path):
            stat = self.reader.stat(reference)
            if _is_program(stat) or (stat.kind == "l" and self.is_program(f"{path}/{name}")):
                names.append(name)
        return tuple(names)

    def _listed(self, path: str) -> Iterator[tuple[str, int]]:
        found = self.reader.lookup(path)
        if found is not None and found.kind == "d":
            yield from ((os.fsdecode(name), reference) for name, reference in self.reader.entries(found))

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory, or a link to one."""
        found = self.reader.lookup(path)
        return found is not None and found.kind == "d"

    def is_file(self, path: str) -> bool:
        """Whether `path` is a regular file, or a link to one."""
        found = self.reader.lookup(path)
        return found is not None and found.kind == "f"

    def is_program(self, path: str) -> bool:
        """Whether `path` is an executable file, or a link to one."""
        return _is_program(self.reader.lookup(path))

    def resolved(self, path: str) -> str:
        """The path with every link followed inside the image; "" if the target does not exist."""
        way = self.reader.way(path)
        return "/" + "/".join(os.fsdecode(name) for name, _ in way[1:]) if way else ""

    def read(self, path: str, most: int) -> str:
        """The first `most` bytes of a regular file as text; "" for anything else."""
        return self.data(path, most).decode("utf-8", "replace")

    def data(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a regular file; b"" for anything else."""
        return self.reader.read(path, most) if self.is_file(path) else b""


@contextmanager
def open_rootfs(path: Path, info: SifInfo) -> Iterator[Rootfs]:
    """The files of the SIF at `path`, whose checked header is `info`, for the duration of the block.

    Raises ImageError if its file system is damaged or unsupported, and what `reading` raises, also for the block.
    """
    with reading(path), path.open("rb") as file:
        yield Rootfs(SquashfsReader(file, info.primary.offset, info.primary.size))


def _is_program(stat: Stat | None) -> bool:
    return stat is not None and stat.kind == "f" and bool(stat.mode & _EXECUTABLE)


def search_path(path: str) -> tuple[str, ...]:
    """The absolute directories of the PATH `path`, in order and once each; USUAL_PATH if it has none."""
    found = (directory.rstrip("/") or "/" for directory in path.split(":") if directory.startswith("/"))
    return tuple(dict.fromkeys(found)) or USUAL_PATH


def find_command(rootfs: Rootfs, name: str, directories: Iterable[str]) -> str:
    """The path of `name` in the first of `directories` that has it, or ""; an absolute name is only checked."""
    candidates = [name] if name.startswith("/") else [f"{directory}/{name}" for directory in directories]
    return next((path for path in candidates if rootfs.is_program(path)), "")
