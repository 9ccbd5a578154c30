"""What a wrapper adds to a bare `apptainer exec` of the same interpreter by its path: medians over many runs.

    python benchmarks/wrapper.py [--runs 100]

Without and with the module loaded, because what a load sets costs Apptainer a little in either way. Needs what the
tests need (scripts/provision); the image is the tests' Python image, which is built when it is not there yet.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from plans import plan
from sifmod.module.plan import Bind, ImagePlan, Plan, Runtime, Wrapper
from support import module_tool
from support.generation import find, make_generation
from support.images import Images
from support.wrappers import loaded
from timing import side_by_side

PYTHON = "/opt/miniconda3/envs/pytorch/bin/python"
LIMIT = 5  # milliseconds that a wrapper may add


def module(prefix: str) -> Plan:
    """A module with what shipped ones have."""
    return plan(
        prefix=prefix,
        image=ImagePlan("python.sif", (), (), None, None, "amd64", "copy", False),
        runtime=Runtime("apptainer", find("apptainer")),
        binds=tuple(Bind(f"/not/here/{name}", f"/{name}", optional=True) for name in ("pfs", "scratch", "flash")),
        env=(("LD_PRELOAD", ""), ("PIP_USER", "0"), ("PYTHONNOUSERSITE", "1"), ("PYTHONPATH", "")),
        wrappers=(Wrapper("python", ("python",)),),
    )


def main(runs: int) -> None:
    image = Images().python_sif
    with tempfile.TemporaryDirectory() as directory:
        wanted = module(directory)
        wrapper = make_generation(wanted, image) / "bin" / "python"
        commands = {
            "bare": (wanted.runtime.path, "exec", str(image), PYTHON, "-c", "pass"),
            "wrapper": (str(wrapper), "-c", "pass"),
        }
        plain = {**os.environ, "APPTAINER_USERNS": "1"}
        within = {**plain, **loaded(module_tool.lmod(Path(directory)), wanted)}
        print(f"{'median ms of ' + str(runs):24} {'apptainer exec':>16} {'wrapper':>10} {'it adds':>10} {'limit':>7}")
        for name, environment in (("module not loaded", plain), ("module loaded", within)):
            timed = side_by_side(commands, runs, environment)
            pairs = zip(timed["wrapper"].seconds, timed["bare"].seconds, strict=True)
            added = statistics.median(wrapped - bare for wrapped, bare in pairs)
            medians = (timed["bare"].median * 1000, timed["wrapper"].median * 1000)
            print(f"{name:24} {medians[0]:16.1f} {medians[1]:10.1f} {added * 1000:+10.1f} {LIMIT:7.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    main(parser.parse_args().runs)
