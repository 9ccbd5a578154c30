"""Small promises of the scripts of a module: each was once broken by fuzz/faults.py without a test that noticed."""

import re
from pathlib import Path

import pytest

from plans import plan
from sifmod.module.render import render, render_stub
from support.gpus import Machine
from support.runscripts import Runscripts, step

NAMES = re.compile(r"(?m)(?:^|[\s;({])([a-z_][a-z0-9_]*)=")
SPECIAL = {"proc", "dev", "sys"}  # which the tests set


def mine(script: Path) -> dict[str, str]:
    """A user's variables that happen to have the names of the script's own: their values mean nothing to it."""
    names = set(NAMES.findall(script.read_text())) - SPECIAL
    assert len(names) > 2
    return dict.fromkeys(names, "7.5:mine")


@pytest.mark.parametrize(
    "faked", ["nothing", "cuda", "cuda without torch", "odd driver", "rocm", "no library", "wrong torch"]
)
def test_gpu_check_heeds_no_variable_that_is_called_like_its_own(tmp_path: Path, faked: str) -> None:
    machine = Machine(tmp_path, "rocm" if faked == "rocm" else "cuda")
    if faked == "rocm":
        machine.amd()
        machine.torch(hip="6.3", count=1)
    elif faked != "nothing":
        machine.nvidia("odd" if faked == "odd driver" else "550.54.15", devices=2)
        if faked != "cuda without torch":
            machine.torch(cuda="12.4", count=0 if faked == "wrong torch" else 2)
        if faked == "no library":
            (tmp_path / "lib" / "libcuda.so.1").unlink()
    plain = machine.check()
    assert machine.check(("dash",), **mine(machine.script)) == plain


@pytest.mark.parametrize("name", ["conda-python-distributed", "torchrun-distributed", "conda-python-simple"])
def test_a_launcher_heeds_no_variable_that_is_called_like_its_own(tmp_path: Path, name: str) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for program in ("python", "torchrun"):
        (bin_ / program).write_text('#!/bin/sh\necho "$@"\nenv | grep "^[A-Z]" | grep -v "^OLDPWD=" | sort\n')
        (bin_ / program).chmod(0o755)
    scripts = Runscripts(tmp_path, plan(accelerator="rocm", runscript_env=(("A_B", "c d"),)))
    for of_slurm in ({}, step(0), step(2), step(2, "2,1")):
        env = {"PATH": f"{bin_}:/usr/bin:/bin", "MASTER_PORT": "1234", **of_slurm}
        if name == "torchrun-distributed":
            env["PET_RDZV_ID"] = "1"  # which is the number of the process else
        plain = scripts.run(name, "train.py", env=env).ok()
        assert "train.py" in plain.stdout
        assert scripts.run(name, "train.py", env={**env, **mine(scripts.directory / name)}) == plain


def test_no_lines_are_left_where_a_template_has_its_conditions() -> None:
    for wanted in (plan(), plan(runscripts=(), binds=(), env=(), family="mpi", conflict=("A",), depends_on=("B/1",))):
        for file in (*render(wanted, 1), *render_stub(wanted)):
            assert "\n\n\n" not in file.text or file.path.endswith(".py"), file.path
            assert not re.search(r"(?m)[ \t]$", file.text), file.path
    text = next(file.text for file in render(plan(), 1) if file.path == "modulefile.lua")
    told = [line for line in text.splitlines() if line.startswith("whatis(")]
    assert len(told) == 2
    assert "\n".join(told) in text
