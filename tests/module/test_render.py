"""A plan's files: which there are, that they are the same for the same plan, and that they are pleasant to read."""

from dataclasses import replace

import pytest

from plans import plan
from sifmod.config.kinds import Syntax
from sifmod.config.name import ModuleName
from sifmod.module.plan import Activation, Runtime, Wrapper
from sifmod.module.render import render, render_stub
from sifmod.module.variables import host_variables, image_variables, state_key

GENERATION = "/software/PyTorch/.generations/2.2.0-rocm-5.6.1/3"
ROOT = f"/opt/sifmod{GENERATION}"


def texts(syntaxes: tuple[Syntax, ...], number: int = 3) -> dict[str, str]:
    return {file.path: file.text for file in render(plan(syntaxes=syntaxes), number)}


@pytest.mark.parametrize("syntax", ["lua", "tcl"])
def test_one_syntax(syntax: Syntax) -> None:
    files = [path for path in texts((syntax,)) if path.endswith((".lua", ".tcl"))]
    assert files == [f"modulefile.{syntax}", f"share/module.{syntax}", f"share/environment.{syntax}"]


def test_both_syntaxes_and_the_scripts() -> None:
    files = set(texts(("lua", "tcl")))
    assert files >= {"modulefile.lua", "modulefile.tcl", "share/launch.sh", "bin/python", "runscripts/get-master"}
    assert len(files) == len(render(plan(), 3))


def test_stubs_are_named_as_each_module_tool_wants() -> None:
    assert [file.path for file in render_stub(plan())] == ["PyTorch/2.2.0-rocm-5.6.1.lua", "PyTorch/2.2.0-rocm-5.6.1"]
    lua, tcl = (file.text for file in render_stub(plan()))
    assert "/software/PyTorch/2.2.0-rocm-5.6.1/modulefile.lua" in lua
    assert tcl.startswith("#%Module")


def test_the_same_plan_and_number_give_the_same_bytes_in_any_prefix() -> None:
    assert render(plan(), 3) == render(plan(prefix="/elsewhere"), 3)
    assert render_stub(plan()) == render_stub(plan(prefix="/elsewhere"))
    assert render_stub(plan()) == render_stub(replace(plan(), easyconfig="other", binds=(), env=()))


def test_what_all_generations_share_names_none() -> None:
    """What differs between two generations is in the modulefile and the scripts, which a reviewer reads."""
    here, there = texts(("lua", "tcl")), texts(("lua", "tcl"), 4)
    shared = [path for path in here if path.startswith(("share/module.", "share/environment."))]
    assert len(shared) == 4
    assert all(here[path] == there[path] for path in shared)
    assert all(here[path].count(GENERATION) == 1 for path in ("modulefile.lua", "modulefile.tcl"))


def test_a_modulefile_is_mostly_data() -> None:
    text = texts(("lua",))["modulefile.lua"]
    assert '         { root .. "/runscripts:/runscripts:ro" },\n' in text
    assert '         { "/no/such/place", optional = true },\n' in text
    assert '         NCCL_DEBUG = "WARN",\n' in text
    assert "help([==[\nPyTorch, a machine learning package\n" in text
    text = texts(("tcl",))["modulefile.tcl"]
    assert "            ${root}/runscripts:/runscripts:ro required \\\n" in text
    assert "            /no/such/place optional \\\n" in text


def test_names_derived_from_the_module() -> None:
    odd = ModuleName("a-b+c.d_E", "1")
    assert state_key(odd) == "a_2Db_2Bc_2Ed_5FE"
    assert image_variables(odd) == ("SIF", "SIFAMINBPLUSCD_E")
    variables = dict(host_variables(plan(module=odd, version="0.9"), ROOT))
    assert variables["EBVERSIONAMINBPLUSCD_E"] == "0.9"
    assert variables["EBROOTAMINBPLUSCD_E"] == variables["CONTAINERROOT"] == ROOT


def test_the_modules_own_variables_win_over_host_env() -> None:
    variables = dict(host_variables(plan(host_env=(("RUNSCRIPTS", "/mine"), ("OTHER", "1"))), ROOT))
    assert (variables["RUNSCRIPTS"], variables["OTHER"]) == (f"{ROOT}/runscripts", "1")


def test_the_help_names_the_sites_runtime() -> None:
    text = {file.path: file.text for file in render(plan(runtime=Runtime("singularity", "")), 3)}["modulefile.lua"]
    assert 'srun singularity exec "$SIF" conda-python-distributed -u train.py' in text
    assert "export SINGULARITY_BIND=" in text


def test_the_job_script_has_a_task_for_each_gpu_of_the_sites_nodes() -> None:
    text = {file.path: file.text for file in render(plan(gpus_per_node=8), 3)}["modulefile.lua"]
    assert "#SBATCH --ntasks-per-node=8\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text


@pytest.mark.parametrize(
    ("wrappers", "job"),
    [
        ((), 'apptainer exec "$SIF" COMMAND'),
        (("start-shell",), 'apptainer exec "$SIF" COMMAND'),
        (("start-shell", "samtools"), "samtools"),
        (("torchrun",), 'apptainer exec "$SIF" conda-python-distributed -u train.py'),
    ],
)
def test_only_a_module_with_python_shows_a_job_of_python(wrappers: tuple[str, ...], job: str) -> None:
    made = plan(
        activation=Activation("true", ""),
        wrappers=tuple(Wrapper(name, (f"/runscripts/{name}" if name == "start-shell" else name,)) for name in wrappers),
    )
    text = {file.path: file.text for file in render(made, 3)}["modulefile.lua"]
    assert f"\n  srun {job}\n" in text
    assert text.count("train.py") == job.count("train.py")


def test_the_help_of_a_module_without_runscripts_or_gpus() -> None:
    made = plan(
        runscripts=(), accelerator="none", gpu_flags=(), help=replace(plan().help, homepage="", docurls=(), contents=())
    )
    text = {file.path: file.text for file in render(made, 3)}["modulefile.lua"]
    assert "srun python train.py" in text
    assert "gpus-per-node" not in text
    assert "More information" not in text
    assert "extensions" not in text


def test_a_word_of_lua_may_be_a_variable() -> None:
    """Lua's own words cannot be keys as they are."""
    text = {file.path: file.text for file in render(plan(env=(("end", "1"), ("http_proxy", "x"))), 3)}["modulefile.lua"]
    assert '["end"] = "1"' in text
