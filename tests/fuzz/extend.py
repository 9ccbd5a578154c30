"""Bases that are damaged or forged, and bases of random trees by mksquashfs with random options, extended.

    python tests/fuzz/extend.py [INPUTS] [SEED]

Of each hundred inputs one is a random tree, whose result must be the tree with the changes, as unsquashfs has it. The
others are mutated: nothing but ImageError may come out, in bounded memory and time, and what comes out has each file of
its base just as it was, unreadable ones among them. Ends with 1 at the first input that breaks a rule, which it keeps.
"""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inputs import try_inputs
from squashfs import mutate, seeds

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import ImageError
from sifmod.image.convert.extend import Addition, extend
from sifmod.image.convert.squashfs.reader import SquashfsReader
from support.extending import EPOCH, apply, base_of, contents, sif_of, squashfs_in, without_metadata
from support.squashfs_trees import snapshot

ADDITION = Addition(
    documents=(("d/new", b"new" * 2000), ("opt/a/b", b"b")),
    removed=("d/file 1", "large", "d/e"),
    env=(("A", "b"),),
    epoch=EPOCH,
)
COMPRESSIONS = ("gzip", "lz4", "zstd", "xz")
FLAGS = (
    *("-noI", "-noD", "-noF", "-noX", "-no-fragments", "-always-use-fragments", "-no-duplicates", "-no-exports"),
    *("-no-sparse", "-nopad"),
)


def facts(image: SquashfsReader) -> Iterator[tuple[bytes, tuple[object, ...]]]:
    """What each path is; a file that cannot be read is that."""
    for path, stat, _ in image.walk():
        try:
            data: object = [piece for piece in image.data(stat) if piece] if stat.kind == "f" else None
        except ImageError:
            data = "damaged"
        yield path, (stat.kind, stat.mode, stat.uid, stat.gid, stat.mtime, stat.target, stat.device, data)


def damaged(path: Path) -> str:
    """How one damaged base ended."""
    base, new = path.with_name("base.sif"), path.with_name("new.sif")
    new.unlink(missing_ok=True)
    try:
        extend(sif_of(path, base), ADDITION, new, 2, memory=256 << 20)
    except ImageError as error:
        assert not new.exists()
        return " ".join(error.message.split()[:3])
    before, after = dict(facts(squashfs_in(base))), dict(facts(squashfs_in(new)))
    gone = {p for p in before for name in ADDITION.removed if p == name.encode() or p.startswith(f"{name}/".encode())}
    for at, fact in before.items():
        if at not in gone and at != b"d/new" and not at.startswith(b".singularity.d") and not at.startswith(b"opt"):
            assert after[at] == fact, f"{at!r}: {fact} became {after[at]}"
    return "extended"


def random_tree(top: Path, chance: random.Random) -> list[str]:
    """A few hundred files of random sizes and kinds; their paths."""
    paths, folders = list[str](), [top]
    top.mkdir()
    for number in range(chance.randrange(1, 300)):
        path = (
            min(chance.sample(folders, min(2, len(folders))), key=lambda each: len(str(each)))
            / f"{chance.choice('abc')}{number}{'x' * chance.choice((0, 0, 0, 100))}"
        )
        kind = chance.randrange(12)
        if kind == 0:
            path.mkdir(mode=chance.choice((0o755, 0o700, 0o1777)))
            folders.append(path)
        elif kind == 1:
            path.symlink_to(chance.choice(("..", "a/b", "nowhere", "x/" * 200)))
        elif kind == 2 and paths:
            os.link(top / chance.choice(paths), path, follow_symlinks=False)
            paths.append(str(path.relative_to(top)))
            continue
        elif kind == 3:
            os.mkfifo(path)
        else:
            size = chance.choice((0, 1, chance.randrange(5000), chance.randrange(300_000), 131072, 1 << 20))
            parts = [chance.randbytes(size // 3), bytes(size // 3), b"text" * (size // 12)]
            chance.shuffle(parts)
            path.write_bytes(b"".join(parts))
            path.chmod(chance.choice((0o644, 0o755, 0o4711, 0)))
            if chance.random() < 0.05:
                os.setxattr(path, "user.x", chance.randbytes(chance.randrange(3000)))
        if not path.is_dir() or path.is_symlink():
            paths.append(str(path.relative_to(top)))
        os.utime(path, (EPOCH - number, EPOCH - number), follow_symlinks=False)
    return paths


def whole(number: int) -> str:
    """One random tree, by mksquashfs, extended at random."""
    chance = random.Random(number)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        here = Path(name)
        paths = random_tree(here / "tree", chance)
        options = [flag for flag in FLAGS if chance.random() < 0.2]
        options += ["-comp", chance.choice(COMPRESSIONS), "-b", str(4096 << chance.randrange(9))]
        base = base_of(here / "tree", here / "base.sif", *options)
        if any(fact[-1] == "damaged" for _, fact in facts(squashfs_in(base))):
            return "mksquashfs 4.5.1 wrote lz4 that nothing reads"
        removed = tuple(chance.sample(paths, min(len(paths), chance.randrange(20))))
        files = []
        for n in range(chance.randrange(40)):
            (here / f"{n}").write_bytes(chance.randbytes(chance.choice((0, 3, 5000, 140_000))) + bytes(n * 9000))
            files.append((f"new{n % 3}/{n}", here / f"{n}"))
        addition = Addition(files=tuple(files), removed=removed, epoch=EPOCH)
        extend(base, addition, here / "new.sif", chance.randrange(1, 4))
        contents(base, here / "expected")
        apply(here / "expected", addition)
        found = without_metadata(contents(here / "new.sif", here / "found"))
        if found != without_metadata(snapshot(here / "expected")):
            shutil.copy(base, f"extend-{number}.bad")
            raise AssertionError(f"{options}: another tree")
    return "whole"


def main(inputs: int, seed: int) -> int:
    """Run; return the exit status."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "input.squashfs"
        images = seeds(Path(directory))
        numbers = range(seed, seed + inputs)
        return try_inputs(path, images, mutate, lambda n: damaged(path) if n % 100 else whole(n), numbers)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
