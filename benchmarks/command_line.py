"""How fast `sifmod` answers, as ratios to `python -c pass` in the same run.

    python benchmarks/command_line.py [--runs 30]

Targets (docs/benchmarks.md): `--version` 3.5, `search` of what ships 15, `list` of 300 modules 12, a repeated `install`
12, whatever the file is called, also after an edit that changes nothing; TAB 150 ms; and in seconds for
1 000 modules of 40 images:
`install` of all again 2, `install -D` of all 3.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import side_by_side, table

MODULES, MANY, IMAGES = 300, 1000, 40
EASYCONFIG = """\
name: {name}
version: '{number}'
description: one of many
image: {{filename: bench.sif, sources: ['{image}']}}
wrappers: [sh]
"""


def main() -> None:
    """Install the modules of a few small images into fresh trees, then time the verbs in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--image", type=Path, help="a small SIF (default: the tests' own, built when missing)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sifmod-bench-") as folder:
        image = arguments.image or small_image()
        few(Path(folder, "few"), image, arguments.runs)
        many(Path(folder, "many"), image, max(3, arguments.runs // 6))


def few(root: Path, image: Path, runs: int) -> None:
    """One command each, in a tree of 300 modules."""
    paths, environment = installed(root, image, [("Bench", str(number)) for number in range(MODULES)])
    odd = root / "what a site calls it.yaml"
    odd.write_text(EASYCONFIG.format(name="Odd", number=1, image=root / "0.sif"))
    subprocess.run([*install(), str(odd)], env=environment, check=True, stdout=subprocess.DEVNULL)
    edited = paths[100]
    edited.write_text(f"# a comment\n{edited.read_text()}")
    subprocess.run([*install(), str(edited)], env=environment, check=True, stdout=subprocess.DEVNULL)
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "sifmod --version": [sifmod(), "--version"],
        "sifmod search, what ships": [sifmod(), "search", "pytorch", "2.4", "rocm"],
        f"sifmod list ({MODULES} modules)": [sifmod(), "list"],
        "sifmod install, nothing to do": [*install(), str(paths[150])],
        "... a file of another name": [*install(), str(odd)],
        "... after a comment was added": [*install(), str(edited)],
        "sifmod --help": [sifmod(), "--help"],
        "sifmod install --help": [sifmod(), "install", "--help"],
        "TAB, a module": tab("sifmod uninstall "),
        "TAB, an easyconfig": tab("sifmod install PyTorch-2.2"),
        "TAB, a variant": tab("sifmod install PyTorch-2.2.0.yaml --variant "),
    }
    timed = side_by_side(commands, runs, environment)
    targets = dict(zip(commands, (1.0, 3.5, 15.0, 12.0, 12.0, 12.0, 12.0), strict=False))
    print(table(list(timed.items()), timed["python -c pass"], targets))


def many(root: Path, image: Path, runs: int) -> None:
    """All at once, in a tree of 1 000 modules."""
    names = [(f"Bench{number % IMAGES}", str(number)) for number in range(MANY)]
    paths, environment = installed(root, image, names)
    commands = {
        f"sifmod install, {MANY} again (2 s)": [*install(), *map(str, paths)],
        f"sifmod install -D, {MANY} (3 s)": [sifmod(), "install", "-D", *map(str, paths)],
    }
    for name, timed in side_by_side(commands, runs, environment).items():
        print(f"{name:34} {timed.median:10.2f} s")


def installed(root: Path, image: Path, names: list[tuple[str, str]]) -> tuple[list[Path], dict[str, str]]:
    """The easyconfigs of these modules, which are installed, and the environment for the verbs."""
    root.mkdir()
    environment = {**os.environ, "SIFMOD_PREFIX": str(root / "tree"), "HOME": str(root), "SIFMOD_LINK": "reference"}
    paths = []
    for number, (name, version) in enumerate(names):
        source = root / f"{number % IMAGES}.sif"
        if not source.exists():
            shutil.copyfile(image, source)
        paths.append(root / f"{name}-{version}.yaml")
        paths[-1].write_text(EASYCONFIG.format(name=name, number=version, image=source))
    subprocess.run([*install(), *map(str, paths)], env=environment, check=True, stdout=subprocess.DEVNULL)
    return paths, environment


def sifmod() -> str:
    """The program beside this interpreter."""
    return str(Path(sys.executable).with_name("sifmod"))


def install() -> list[str]:
    """Its verb, which says nothing."""
    return [sifmod(), "install", "-q", "--skip-sanity-check"]


def tab(line: str) -> list[str]:
    """What a shell runs at the end of a line."""
    words = (f"COMP_WORDS={line}", f"COMP_CWORD={line.count(' ')}", "_SIFMOD_COMPLETE=bash_complete")
    return ["env", *words, sifmod()]


def small_image() -> Path:
    """The tests' smallest SIF, built into build/ on first use."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.images import Images

    return Images().tiny_sif


if __name__ == "__main__":
    main()
