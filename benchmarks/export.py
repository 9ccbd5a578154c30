"""An image in other forms: `sifmod export` against the way by hand, in one run.

    python benchmarks/export.py [--runs 3] [SIF]

A squashfs for enroot by hand: `apptainer sif dump`, unsquashfs, and mksquashfs with enroot's own options (lzo, data
not compressed: `ENROOT_SQUASH_OPTIONS`). A directory: `apptainer build --sandbox`. Where root runs this the peers run
as the tests' ordinary user, because Apptainer does not unpack as root without all capabilities. The SIF is the PyTorch
image's (scripts/build-demo-image) unless one is given.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measured import Measured, measure, on_file_system
from support.command import ROOT, SIFMOD, run
from support.images import Images, converted, made
from support.user import ordinary_user

BUILD = ROOT / "build" / "benchmarks"
MB = 1_000_000
BY_HAND = """\
set -e
number=$(apptainer sif list "$1" | awk '/Squashfs/ { print $1; exit }' FS='|')
apptainer sif dump $number "$1" > squashfs
unsquashfs -q -n -user-xattrs -d tree squashfs
mksquashfs tree image.sqsh -quiet -no-progress -all-root -comp lzo -noD
rm -rf squashfs tree
"""
TOOLS: dict[str, tuple[str | Path, ...]] = {
    "sqsh": (*SIFMOD, "export", "-q", "image.sif", "--to", "sqsh", "-o", "image.sqsh"),
    "sqsh by hand": ("sh", "-c", BY_HAND, "sh", "image.sif"),
    "sandbox": (*SIFMOD, "export", "-q", "image.sif", "--to", "sandbox", "-o", "tree"),
    "apptainer build --sandbox": ("apptainer", "-s", "build", "--sandbox", "tree", "image.sif"),
    "oci-archive": (*SIFMOD, "export", "-q", "image.sif", "--to", "oci-archive", "-o", "image.tar"),
}


def once(tool: str, sif: Path, top: Path) -> Measured:
    """One run in an empty directory."""
    user = ordinary_user(top / "home")
    with tempfile.TemporaryDirectory(dir=top) as name:
        work = Path(name)
        (work / "image.sif").symlink_to(sif)
        user.own(work)
        user_words = ("setpriv", f"--reuid={user.user.uid}", f"--regid={user.user.gid}", "--clear-groups")
        ours = TOOLS[tool][0] == SIFMOD[0]
        words = (*(user_words if os.geteuid() == 0 and not ours else ()), "env", f"--chdir={work}", *TOOLS[tool])
        names = ("HOME", "TMPDIR", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SIFMOD_PREFIX")
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **dict.fromkeys(names, str(work))}
        measured = measure(
            [str(word) for word in words], environment, BUILD / "last-run.log", partial(on_file_system, work)
        )
        subprocess.run(("chmod", "-R", "u+rwX", work), check=True)
    return measured


def main(runs: int, given: Path | None) -> int:
    """Run; return the exit status."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod-bench-", ignore_cleanup_errors=True) as directory:
        top = Path(directory)
        top.chmod(0o755)
        (top / "home").mkdir()
        source = given or made(BUILD / "pytorch.sif", partial(converted, layout=Images().pytorch_layout))
        sif = top / "image.sif"
        run(("cp", "--reflink=auto", source, sif)).ok()
        measured: dict[str, list[Measured]] = {tool: [] for tool in TOOLS}
        for _ in range(runs):
            for tool, so_far in measured.items():
                so_far.append(once(tool, sif, top))
    print(f"{source.stat().st_size / MB:.0f} MB; medians and highest peaks of {runs}\n")
    print(f"{'':28}" + "".join(f"{head:>12}" for head in ("wall s", "CPU s", "memory MB", "disk MB")))
    walls = {tool: statistics.median(one.wall for one in all_runs) for tool, all_runs in measured.items()}
    for tool, all_runs in measured.items():
        cpu = statistics.median(one.cpu for one in all_runs)
        peaks = (max(one.largest for one in all_runs) / MB, max(one.disk for one in all_runs) / MB)
        cells = (f"{walls[tool]:.2f}", f"{cpu:.2f}", *(f"{peak:.0f}" for peak in peaks))
        print(f"{tool:28}" + "".join(f"{cell:>12}" for cell in cells))
    by_hand, sandbox = (("sqsh by hand", "sqsh"), ("apptainer build --sandbox", "sandbox"))
    print(f"\nby hand / sqsh {walls[by_hand[0]] / walls[by_hand[1]]:.1f}, ", end="")
    print(f"apptainer / sandbox {walls[sandbox[0]] / walls[sandbox[1]]:.1f}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("sif", nargs="?", type=Path)
    arguments = parser.parse_args()
    sys.exit(main(arguments.runs, arguments.sif))
