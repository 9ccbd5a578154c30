"""Mutated squashfs images for the reader: nothing but ImageError may come out, in bounded memory and time.

    python tests/fuzz/squashfs.py [INPUTS] [SEED]

Prints what it has seen every 10 000 inputs, and ends with 1 at the first input that breaks a rule, which it keeps.
"""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from inputs import change, try_inputs

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.reader import SquashfsReader, tree_digest
from support.squashfs_trees import build, from_directory


def make_tree(top: Path) -> None:
    """A little of everything."""
    (top / "d" / "e").mkdir(parents=True)
    for i in range(30):
        (top / "d" / f"file {i}").write_bytes(b"%d" % i * i)
    (top / "large").write_bytes(random.Random(0).randbytes(5000) + bytes(9000) + b"x" * 9000)
    (top / "link").symlink_to("d/file 1")
    os.link(top / "large", top / "d" / "again")
    os.mkfifo(top / "fifo")
    os.setxattr(top / "large", "user.a", b"value")
    os.setxattr(top / "d", "user.b", bytes(100))


def seeds(directory: Path) -> list[bytes]:
    """Images of several writers, compressed and not."""
    top = directory / "tree"
    make_tree(top)
    images = []
    for options in ("-noI -noD -noF -noX -b 4096", "-noI -noX", "-comp zstd -b 4096", "-comp lz4", "-comp xz"):
        command = ["mksquashfs", str(top), str(directory / "image"), "-noappend", "-quiet", "-no-progress", "-nopad"]
        subprocess.run([*command, *options.split()], check=True, stdout=subprocess.DEVNULL)
        images.append((directory / "image").read_bytes())
    for compression in ("zstd:3", "gzip:1"):
        build(directory / "image", lambda writer: from_directory(writer, top), compression)
        image = (directory / "image").read_bytes()
        images.append(image[: int.from_bytes(image[40:48], "little")])
    return images


def mutate(chance: random.Random, data: bytearray) -> None:
    """Change a few places, the superblock and the tables after the data more often than the rest."""
    tables = int.from_bytes(data[64:72], "little")
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        where = chance.choice((0, tables, tables, tables, tables, tables, tables, 96))
        first = min(where, len(data) - 1)
        change(chance, data, chance.randrange(first, min(len(data), 96) if where == 0 else len(data)))


def use(image: SquashfsReader) -> None:
    """Everything that the reader offers."""
    for path in ("d/file 1", "link", "d/again", "nothing/there"):
        found = image.lookup(path)
        if found is not None and found.kind == "f":
            image.read(path, 100_000)
    list(image.entries(image.root))
    tree_digest(image)


def attempt(path: Path, action: Callable[[SquashfsReader], None]) -> str:
    """How one input ended."""
    with path.open("rb") as file:
        try:
            action(SquashfsReader(file, 0, path.stat().st_size))
        except ImageError as error:
            return " ".join(error.message.split()[:3])
    return "read"


def main(inputs: int, seed: int) -> int:
    """Run; return the exit status."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        images = seeds(Path(directory))
        path = Path(directory) / "input.squashfs"
        return try_inputs(path, images, mutate, lambda _: attempt(path, use), range(seed, seed + inputs))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
