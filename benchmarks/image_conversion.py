"""A docker reference to a SIF: `sifmod fetch` against `apptainer pull` and `apptainer build` with zstd, in one run.

    python benchmarks/image_conversion.py [--runs 3] [--images pytorch,many-files]

Two images, from a real registry on the loopback address: PyTorch (scripts/build-demo-image, 1.09 GB unpacked) and
150 000 small files in 40 layers (many_files.py). Every run starts with an empty prefix, cache and home; the registry's
blobs are in the page cache. The temporary space is the peak of what is on the disk, less the SIF: for sifmod counted in
its directories, for apptainer, which unpacks too many files to count them ten times a second, on the whole file
system, where nobody else should write meanwhile. After that `import torch` from each SIF, timed inside the container
(without the container's own start), with a cold page cache where root can drop it, else with the SIF's pages dropped.
Last, what is in PyTorch's SIFs: sifmod's, of both compressions, have to hold what `apptainer pull`'s holds, file by
file, or it ends with what differs.

Needs what the tests need (scripts/provision). Images and registry are kept under build/benchmarks.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import many_files
from measured import Measured, in_directory, measure, on_file_system
from support.command import ROOT, SIFMOD, run
from support.conversion import compared, content
from support.departures import unexplained
from support.images import Images
from support.registry import Registry

BUILD = ROOT / "build" / "benchmarks"
PYTHON = "/opt/miniconda3/envs/pytorch/bin/python"
IMPORT = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"
MB = 1_000_000
PULL, BUILD_ZSTD, OURS, OURS_GZIP = "apptainer pull", "apptainer build, zstd 3", "sifmod", "sifmod, gzip"
# what sifmod promises: times as fast as, share of the SIF's size, bytes of memory
FASTER = {PULL: {"pytorch": 16.0, "many-files": 12.0}, BUILD_ZSTD: {"pytorch": 4.5}}
LARGER, MEMORY = 1.05, 250 * MB


@dataclass(frozen=True)
class Tool:
    """One way from a reference to a SIF; REFERENCE and SIF stand for themselves in the command."""

    name: str
    command: tuple[str, ...]
    few_files: bool = False  # in its temporary directories


TOOLS = (
    Tool(PULL, ("apptainer", "pull", "--no-https", "SIF", "REFERENCE")),
    Tool(
        BUILD_ZSTD,
        ("apptainer", "build", "--no-https", "--mksquashfs-args=-comp zstd -Xcompression-level 3", "SIF", "REFERENCE"),
    ),
    Tool(OURS, (*SIFMOD, "fetch", "REFERENCE", "-o", "SIF"), few_files=True),
    Tool(OURS_GZIP, (*SIFMOD, "fetch", "--compression", "gzip", "REFERENCE", "-o", "SIF"), few_files=True),
)


@dataclass(frozen=True)
class Outcome:
    """All runs of one tool on one image, and the size of its SIF."""

    runs: tuple[Measured, ...]
    size: int

    @property
    def wall(self) -> float:
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        return statistics.median(run.cpu for run in self.runs)

    @property
    def memory(self) -> int:
        return max(run.memory for run in self.runs)

    @property
    def largest(self) -> int:
        return max(run.largest for run in self.runs)

    @property
    def disk(self) -> int:
        return max(max(0, run.disk - self.size) for run in self.runs)


def compressed(layout: Path) -> Path:
    """The same image with gzip layers, as registries have it."""
    made = BUILD / f"{layout.name}-gzip"
    if not made.exists():
        unfinished = made.with_name(f"unfinished-{made.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run(("skopeo", "--insecure-policy", "copy", "--dest-compress", f"oci:{layout}", f"oci:{unfinished}")).ok()
        unfinished.rename(made)
    return made


def many() -> Path:
    made = BUILD / "many-files.oci"
    if not made.exists():
        unfinished = made.with_name(f"unfinished-{made.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        many_files.write(unfinished)
        unfinished.rename(made)
    return made


IMAGES = {"pytorch": lambda: compressed(Images().pytorch_layout), "many-files": many}


def convert(tool: Tool, reference: str, keep: Path) -> Measured:
    """One run with nothing there before; the SIF goes to `keep`."""
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="run-") as name:
        work = Path(name)
        (work / "tmp").mkdir()
        sif = work / "result.sif"
        command = [{"REFERENCE": reference, "SIF": str(sif)}.get(word, word) for word in tool.command]
        used = partial(in_directory if tool.few_files else on_file_system, work)
        measured = measure(command, environment(work), BUILD / "last-run.log", used)
        sif.replace(keep)
    return measured


def environment(work: Path) -> dict[str, str]:
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "APPTAINER_CACHEDIR": str(work / "cache"),
        "APPTAINER_TMPDIR": str(work / "tmp"),
        "TMPDIR": str(work / "tmp"),
        "SIFMOD_PREFIX": str(work / "prefix"),
        "LANG": "C.UTF-8",
    }
    return own | ({"APPTAINER_USERNS": "1"} if os.geteuid() == 0 else {})


def import_seconds(sifs: Mapping[str, Path], runs: int) -> dict[str, float]:
    """Median seconds of a cold `import torch`, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in sifs}
    for _ in range(runs):
        for name, sif in sifs.items():
            forget(sif)
            with tempfile.TemporaryDirectory(dir=BUILD) as work:
                command = ("apptainer", "-s", "exec", "--contain", sif, PYTHON, "-c", IMPORT)
                seconds[name].append(float(run(command, env=environment(Path(work))).ok().stdout))
    return {name: statistics.median(values) for name, values in seconds.items()}


def forget(sif: Path) -> None:
    """Drop the page cache; of the SIF alone where that is all that is allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        with sif.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def show(outcomes: Mapping[str, Outcome], imports: Mapping[str, float]) -> None:
    columns = ("wall s", "CPU s", "peak MB", "largest MB", "temporary MB", "SIF MB", "import s")
    print(f"{'':26}" + "".join(f"{column:>14}" for column in columns))
    for name, outcome in outcomes.items():
        sizes = (outcome.memory, outcome.largest, outcome.disk, outcome.size)
        cells = [f"{outcome.wall:.2f}", f"{outcome.cpu:.2f}", *(f"{size / MB:.0f}" for size in sizes)]
        cells.append(f"{imports[name]:.2f}" if name in imports else "")
        print(f"{name:26}" + "".join(f"{cell:>14}" for cell in cells))


def compare(image: str, outcomes: Mapping[str, Outcome], blobs: int) -> None:
    """What was promised against what came out."""
    print(f"\n{'':52}{'it is':>10}{'target':>10}")

    def line(what: str, value: str, target: str) -> None:
        print(f"{what:52}{value:>10}{target:>10}")

    for ours in (OURS, OURS_GZIP):
        outcome = outcomes[ours]
        for peer, times in FASTER.items():
            target = f"{times[image]:.1f}" if ours == OURS and image in times else ""
            line(f"{ours}: times as fast as {peer}", f"{outcomes[peer].wall / outcome.wall:.1f}", target)
        line(f"{ours}: size of the SIF by apptainer pull's", f"{outcome.size / outcomes[PULL].size:.3f}", f"{LARGER}")
        line(f"{ours}: MB of memory", f"{outcome.largest / MB:.0f}", f"{MEMORY / MB:.0f}")
        line(f"{ours}: MB of temporary disk (target: the blobs)", f"{outcome.disk / MB:.0f}", f"{blobs / MB:.0f}")


def check_equality(sifs: Mapping[str, Path]) -> None:
    """End with what sifmod's SIFs hold otherwise than `apptainer pull`'s."""
    theirs = content(sifs[PULL])
    for ours in (OURS, OURS_GZIP):
        found = unexplained(compared(content(sifs[ours]), theirs))
        assert not found, (ours, sorted(found))
    print(f"\n{len(theirs)} paths, each the same in all SIFs of {OURS} and {PULL}")


@contextmanager
def pushed(layouts: Mapping[str, Path]) -> Iterator[dict[str, str]]:
    """References to the layouts, in a registry that runs inside."""
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="registry-") as directory:
        registry = Registry(Path(directory) / "registry")
        registry.start()
        try:
            yield {name: registry.push_layout(layout, f"benchmark/{name}:1") for name, layout in layouts.items()}
        finally:
            registry.stop()


def main(images: tuple[str, ...], runs: int) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    layouts = {name: IMAGES[name]() for name in images}
    with pushed(layouts) as references:
        for name, layout in layouts.items():
            compare_on(name, references[name], layout, runs)


def compare_on(name: str, reference: str, layout: Path, runs: int) -> None:
    """All tools in turn, `runs` times."""
    sifs = {tool.name: BUILD / f"{name} {tool.name}.sif" for tool in TOOLS}
    measured: dict[str, list[Measured]] = {tool.name: [] for tool in TOOLS}
    for _ in range(runs):
        for tool in TOOLS:
            measured[tool.name].append(convert(tool, reference, sifs[tool.name]))
    outcomes = {tool: Outcome(tuple(runs), sifs[tool].stat().st_size) for tool, runs in measured.items()}
    blobs = sum(path.stat().st_size for path in (layout / "blobs" / "sha256").iterdir())
    print(f"\n{name}: {blobs / MB:.0f} MB of compressed blobs; medians and highest peaks of {runs}\n")
    show(outcomes, import_seconds(sifs, 3) if name == "pytorch" else {})
    compare(name, outcomes, blobs)
    if name == "pytorch":
        check_equality(sifs)
    for sif in sifs.values():
        sif.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--images", default=",".join(IMAGES), help="which, with commas between")
    given = parser.parse_args()
    main(tuple(given.images.split(",")), given.runs)
