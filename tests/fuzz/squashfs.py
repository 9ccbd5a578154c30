"""Mutated squashfs images for the reader: nothing but ImageError may come out, in bounded memory and time.

    python tests/fuzz/squashfs.py [INPUTS] [SEED]

Prints what it has seen every 10 000 inputs, and ends with 1 at the first input that breaks a rule, which it keeps.
"""

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import ImageError
from sifmod.image.squashfs.reader import SquashfsReader
from support.squashfs_trees import build, from_directory

SLOWEST = 10.0  # seconds of processor time that an input may take
LARGEST = 512 << 10  # KiB that the process may have


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
        at = chance.randrange(min(where, len(data) - 1), min(len(data), 96) if where == 0 else len(data))
        what = chance.randrange(6)
        if what == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what == 2:
            width = chance.choice((2, 4, 8))
            number = chance.choice((0, 1, 1 << 15, (1 << 16) - 1, len(data), 1 << 31))
            data[at : at + width] = number.to_bytes(8, "little")[:width]
        elif what == 3:
            data[at : at + 8] = data[(other := chance.randrange(len(data) - 8)) : other + 8]
        elif what == 4 and chance.random() < 0.05:
            del data[at:]
            return
        else:
            data[at : at + 4] = chance.randbytes(4)


def use(image: SquashfsReader) -> None:
    """Everything that the reader offers."""
    for path in ("d/file 1", "link", "d/again", "nothing/there"):
        found = image.lookup(path)
        if found is not None and found.kind == "f":
            image.read(path, 100_000)
    image.listdir("/")
    image.tree_digest()


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
    ends: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        images = seeds(Path(directory))
        path = Path(directory) / "input"
        for number in range(inputs):
            chance = random.Random(seed + number)
            data = bytearray(chance.choice(images))
            mutate(chance, data)
            path.write_bytes(data)
            before = time.process_time()
            try:
                ends[attempt(path, use)] += 1
            except Exception as error:
                broken = f"{type(error).__name__}: {error}"
            else:
                broken = ""
            took = time.process_time() - before
            slowest = max(slowest, took)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if broken or took > SLOWEST or memory > LARGEST:
                Path(f"squashfs-{seed + number}.bad").write_bytes(data)
                print(f"input {seed + number}: {broken or 'too much'}: {took:.1f} s, {memory} KiB")
                return 1
            if number % 10_000 == 9_999:
                seen = dict(ends.most_common(8))
                print(number + 1, f"slowest {slowest:.2f} s, memory {memory >> 10} MiB", seen, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
