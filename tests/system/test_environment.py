"""The environment of a shell: exact after every load, and the user's own again after every unload, in any order."""

from pathlib import Path

import pytest

from loads import NAME, another, changes, unloads, users, visited
from plans import Published, plan, publish
from sifmod.module.plan import Runtime
from sifmod.module.variables import python_key
from support.module_tool import ModuleTool


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A prefix whose path would break what does not quote it."""
    return str(tmp_path / "pre fix")


@pytest.fixture
def pytorch(prefix: str) -> Published:
    return publish(plan(prefix=prefix))


def binds_of(published: Published, *more: str) -> str:
    return ",".join((f"{published.root}/runscripts:/runscripts:ro", *more))


def test_a_load_sets_every_variable_of_the_design(module_tool: ModuleTool, pytorch: Published) -> None:
    (pytorch.root / "share" / "image").write_text("0123456789abcdef\n")
    before, after, _ = unloads(module_tool, pytorch.modules, f"module load {NAME}", f"module unload {NAME}")
    root = str(pytorch.root)
    activate = "source /opt/miniconda3/bin/activate pytorch"
    binds = f"{root}/runscripts:/runscripts:ro,/usr:/usr/host"
    twins = {
        "_BINDPATH": binds,
        "_ROCM": "1",
        "ENV_PREPEND_PATH": "/runscripts:/opt/miniconda3/envs/pytorch/bin",
        "ENV_NCCL_DEBUG": "WARN",
        "ENV_PYTHONNOUSERSITE": "1",
        "ENV_WITH_CONDA": activate,
        "ENV_SIFMOD_CONTAINER": f"0123456789abcdef:{python_key(pytorch.plan)}:{root}/pytorch-2.2.0.sif",
    }
    (pytorch.root / "share" / "image").unlink()
    assert changes(before, after) == {
        "SIF": f"{root}/pytorch-2.2.0.sif",
        "SIFPYTORCH": f"{root}/pytorch-2.2.0.sif",
        "RUNSCRIPTS": f"{root}/runscripts",
        "RUNSCRIPTSPYTORCH": f"{root}/runscripts",
        "WITH_CONDA": activate,
        "CONTAINERROOT": root,
        "EBROOTPYTORCH": root,
        "EBVERSIONPYTORCH": "2.2.0",
        "MPICH_GPU_SUPPORT_ENABLED": "1",
        "PATH": f"{root}/bin:{before.environment['PATH']}",
        **{f"SINGULARITY{name}": value for name, value in twins.items()},
        **{f"APPTAINER{name}": value for name, value in twins.items()},
    }
    assert after.environment["_SIFMOD_BINDS"] == binds


def test_singularity_gets_its_own_spelling_only(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix, runtime=Runtime("singularity", ""), gpu_flags=("nv", "nvccli")))
    env = {"APPTAINER_BINDPATH": "/mine"}
    before, after, _ = unloads(module_tool, made.modules, f"module load {NAME}", f"module unload {NAME}", env=env)
    changed = changes(before, after)
    assert not [name for name in changed if name.startswith("APPTAINER")]
    assert changed["SINGULARITY_NV"] == changed["SINGULARITY_NVCCLI"] == "1"
    assert changed["SINGULARITY_BINDPATH"] == f"/mine,{binds_of(made, '/usr:/usr/host')}"


def test_a_default_is_set_where_the_user_has_none(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix, default_env=(("HAVE", "default"), ("LACK", "de'f au\"lt"), ("SIF", "never"))))
    steps = (f"module load {NAME}", f"module show {NAME} 2>&1", f"module unload {NAME}")
    _, loaded, shown, _ = unloads(module_tool, made.modules, *steps, env={"HAVE": "mine"})
    values = [loaded.environment[name] for name in ("HAVE", "LACK", "SIF")]
    assert values == ["mine", "de'f au\"lt", str(made.image)]
    assert "LACK" in shown.stdout
    assert "HAVE" not in shown.stdout


def test_what_a_module_depends_on_is_loaded_with_it(module_tool: ModuleTool, prefix: str) -> None:
    other = another(prefix, "Other")
    made = publish(plan(prefix=prefix, depends_on=("Other",)))
    steps = ("true", f"module load {NAME}", f"module unload {NAME}")  # Environment Modules says what it loads
    before, loaded, after = module_tool.session(steps, made.modules)
    assert [step.code for step in (before, loaded, after)] == [0, 0, 0]
    assert users(after) == users(before)
    assert loaded.environment["EBROOTOTHER"] == str(other.root)
    assert loaded.environment["SIF"] == str(made.image)


USERS_BINDS = {
    "singularity": ("/a", None, "/a"),
    "apptainer": (None, "/a", "/a"),
    "both equal": ("/a,/b:/c:ro", "/a,/b:/c:ro", "/a,/b:/c:ro"),
    "both different": ("/a,/b:/x", "/c,/d:/x:ro", "/a,/b:/x,/c"),
    "empty": ("", None, ""),
    "both empty": ("", "", ""),
    "options": ("/a.sqsh:/a:image-src=/,/b:/b:ro,id=1", None, "/a.sqsh:/a:image-src=/,/b:/b:ro,id=1"),
    "odd commas": (",/a,,/b,", None, "/a,/b"),
    "duplicates": ("/a,/a/,/b:/a", "/a", "/a"),
    "other characters": ("/$HOME 'x' \"y\" `z`,/é\\,e:/\\:f", None, "/$HOME 'x' \"y\" `z`,/é\\,e:/\\:f"),
}  # fmt: skip


@pytest.mark.parametrize(("singularity", "apptainer", "own"), USERS_BINDS.values(), ids=USERS_BINDS)
def test_binds_are_added_to_what_the_user_has(
    module_tool: ModuleTool, pytorch: Published, singularity: str | None, apptainer: str | None, own: str
) -> None:
    env = {"SINGULARITY_BINDPATH": singularity, "APPTAINER_BINDPATH": apptainer}
    given = {name: value for name, value in env.items() if value is not None}
    _, loaded, _ = unloads(module_tool, pytorch.modules, f"module load {NAME}", f"module unload {NAME}", env=given)
    expected = ",".join(filter(None, (own, binds_of(pytorch, "/usr:/usr/host"))))
    assert loaded.environment["SINGULARITY_BINDPATH"] == loaded.environment["APPTAINER_BINDPATH"] == expected
    assert loaded.environment["_SIFMOD_BINDS"] == binds_of(pytorch, "/usr:/usr/host")


def test_the_users_bind_wins_over_the_modules(module_tool: ModuleTool, pytorch: Published) -> None:
    env = {"APPTAINER_BINDPATH": "/my/scripts:/runscripts/"}
    _, loaded, _ = unloads(module_tool, pytorch.modules, f"module load {NAME}", f"module unload {NAME}", env=env)
    assert loaded.environment["SINGULARITY_BINDPATH"] == "/my/scripts:/runscripts/,/usr:/usr/host"
    assert loaded.environment["_SIFMOD_BINDS"] == "/usr:/usr/host"


@pytest.mark.parametrize("spelling", ["SINGULARITY", "APPTAINER"])
@pytest.mark.parametrize("before", [None, "/a"])
@pytest.mark.parametrize(
    "change", ["{0}_BINDPATH=${{{0}_BINDPATH}},/new:/new:ro", "{0}_BINDPATH=/new:/new:ro,${{{0}_BINDPATH}}"]
)
def test_a_bind_added_after_the_load_stays(
    module_tool: ModuleTool, pytorch: Published, spelling: str, before: str | None, change: str
) -> None:
    name = f"{spelling}_BINDPATH"
    env = {} if before is None else {name: before}
    steps = (f"module load {NAME}", f"export {change.format(spelling)}", f"module unload {NAME}")
    done = visited(module_tool, pytorch.modules, *steps, env=env)
    expected = {None: "/new:/new:ro", "/a": "/a,/new:/new:ro" if change.endswith("ro") else "/new:/new:ro,/a"}[before]
    assert users(done[-1]) == {**users(done[0]), name: expected}


def test_a_bind_added_after_the_load_stays_through_the_next_load(
    module_tool: ModuleTool, pytorch: Published, prefix: str
) -> None:
    other = another(prefix, "B", "/etc")
    steps = (
        f"module load {NAME}",
        "export SINGULARITY_BINDPATH=$SINGULARITY_BINDPATH,/new",
        "module load B",
        f"module unload {NAME}",
        "module unload B",
    )
    done = visited(module_tool, pytorch.modules, *steps)
    both = f"/new,{binds_of(other, '/etc')},/usr:/usr/host"
    assert done[3].environment["SINGULARITY_BINDPATH"] == done[3].environment["APPTAINER_BINDPATH"] == both
    assert users(done[-1]) == {**users(done[0]), "SINGULARITY_BINDPATH": "/new"}


@pytest.mark.parametrize(
    "change", ["export APPTAINER_BINDPATH=/own", "unset APPTAINER_BINDPATH", "export APPTAINER_BINDPATH="]
)
def test_binds_replaced_after_the_load_stay_replaced(module_tool: ModuleTool, pytorch: Published, change: str) -> None:
    env = {"APPTAINER_BINDPATH": "/before"}
    done = visited(module_tool, pytorch.modules, f"module load {NAME}", change, f"module unload {NAME}", env=env)
    expected = users(done[0])
    del expected["APPTAINER_BINDPATH"]
    if change.startswith("export"):
        expected["APPTAINER_BINDPATH"] = change.partition("=")[2]
    assert users(done[-1]) == expected


def test_the_users_directories_come_first_in_the_path_inside(module_tool: ModuleTool, pytorch: Published) -> None:
    env = {"APPTAINERENV_PREPEND_PATH": "/mine:/runscripts/", "SINGULARITYENV_PREPEND_PATH": "/other"}
    steps = (f"module load {NAME}", "export SINGULARITYENV_PREPEND_PATH=/new:$SINGULARITYENV_PREPEND_PATH")
    done = visited(module_tool, pytorch.modules, *steps, f"module unload {NAME}", env=env)
    expected = "/other:/mine:/runscripts/:/opt/miniconda3/envs/pytorch/bin"
    assert done[1].environment["SINGULARITYENV_PREPEND_PATH"] == expected
    assert done[1].environment["APPTAINERENV_PREPEND_PATH"] == expected
    assert users(done[-1]) == {**users(done[0]), "SINGULARITYENV_PREPEND_PATH": "/new:/other"}


def test_without_directories_of_its_own_the_path_inside_is_left_alone(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix, path=()))
    env = {"SINGULARITYENV_PREPEND_PATH": "/a::/b:"}
    before, loaded, _ = unloads(module_tool, made.modules, f"module load {NAME}", f"module unload {NAME}", env=env)
    assert not [name for name in changes(before, loaded) if name.endswith("PREPEND_PATH")]


EARLIER_VALUES = {
    "text": "/my/own.sif",
    "empty": "",
    "odd": "a;b=c%25 $(touch x) 'é' \"\\",
    "number": "007",
    "list": "{a} {",
}


@pytest.mark.parametrize("value", EARLIER_VALUES.values(), ids=EARLIER_VALUES)
def test_an_earlier_value_comes_back(module_tool: ModuleTool, pytorch: Published, value: str) -> None:
    env = {"SIF": value, "WITH_CONDA": value, "SINGULARITYENV_NCCL_DEBUG": value}
    _, loaded, _ = unloads(module_tool, pytorch.modules, f"module load {NAME}", f"module unload {NAME}", env=env)
    assert loaded.environment["SIF"] == str(pytorch.image)


@pytest.mark.parametrize(
    ("change", "value"), [("export SIF=/mine.sif", "/mine.sif"), ("export SIF=", ""), ("unset SIF", None)]
)
def test_a_variable_changed_after_the_load_is_the_users(
    module_tool: ModuleTool, pytorch: Published, prefix: str, change: str, value: str | None
) -> None:
    another(prefix, "B")
    steps = (f"module load {NAME}", change, "module load B", "module unload B", f"module unload {NAME}")
    done = visited(module_tool, pytorch.modules, *steps, env={"SIF": "/before.sif"})
    assert done[3].environment["SIF"] == f"{prefix}/software/B/.generations/1/1/pytorch-2.2.0.sif"
    for step in done[4:]:
        assert step.environment.get("SIF") == value
    expected = {name: text for name, text in users(done[0]).items() if name != "SIF"}
    assert users(done[-1]) == (expected if value is None else {**expected, "SIF": value})


def test_an_unload_that_cannot_be_done_says_so(module_tool: ModuleTool, pytorch: Published) -> None:
    remove = f"rm '{pytorch.root}'/share/*"
    *_, after = module_tool.session((f"module load {NAME}", remove, f"module unload {NAME}"), pytorch.modules)
    assert f"{pytorch.root}/share/module.{module_tool.syntax}".replace(" ", "") in "".join(after.stderr.split())
