"""`module load` of a sifmod module against a hand-written modulefile that sets the same variables, in one run.

    python benchmarks/module_load.py [--runs 40]

Target (docs/benchmarks.md): 1.15 times the hand-written one, under Lmod.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from command_line import small_image
from timing import side_by_side, table

LMOD = "/usr/share/lmod/lmod/libexec/lmod"
MODULES = "/opt/environment-modules/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
EASYCONFIG = """\
name: Bench
version: '1'
description: a module
image: {{filename: bench.sif, sources: ['{image}']}}
binds: [/usr, /etc, {{source: /nowhere, optional: true}}]
env: {{NCCL_DEBUG: WARN}}
wrappers: [sh, python]
"""
OURS = ("SIF", "RUNSCRIPTS", "SINGULARITY", "APPTAINER", "WITH_CONDA", "CONTAINERROOT", "EBROOT", "EBVERSION")


def loaded(tool: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the contract that a load sets, as a shell sees them."""
    shell = subprocess.run(tool, env=dict(environment), capture_output=True, text=True, check=True).stdout
    result = subprocess.run(
        ["bash", "-c", f"{shell}\nenv -0"], env=dict(environment), capture_output=True, text=True, check=True
    )
    pairs = (entry.partition("=") for entry in result.stdout.split("\0") if entry)
    return {name: value for name, _, value in pairs if name.startswith(OURS)}


def main() -> None:
    """Install one module, write its hand-made twin from what a load sets, and time both under both module systems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--deprecated", action="store_true", help="a module that is, so that its notice is read")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sifmod-bench-") as folder:
        root = Path(folder)
        shutil.copyfile(small_image(), root / "bench.sif")
        easyconfig = root / "Bench-1.yaml"
        easyconfig.write_text(EASYCONFIG.format(image=root / "bench.sif"))
        install = [
            str(Path(sys.executable).with_name("sifmod")),
            "install",
            "--skip-sanity-check",
            "-q",
            "--module-syntax",
            "both",
        ]
        clean = {"HOME": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SIFMOD_PREFIX": str(root / "tree")}
        subprocess.run([*install, "--skip-sanity-check", str(easyconfig)], env={**os.environ, **clean}, check=True)
        if arguments.deprecated:
            subprocess.run([install[0], "deprecate", "Bench/1"], env={**os.environ, **clean}, check=True)
        environment = {**clean, "MODULEPATH": f"{root / 'tree' / 'modules'}:{root / 'hand'}"}
        for name, tool in (("Lmod", [LMOD, "bash"]), ("Environment Modules", ["tclsh", MODULES, "bash"])):
            values = loaded([*tool, "load", "Bench/1"], environment)
            write_by_hand(root / "hand" / "Hand", values, root / "tree" / "software" / "Bench" / "1" / "bin")
            commands = {
                f"hand-written, {name}": [*tool, "load", "Hand/1"],
                f"sifmod's, {name}": [*tool, "load", "Bench/1"],
            }
            timed = side_by_side(commands, arguments.runs, environment)
            peer = timed[f"hand-written, {name}"]
            print(f"{len(values)} variables")
            print(table(list(timed.items()), peer, {f"sifmod's, {name}": 1.15}))


def write_by_hand(directory: Path, values: Mapping[str, str], wrappers: Path) -> None:
    """The modulefile that somebody would write: a setenv for each variable, and PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    lua = [f'setenv("{name}", [==[{value}]==])' for name, value in sorted(values.items())]
    (directory / "1.lua").write_text("\n".join([*lua, f'prepend_path("PATH", "{wrappers}")', ""]))
    tcl = [f"setenv {name} {{{value}}}" for name, value in sorted(values.items())]
    (directory / "1").write_text("\n".join(["#%Module", *tcl, f"prepend-path PATH {{{wrappers}}}", ""]))


if __name__ == "__main__":
    main()
