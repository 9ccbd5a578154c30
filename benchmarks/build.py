"""An image of one's own: `sifmod install` of a recipe against `apptainer build` of the same definition, in one run.

    python benchmarks/build.py [--runs 3] [--packages transformers] [--conda]

The base is the PyTorch image (scripts/build-demo-image) as `apptainer build` makes a SIF of it; with `--conda` one with
a real conda prefix (scripts/build-conda-image), which is made when it is not there. Packages, a file and a
variable come upon it. The wheels are downloaded once; from then on all works without a network: pip in `%post` is given
them by a bind, uv by UV_FIND_LINKS. Every run starts with an empty prefix, cache and home. pip compiles no bytecode,
because sifmod adds none. Where root runs this the peers run as the tests' ordinary user, because Apptainer does not
unpack a base as root without all capabilities.

cotainr (from PyPI) needs conda and the network for packages. So the rest of its work is measured: a base without a
conda environment, unpacked and packed again. sifmod is also run once more: nothing is built then. The temporary space
is the peak of what is on the disk, less the SIF. For sifmod it is counted in its directories, the base's copy in the
store among it; for the peers, which unpack too many files to count them, on the whole file system, where nothing else
should write meanwhile. Last, each SIF imports what was added.

Needs what the tests need (scripts/provision). Images and wheels are kept under build/benchmarks.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measured import Measured, in_directory, measure, on_file_system
from support.command import ROOT, SIFMOD, run
from support.images import Images, made
from support.user import OrdinaryUser, ordinary_user

BUILD = ROOT / "build" / "benchmarks"
PREFIXES = {False: "/opt/miniconda3/envs/pytorch", True: "/opt/conda"}  # whether the base is conda's
MB = 1_000_000
GZIP, ZSTD, COTAINR, OURS, AGAIN = (
    "apptainer build",
    "apptainer build, zstd 3",
    "cotainr, no packages",
    "sifmod",
    "again",
)
FASTER = 5.0  # times as fast as each `apptainer build`, which sifmod promises
DEFINITION = """\
Bootstrap: localimage
From: {base}
%files
  note.txt /opt/note.txt
%environment
  export HF_HOME=/tmp/hf
%post
  {python} -m pip install --no-index --find-links /mnt --no-compile {packages}
"""
RECIPE = """\
name: Demo
version: '1'
accelerator: none
path+: [{prefix}/bin]
image:
  build:
    from: {base}
    pip: [{packages}]
    files: {{note.txt: /opt/note.txt}}
    env: {{HF_HOME: /tmp/hf}}
"""
ZSTD_ARGUMENTS = "--mksquashfs-args=-comp zstd -Xcompression-level 3"


class Runs:
    """The tools, the base and the wheels, and a directory for each run, which the ordinary user may enter."""

    def __init__(self, top: Path, packages: tuple[str, ...], *, conda: bool) -> None:
        self.top = top
        self.packages = packages
        self.prefix = PREFIXES[conda]
        self.user: OrdinaryUser = ordinary_user(top / "home")
        BUILD.mkdir(parents=True, exist_ok=True)
        self.wheels = self._shared("wheels", made(BUILD / f"wheels-of-{'-'.join(packages)}", self._download))
        self.cotainr = self._shared("cotainr", made(BUILD / "cotainr", self._cotainr))
        made_by_conda = run((sys.executable, ROOT / "scripts/build-conda-image")).ok().stdout.strip() if conda else ""
        layout = self._shared("layout", Path(made_by_conda) if conda else Images().pytorch_layout)
        self.base = top / "base" / "base.sif"
        self.base.parent.mkdir()
        self.user.own(self.base.parent)
        self._as_user(("apptainer", "-s", "build", ZSTD_ARGUMENTS, self.base, f"oci:{layout}"), self.base.parent)

    def once(self, tool: str, keep: Path) -> Measured:
        """One run with nothing there before; the SIF goes to `keep`."""
        with tempfile.TemporaryDirectory(dir=self.top) as name:
            work, log = Path(name), BUILD / "last-run.log"
            for directory in ("tmp", "cache"):
                (work / directory).mkdir()
            (work / "note.txt").write_text("a note\n")
            known = {"base": self.base, "python": f"{self.prefix}/bin/python", "prefix": self.prefix}
            (work / "image.def").write_text(DEFINITION.format(**known, packages=" ".join(self.packages)))
            (work / "Demo-1.yaml").write_text(RECIPE.format(**known, packages=", ".join(self.packages)))
            self.user.own(work)
            environment = self._environment(work)
            if tool in (OURS, AGAIN):
                command = (*SIFMOD, "install", "--quiet", work / "Demo-1.yaml")
                if tool == AGAIN:
                    run(command, env=environment).ok()
                measured = measure(list(map(str, command)), environment, log, partial(in_directory, work))
                (sif,) = (
                    path
                    for path in (work / "prefix/images").rglob("*.sif")
                    if path.stat().st_size != self.base.stat().st_size
                )
            else:
                sif = work / "result.sif"
                words = list(map(str, self._peer(tool, work, sif)))
                measured = measure(self._prefix(words), environment, log, partial(on_file_system, work))
            shutil.move(sif, keep)
        return measured

    def _peer(self, tool: str, work: Path, sif: Path) -> tuple[str | Path, ...]:
        if tool == COTAINR:
            start = f"import os, sys; os.chdir({str(work)!r}); sys.path.insert(0, {str(self.cotainr)!r})"
            program = f"{start}; from cotainr.cli import main; main()"
            return "/usr/bin/python3", "-c", program, "build", "--accept-licenses", "--base-image", self.base, sif
        options = (ZSTD_ARGUMENTS,) if tool == ZSTD else ()
        command = ("apptainer", "-s", "build", "--bind", f"{self.wheels}:/mnt", *options, sif, "image.def")
        return ("env", f"--chdir={work}", *command)

    def _prefix(self, command: list[str]) -> list[str]:
        who = self.user.user
        as_user = ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups"]
        return [*(as_user if os.geteuid() == 0 else []), *command]

    def _as_user(self, command: tuple[str | Path, ...], work: Path) -> None:
        for directory in ("tmp", "cache"):
            (work / directory).mkdir()
        self.user.own(work)
        subprocess.run(self._prefix(list(map(str, command))), env=self._environment(work), check=True)

    def _environment(self, work: Path) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(work),
            "LANG": "C.UTF-8",
            "TMPDIR": str(work / "tmp"),
            **{f"APPTAINER_{name}": str(work / name[:-3].lower()) for name in ("CACHEDIR", "TMPDIR")},
            "SIFMOD_PREFIX": str(work / "prefix"),
            "UV_FIND_LINKS": str(self.wheels),
            "UV_NO_INDEX": "1",
            "UV_CACHE_DIR": str(work / "cache" / "uv"),
        }

    def _shared(self, name: str, path: Path) -> Path:
        """A copy that the ordinary user can read, by hard links where that is possible."""
        subprocess.run(("cp", "-r", "--reflink=auto", path, self.top / name), check=True)
        return self.top / name

    def _download(self, to: Path) -> None:
        words = ("download", "-q", "-d", str(to), "--python-version", "3.11", "--only-binary", ":all:", *self.packages)
        subprocess.run((sys.executable, "-m", "pip", *words), check=True)

    def _cotainr(self, to: Path) -> None:
        subprocess.run((sys.executable, "-m", "pip", "install", "-q", "--target", to, "cotainr"), check=True)


def imported(sif: Path, tools: Runs) -> str:
    """What a SIF says of what was added."""
    packages = tools.packages
    names = ", ".join(package.replace("-", "_") for package in packages)
    said = f"os.environ['HF_HOME'], open('/opt/note.txt').read().strip(), {packages[0]}.__version__"
    program = f"import os, {names}; print({said})"
    environment = {**os.environ, "APPTAINER_USERNS": "1"}
    command = ("apptainer", "-s", "exec", "--no-home", sif, f"{tools.prefix}/bin/python", "-c", program)
    return run(command, env=environment).ok().stdout.strip()


def main(runs: int, packages: tuple[str, ...], *, conda: bool) -> int:
    """Run; return the exit status."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod-bench-", ignore_cleanup_errors=True) as directory:
        top = Path(directory)
        top.chmod(0o755)
        (top / "home").mkdir()
        tools = Runs(top, packages, conda=conda)
        measured: dict[str, list[Measured]] = {tool: [] for tool in (GZIP, ZSTD, COTAINR, OURS, AGAIN)}
        sifs = {tool: BUILD / f"build-{number}.sif" for number, tool in enumerate(measured)}
        for _ in range(runs):
            for tool, so_far in measured.items():
                so_far.append(tools.once(tool, sifs[tool]))
        print(f"base {tools.base.stat().st_size / MB:.0f} MB; medians and highest peaks of {runs}\n")
        print(f"{'':26}" + "".join(f"{head:>14}" for head in ("wall s", "CPU s", "peak MB", "temporary MB", "SIF MB")))
        walls = {tool: statistics.median(one.wall for one in all_runs) for tool, all_runs in measured.items()}
        for tool, all_runs in measured.items():
            size = sifs[tool].stat().st_size
            cpu, memory = statistics.median(one.cpu for one in all_runs), max(one.largest for one in all_runs)
            disk = max(max(0, one.disk - size) for one in all_runs)
            cells = (f"{walls[tool]:.2f}", f"{cpu:.2f}", *(f"{each / MB:.0f}" for each in (memory, disk, size)))
            print(f"{tool:26}" + "".join(f"{cell:>14}" for cell in cells))
        said = {tool: imported(sif, tools) for tool, sif in sifs.items() if tool != COTAINR}
        print(f"\nall of them: {said[OURS]}")
        assert len(set(said.values())) == 1, said
        for sif in sifs.values():
            sif.unlink()
        ratios = {tool: walls[tool] / walls[OURS] for tool in (GZIP, ZSTD, COTAINR)}
        print("times as fast: " + ", ".join(f"{ratio:.1f} ({tool})" for tool, ratio in ratios.items()))
        return 0 if min(ratios[GZIP], ratios[ZSTD]) >= FASTER else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--packages", nargs="*", default=["transformers"], help="what is added")
    parser.add_argument("--conda", action="store_true", help="upon a conda prefix")
    given = parser.parse_args()
    sys.exit(main(given.runs, tuple(given.packages), conda=given.conda))
