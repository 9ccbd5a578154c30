"""Packages over an image: `sifmod add` beside a bare `uv pip install`, the start of Python, imports from a layer.

    python benchmarks/packages.py [--pairs 5] [--packages transformers lightning]

Needs the network once (the caches are warm when it is measured), the demo's image, and a runtime. What is compared:

* `sifmod add` of the packages, in a prefix without a layer, against `uv pip install --target DIRECTORY` of the same
  with the same cache, on the host. sifmod resolves against the image, installs, compiles all bytecode and packs it; uv
  resolves and installs, torch and all.
* `python -c pass` by the module's wrapper, with a layer and without (SIFMOD_LAYER=).
* the import of 5 000 modules from a layer, packed and as a directory (--unpacked).

The pairs alternate; the figures are medians.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from uv import find_uv_bin

from support.images import Images
from support.layered import NAME, Machine
from support.wheels import wheel

MODULES = 5000


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="how many pairs of runs (5)")
    parser.add_argument("--packages", nargs="*", default=["transformers", "lightning"], help="what is added")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod-bench-", ignore_cleanup_errors=True) as directory:
        machine = Machine(Path(directory))
        machine.wheels.mkdir()
        machine.install(Images().pytorch_sif)
        added(machine, given.packages, given.pairs)
        started(machine, given.pairs * 4)
        imported(machine, given.pairs)
    return 0


def added(machine: Machine, packages: list[str], pairs: int) -> None:
    """sifmod add against uv pip install, with a warm cache."""
    target = machine.top / "bare"
    python = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
    bare = (find_uv_bin(), "pip", "install", "--quiet", "--target", str(target), *python, *packages)

    certificates = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}

    def install() -> None:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(bare, env={**os.environ, "UV_CACHE_DIR": str(machine.top / "uv")}, check=True)

    def add() -> None:
        shutil.rmtree(machine.prefix / "layers", ignore_errors=True)
        machine.sifmod("add", NAME, *packages, env=certificates).ok()

    install()
    add()
    report(f"sifmod add {' '.join(packages)}", "uv pip install of the same", add, install, pairs)


def started(machine: Machine, pairs: int) -> None:
    """The start of Python with a layer and without."""
    shutil.rmtree(machine.prefix / "layers", ignore_errors=True)
    wheel(machine.wheels, "small")
    machine.add("small").ok()

    def start(layer: str) -> Callable[[], object]:
        return lambda: machine.python("pass", env={"SIFMOD_LAYER": layer})

    report("python -c pass with a layer", "without", start("default"), start(""), pairs)


def imported(machine: Machine, pairs: int) -> None:
    """Many modules from one file, and from a directory."""
    files = {f"many/m{number}.py": f"VALUE = {number}\n" for number in range(MODULES)}
    wheel(machine.wheels, "many", files=files)
    machine.add("many", "--layer", "packed").ok()
    machine.add("many", "--layer", "unpacked", "--unpacked").ok()
    code = f"import importlib\nfor n in range({MODULES}): importlib.import_module(f'many.m{{n}}')"

    def load(layer: str) -> Callable[[], object]:
        return lambda: machine.python(code, env={"SIFMOD_LAYER": layer}).ok()

    report(f"import of {MODULES} modules from one file", "from a directory", load("packed"), load("unpacked"), pairs)


def report(ours: str, theirs: str, do: Callable[[], object], other: Callable[[], object], pairs: int) -> None:
    """Alternate the two, and print the medians, their ratio and their difference."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        for which in (0, 1) if number % 2 else (1, 0):
            os.sync()
            begin = time.monotonic()
            (do, other)[which]()
            times[which].append(time.monotonic() - begin)
    first, second = map(statistics.median, times)
    compared = f"ratio {first / second:.2f}, {1000 * (first - second):+.0f} ms"
    print(f"{ours}: {first:.2f} s; {theirs}: {second:.2f} s; {compared}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
