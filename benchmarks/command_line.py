"""How fast `sifmod` answers, as ratios to `python -c pass` in the same run.

    python benchmarks/command_line.py [--runs 30]

Targets (docs/benchmarks.md): `--version` 3.5, `list` of 300 modules 12, a repeated `install` 12.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import side_by_side, table

MODULES = 300
EASYCONFIG = """\
name: Bench
version: '{number}'
description: one of many
image: {{filename: bench.sif, sources: ['{image}']}}
wrappers: [sh]
"""


def main() -> None:
    """Install 300 modules of one small image into a fresh tree, then time the verbs in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--image", type=Path, help="a small SIF (default: the tests' own, built when missing)")
    arguments = parser.parse_args()
    sifmod = str(Path(sys.executable).with_name("sifmod"))
    with tempfile.TemporaryDirectory(prefix="sifmod-bench-") as folder:
        root = Path(folder)
        image = root / "bench.sif"
        shutil.copyfile(arguments.image or small_image(), image)
        environment = {**os.environ, "SIFMOD_PREFIX": str(root / "tree"), "HOME": folder, "SIFMOD_LINK": "reference"}
        paths = []
        for number in range(MODULES):
            paths.append(root / f"Bench-{number}.yaml")
            paths[-1].write_text(EASYCONFIG.format(number=number, image=image))
        install = [sifmod, "install", "-q", "--skip-sanity-check"]
        subprocess.run([*install, *map(str, paths)], env=environment, check=True, stdout=subprocess.DEVNULL)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "sifmod --version": [sifmod, "--version"],
            f"sifmod list ({MODULES} modules)": [sifmod, "list"],
            "sifmod install, nothing to do": [*install, str(paths[150])],
        }
        timed = side_by_side(commands, arguments.runs, environment)
    targets = dict(zip(commands, (1.0, 3.5, 12.0, 12.0), strict=True))
    print(table(list(timed.items()), timed["python -c pass"], targets))


def small_image() -> Path:
    """The tests' smallest SIF, built into build/ on first use."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.images import Images

    return Images().tiny_sif


if __name__ == "__main__":
    main()
