"""Packages over an image: `sifmod add` beside a bare `uv pip install`, the start of Python, imports from a layer.

    python benchmarks/packages.py [--pairs 5] [--packages transformers lightning]
    python benchmarks/packages.py --local [--pairs 5]
    python benchmarks/packages.py --starts [--pairs 5]

Needs the network once (the caches are warm when it is measured), the demo's image, and a runtime. What is compared:

* `sifmod add` of the packages, in a prefix without a layer, against `uv pip install --target DIRECTORY` of the same
  with the same cache, on the host. sifmod resolves against the image, installs, compiles all bytecode and packs it; uv
  resolves and installs, torch and all.
* the same without the import at the end (--no-import), which has a target of 5 s.
* with --local only these two, from a directory with the wheels that sifmod added, so that no network is measured: an
  index without caching headers makes uv download everything again.
* `python -c pass` by the module's wrapper, with a layer and without (SIFMOD_LAYER=); and beside it the runtime
  alone, with the same squashfs bound and without, which is what squashfuse's mount costs. Target: 10 ms above it.
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
import tomllib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from uv import find_uv_bin

from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.layer import IMAGE
from support.images import Images
from support.layered import NAME, Machine
from support.runtime import RUNTIME
from support.wheels import wheel

MODULES = 5000


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="how many pairs of runs (5)")
    parser.add_argument("--packages", nargs="*", default=["transformers", "lightning"], help="what is added")
    parser.add_argument("--starts", action="store_true", help="the starts alone, which need no network")
    parser.add_argument("--local", action="store_true", help="add alone, from a directory of wheels")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod-bench-", ignore_cleanup_errors=True) as directory:
        machine = Machine(Path(directory))
        machine.wheels.mkdir()
        machine.install(Images().pytorch_sif)
        if not given.starts:
            added(machine, given.packages, given.pairs, local=given.local)
        if not given.local:
            started(machine, given.pairs * 4)
        if not (given.starts or given.local):
            imported(machine, given.pairs)
    return 0


def added(machine: Machine, packages: list[str], pairs: int, *, local: bool) -> None:
    """sifmod add against uv pip install, with a warm cache; `local`: both from a directory of wheels."""
    target = machine.top / "bare"
    python = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
    bare = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(target), *python, *packages]
    places: tuple[str, ...] = ()

    certificates = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}

    def install() -> None:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(bare, env={**os.environ, "UV_CACHE_DIR": str(machine.top / "uv")}, check=True)

    def add(*options: str) -> None:
        shutil.rmtree(machine.prefix / "layers", ignore_errors=True)
        machine.sifmod("add", NAME, *packages, *places, *options, env=certificates).ok()

    add()
    if local:
        lock = tomllib.loads((machine.live() / "pylock.toml").read_text())
        names = [f"{one['name']}=={one['version']}" for one in lock["packages"]]
        pip = (sys.executable, "-m", "pip", "-qq", "download", "--no-deps", "--only-binary=:all:", "--dest")
        subprocess.run((*pip, str(machine.wheels), "--python-version", "3.11", *names), check=True)
        places = ("--no-index", "--find-links", str(machine.wheels))
        bare[-len(packages) :] = [*places, "--no-deps", *names]
        add()
    install()
    words, theirs = f"sifmod add {' '.join(packages)}", "uv pip install of the same"
    report(words, theirs, add, install, pairs)
    report(f"{words} --no-import", theirs, lambda: add("--no-import"), install, pairs)


def started(machine: Machine, pairs: int) -> None:
    """The start of Python with a layer and without."""
    shutil.rmtree(machine.prefix / "layers", ignore_errors=True)
    wheel(machine.wheels, "small")
    machine.add("small").ok()

    def start(layer: str) -> Callable[[], object]:
        return lambda: machine.python("pass", env={"SIFMOD_LAYER": layer})

    whole = report("python -c pass with a layer", "without", start("default"), start(""), pairs)
    layer = machine.live() / IMAGE
    bare = (RUNTIME.path, "-q", "exec")
    bind = ("--bind", f"{layer}:{LAYER_TARGET}:ro,image-src=/")
    python = (str(Images().pytorch_sif), "/opt/miniconda3/envs/pytorch/bin/python", "-c", "pass")

    def run_bare(*options: str) -> Callable[[], object]:
        return lambda: subprocess.run((*bare, *options, *python), env=machine.env(), check=True)

    mount = report("the runtime alone with the squashfs bound", "without", run_bare(*bind), run_bare(), pairs)
    print(f"the start of a layer above squashfuse's mount: {1000 * (whole - mount):+.0f} ms", flush=True)


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


def report(ours: str, theirs: str, do: Callable[[], object], other: Callable[[], object], pairs: int) -> float:
    """Alternate the two, and print the medians, their ratio and their difference, which it gives in seconds."""
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
    return first - second


if __name__ == "__main__":
    sys.exit(main())
