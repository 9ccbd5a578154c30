"""What a conversion would take on more processors: the CPU seconds of each of its threads, and what follows from them.

    python benchmarks/scaling.py [--runs 3] [--images pytorch,large-layers]

An image goes from a real registry on the loopback address into an empty store, in this process, with the threads that
sifmod starts on a machine of 2, 4, 8 or 16 processors. With P processors a conversion takes at least the CPU seconds
of its longest thread, and at least those of all threads divided by P; the larger of the two is the wall time to expect.
What other processes and the kernel's own threads do is left out, and so is waiting.

Images: PyTorch (scripts/build-demo-image) and eight gzip layers of 200 MB each (made here, kept in build/benchmarks).
"""

import argparse
import io
import os
import random
import statistics
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import image_conversion
from many_files import packed
from sifmod.image.settings import Settings
from support.fetching import Prefix, plan
from support.oci import write_layout

PROCESSORS = (2, 4, 8, 16)
TARGET = 0.25  # of the time on two processors, on sixteen
LAYERS, LAYER, FILE = 8, 200_000_000, 4_000_000  # layers, and bytes of a layer and of a file in it, uncompressed
INTERVAL = 0.02  # seconds between two looks at the threads


@dataclass(frozen=True)
class Threads:
    """CPU seconds of each thread of one conversion, by what it does."""

    seconds: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.seconds)

    @property
    def longest(self) -> tuple[str, float]:
        return max(self.seconds, key=lambda named: named[1])

    def wall(self, processors: int) -> float:
        return max(self.longest[1], self.total / processors)


@dataclass
class Watch:
    """Looks at this process's threads again and again, those that are not Python's included."""

    seconds: dict[int, float] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def look(self) -> None:
        for thread in threading.enumerate():
            if thread.native_id is not None:
                self.names[thread.native_id] = thread.name
        for task in os.listdir("/proc/self/task"):
            try:
                spent = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0]) / 1e9
            except OSError:  # it has ended
                continue
            self.seconds[int(task)] = spent

    def since(self, before: Mapping[int, float], own: int) -> Threads:
        spent = {task: seconds - before.get(task, 0.0) for task, seconds in self.seconds.items() if task != own}
        return Threads(tuple((self.names.get(task, "not Python's"), seconds) for task, seconds in spent.items()))


@contextmanager
def watched() -> Iterator[list[Threads]]:
    """The threads of what is done inside."""
    watch, done, found = Watch(), threading.Event(), list[Threads]()
    watch.look()
    before = dict(watch.seconds)

    def run() -> None:
        while not done.wait(INTERVAL):
            watch.look()

    watcher = threading.Thread(target=run, name="watch")
    watcher.start()
    try:
        yield found
    finally:
        watch.look()
        done.set()
        watcher.join()
        found.append(watch.since(before, watcher.native_id or 0))


def large_layers() -> Path:
    made = image_conversion.BUILD / "large-layers.oci"
    if not made.exists():
        unfinished = made.with_name(f"unfinished-{made.name}-{os.getpid()}")
        write_layout(unfinished, tuple(packed(tar) for tar in tars()))
        unfinished.rename(made)
    return made


def tars() -> Iterator[bytes]:
    """Files of words and of noise in turn, which compress to about half."""
    chance = random.Random(3)
    words = [chance.randbytes(chance.randint(3, 14)).hex().encode() for _ in range(20_000)]
    for layer in range(LAYERS):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for number in range(LAYER // FILE):
                noise = chance.randbytes(FILE // 4)
                text = b" ".join(chance.choices(words, k=FILE // 16))
                info = tarfile.TarInfo(f"opt/layer-{layer}/file-{number}")
                info.size, info.mtime = FILE, 1_700_000_000
                tar.addfile(info, io.BytesIO((noise + text * 2)[:FILE].ljust(FILE)))
        yield stream.getvalue()


IMAGES = {"pytorch": image_conversion.IMAGES["pytorch"], "large-layers": large_layers}


def convert(reference: str, processors: int) -> Threads:
    with tempfile.TemporaryDirectory(dir=image_conversion.BUILD, prefix="run-") as name:
        prefix = Prefix(Path(name) / "prefix")
        with watched() as found:
            prefix.fetch(plan(reference), settings=Settings(processors=processors))
    return found[0]


def show(name: str, reference: str, runs: int) -> None:
    print(f"\n{name}: medians of {runs} runs\n")
    print(f"{'processors':>10}{'sum CPU s':>11}{'longest s':>11}  {'which':14}{'wall s':>8}{'of two':>8}")
    two = 0.0
    for processors in PROCESSORS:
        outcomes = [convert(reference, processors) for _ in range(runs)]
        middle = sorted(outcomes, key=lambda threads: threads.wall(processors))[len(outcomes) // 2]
        wall = statistics.median(threads.wall(processors) for threads in outcomes)
        two = two or wall
        which, longest = middle.longest
        print(f"{processors:10}{middle.total:11.2f}{longest:11.2f}  {which[:13]:14}{wall:8.2f}{wall / two:8.2f}")
        if processors == PROCESSORS[-1]:
            print(f"\ntarget on {processors}: {TARGET}. Its threads, CPU s:")
            for kind, seconds in sorted(middle.seconds, key=lambda named: -named[1])[:12]:
                print(f"  {kind:24}{seconds:8.2f}")


def main(images: tuple[str, ...], runs: int) -> None:
    image_conversion.BUILD.mkdir(parents=True, exist_ok=True)
    with image_conversion.pushed({name: IMAGES[name]() for name in images}) as references:
        for name, reference in references.items():
            show(name, reference, runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--images", default=",".join(IMAGES), help="which, with commas between")
    given = parser.parse_args()
    main(tuple(given.images.split(",")), given.runs)
