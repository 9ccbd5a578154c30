"""The help and the load of a module whose image the driver of the site's GPUs does not run."""

from dataclasses import replace
from pathlib import Path

import pytest

from plans import HELP, plan, publish
from support.module_tool import ModuleTool, environment_modules, lmod

WHY = "rocm 5.6.1, and the driver here runs rocm >=6.1 <7.1"
NAME = "PyTorch/2.2.0-rocm-5.6.1"
SAID = f"{NAME} has {WHY}: expect it to fail on a GPU"


@pytest.mark.parametrize("tool", ["lmod", "environment modules", "lmod, tcl"])
def test_a_load_says_so_where_the_gpu_is(tool: str, shared_tmp: Path) -> None:
    """No machine of the tests has a GPU: a file stands in for its device, whose path is changed in the modulefile."""
    module_tool: ModuleTool = (environment_modules if tool == "environment modules" else lmod)(shared_tmp)
    syntax = "lua" if tool == "lmod" else "tcl"
    made = publish(
        plan(prefix=str(shared_tmp / "prefix"), binds=(), help=replace(HELP, driver=WHY), syntaxes=(syntax,))
    )
    steps = (f"module help {NAME} 2>&1", f"module load {NAME}", f"module unload {NAME}")

    shown, loaded, unloaded = module_tool.session(steps, made.modules)
    assert f"Not for the GPUs here: it has {WHY}." in " ".join(shown.stdout.split())
    assert (loaded.code, loaded.stderr, unloaded.stderr) == (0, "", "")

    modulefile = made.root / f"modulefile.{syntax}"
    modulefile.chmod(0o644)
    modulefile.write_text(modulefile.read_text().replace("/dev/kfd", __file__))
    _, loaded, unloaded = module_tool.session(steps, made.modules)
    assert (loaded.code, " ".join(loaded.stderr.split())) == (0, SAID)
    assert unloaded.stderr == ""


def test_a_module_that_the_driver_runs_says_nothing(shared_tmp: Path) -> None:
    made = publish(plan(prefix=str(shared_tmp / "prefix"), binds=()))
    for file in made.root.glob("modulefile.*"):
        assert "/dev/kfd" not in file.read_text()
        assert "GPUs here" not in file.read_text()
