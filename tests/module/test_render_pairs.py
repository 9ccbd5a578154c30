"""What is rendered for one accelerator, syntax or field beside what is rendered for its twin."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from plans import HELP, plan
from sifmod.errors import ModuleError
from sifmod.module.plan import Bind, Wrapper
from sifmod.module.render import render
from support.module_tool import ModuleTool
from support.runscripts import Runscripts


def texts(**changes: object) -> dict[str, str]:
    return {file.path: file.text for file in render(plan(**changes), 3)}


@pytest.mark.parametrize(
    ("flag", "device"), [("nv", "/dev/nvidiactl"), ("nvccli", "/dev/nvidiactl"), ("rocm", "/dev/kfd")]
)
def test_the_device_that_each_flag_needs(flag: str, device: str) -> None:
    launcher = texts(gpu_flags=(flag,))["share/launch.sh"]
    assert f"  if [ -e {device} ]; then sifmod_set _{flag.upper()} 1; fi\n" in launcher
    assert launcher.count("sifmod_set _") == 1


CACHES = {
    "any": {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"},
    "rocm": {"MIOPEN_USER_DB_PATH": "miopen", "MIOPEN_CUSTOM_CACHE_DIR": "miopen", "AITER_JIT_DIR": "aiter"},
    "cuda": {"CUDA_CACHE_PATH": "cuda"},
    "none": {},
}


@pytest.mark.parametrize("accelerator", ["rocm", "cuda", "none"])
def test_each_cache_has_its_directory(accelerator: str, tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator=accelerator))
    found = runscripts.environment({"SLURM_JOB_ID": "4711"}, caches=True)
    names = {name for words in CACHES.values() for name in words}
    place = {name: Path(found[name]).parts[-1] for name in names & found.keys()}
    assert place == CACHES["any"] | CACHES[accelerator]
    assert len({Path(found[name]).parent for name in place}) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"default_env": (("A", "b\nc"),)},
        {"host_env": (("A", "b\x7f"),)},
        {"env": (("A", "b\x1b"),)},
        {"default_env": (("A-B", "c"),)},
        {"depends_on": ("a b",)},
        {"depends_on": ("a", "b;c")},
        {"conflict": ("a", "$b")},
        {"family": "a-b"},
        {"runscript_env": (("a.b", ""),)},
        {"wrappers": (Wrapper("a/b", ("a",)),)},
    ],
)
def test_what_no_module_tool_could_print(changes: dict[str, object]) -> None:
    with pytest.raises(ModuleError):
        texts(**changes)


def test_a_module_conflicts_with_its_own_name_where_the_tool_would_load_two() -> None:
    files = texts(conflict=("Other",))
    assert "\nconflict PyTorch Other\n" in files["modulefile.tcl"]
    assert '\nconflict("Other")\n' in files["modulefile.lua"]


def test_a_text_that_ends_what_lmod_puts_around_it(module_tool: ModuleTool, lmod: ModuleTool, tmp_path: Path) -> None:
    from plans import publish

    odd = "ends ]===] and ]=] and [===[ here"
    made = publish(
        plan(
            prefix=str(tmp_path / "tree"),
            syntaxes=("tcl",),
            help=replace(HELP, description=odd, whatis=(f"Note: {odd}",)),
        )
    )
    for tool in (module_tool, lmod):
        done = tool.run("module help PyTorch 2>&1; module whatis PyTorch 2>&1; module load PyTorch", made.modules)
        assert done.code == 0, done
        assert done.stdout.count("and [===[ here") == 3  # of the help, and twice of what it is
        assert "SIF" in done.environment


@pytest.mark.parametrize(("kind", "spelling"), [("apptainer", "APPTAINER_BIND"), ("singularity", "SINGULARITY_BIND")])
def test_the_help_names_what_the_runtime_reads(kind: Literal["apptainer", "singularity"], spelling: str) -> None:
    runtime = replace(plan().runtime, kind=kind)
    for syntax in ("lua", "tcl"):
        text = texts(runtime=runtime, binds=(Bind("/a", "/b"),))[f"modulefile.{syntax}"]
        assert f"export {spelling}=SOURCE:TARGET" in text
        assert (f'{kind} exec "$SIF" COMMAND' in text) or (f'{kind} exec \\"\\$SIF\\" COMMAND' in text)


PIP = "runscripts/.pip/pip/__init__.py"


@pytest.mark.parametrize("name", ["conda-python-distributed", "torchrun-distributed"])
def test_a_runscript_brings_the_one_that_it_calls(name: str) -> None:
    scripts = {
        path for path in texts(runscripts=(name,)) if path.startswith("runscripts/") and not path.endswith(".py")
    }
    assert scripts == {f"runscripts/{name}", "runscripts/get-master"}
    alone = {
        path
        for path in texts(runscripts=("conda-python-simple",))
        if path.startswith("runscripts/") and not path.endswith(".py")
    }
    assert alone == {"runscripts/conda-python-simple"}


def test_each_name_of_pip_is_told_the_same() -> None:
    files = texts(wrappers=(Wrapper("pip", ("pip",)), Wrapper("pip3", ("pip3",)), Wrapper("python", ("python",))))
    assert files["bin/pip"].replace("pip", "pip3") == files["bin/pip3"].replace("pip3", "pip").replace("pip", "pip3")
    assert len(files["bin/pip"]) > len(files["bin/python"])
