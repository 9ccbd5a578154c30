"""The variables that a wrapper gives its command: the module's and the user's, silently, and none of them is run."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.config.name import ModuleName
from sifmod.module.plan import Bind, literal
from support.command import run
from support.generation import make_generation
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.wrappers import Somebody, environment, loaded, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

SPELLINGS = ("SINGULARITYENV_", "APPTAINERENV_")
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    '"; touch pwned; "',
    '\\"; touch pwned; \\"',
    "'; touch pwned; '",
    "${PATH}",
    "$((1+1))",
    "\\",
    'a\\"b\\\\"c\\\\\\"',
    "]==] [exec touch pwned]",
    "~ * ? ! % ; %3B",
    "é 漢 🚀",
    "\\u000A",
    "",
    "a=b",
    "--",
)


def test_the_environment_inside(somebody: Somebody, switch: Path) -> None:
    host = {"PYTHONPATH": "/host/lib", "MINE": "kept", "PIP_USER": "1"}
    found = environment(somebody.run((switch / "bin" / "show-env",), host))
    assert found["PATH"].startswith("/runscripts:/usr/local/sbin:")
    wanted = {"PIP_USER": "0", "PYTHONNOUSERSITE": "1", "PYTHONPATH": "", "WITH_CONDA": "true", "MINE": "kept"}
    assert {name: found.get(name) for name in wanted} == wanted
    assert not [name for name in found if name.startswith("sifmod_")]


def test_the_hosts_preloads_stay_out(switch: Path) -> None:
    """Of the runtime, too: ld.so complains once about a library that is not there, in the wrapper's own sh."""
    result = run((switch / "bin" / "show-env",), env={**os.environ, "LD_PRELOAD": "/nonexistent/library.so"})
    assert result.stderr.count("cannot be preloaded") == 1
    assert "LD_PRELOAD=\0" in result.stdout


def test_an_easyconfig_can_let_them_in(shared_tmp: Path, tiny: Path) -> None:
    wanted = make_generation(tiny_plan(shared_tmp, env=()), tiny)
    found = environment(run((wanted / "bin" / "show-env",), env={**os.environ, "PYTHONPATH": "/host/lib"}))
    assert found["PYTHONPATH"] == "/host/lib"


def test_the_place_of_the_hosts_python_stays_out(shared_tmp: Path, tiny: Path) -> None:
    """An easyconfig or the user can say where the image's is."""
    names = ("PYTHONHOME", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR")
    switch = make_generation(tiny_plan(shared_tmp, env=(("PYTHONHOME", "/opt/image"),)), tiny)
    host = {**os.environ, **dict.fromkeys(names, "/host"), "APPTAINERENV_PYTHONPLATLIBDIR": "mine"}
    found = environment(run((switch / "bin" / "show-env",), env=host))
    assert [found.get(name) for name in names] == ["/opt/image", None, "mine"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_users_own_value_goes_first(
    somebody: Somebody, shared: Path, switch: Path, module_tool: ModuleTool, spelling: str
) -> None:
    for base in ({}, loaded(module_tool, tiny_plan(shared / "pre fix"))):
        found = environment(somebody.run((switch / "bin" / "show-env",), {**base, f"{spelling}PIP_USER": "yes"}))
        assert (found["PIP_USER"], found["PYTHONNOUSERSITE"]) == ("yes", "1")


def test_the_users_other_variables_come_along_silently(somebody: Somebody, switch: Path) -> None:
    env = {"SINGULARITYENV_NCCL_DEBUG": "INFO", f"{RUNTIME.prefix}ENV_OTHER": "$((1 + 1))", "SINGULARITY_NO_HOME": "1"}
    found = environment(somebody.run((switch / "bin" / "show-env",), env))
    assert (found["NCCL_DEBUG"], found["OTHER"]) == ("INFO", "2")  # evaluated by the runtime, as its user expects it


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_users_directories_stay_in_front_of_the_modules(
    shared: Path, switch: Path, module_tool: ModuleTool, spelling: str
) -> None:
    for base in ({}, loaded(module_tool, tiny_plan(shared / "pre fix"))):
        env = {**os.environ, **base}
        name = f"{spelling}PREPEND_PATH"
        env[name] = f"/mine/bin:{env.get(name, '/runscripts')}:/my $((1 + 1))"
        found = environment(run((switch / "bin" / "show-env",), env=env))
        assert found["PATH"].startswith("/mine/bin:/my 2:/runscripts:/usr/")


def test_another_module_that_is_loaded_changes_nothing(
    shared_tmp: Path, shared: Path, switch: Path, tiny: Path, module_tool: ModuleTool
) -> None:
    """Its variables, directories and binds do not reach this module's container, the user's own after the load do."""
    other = tiny_plan(
        shared_tmp / "other",
        module=ModuleName("Other-module", "1.0"),
        env=(("ODD", "a;b%c $d"), ("PIP_USER", "other's;"), ("WHOSE", "other's")),
        path=("/other/bin", "/runscripts"),
        binds=(Bind(str(shared_tmp), "/mnt/other's"),),
        gpu_flags=("nv",),
    )
    make_generation(other, tiny)
    mine = {"SINGULARITYENV_MINE": "kept", "SINGULARITYENV_WHOSE": "mine"}
    plain = environment(run((switch / "bin" / "show-env",), env={**os.environ, "SINGULARITYENV_MINE": "kept"}))
    both = (other, tiny_plan(shared / "pre fix"))
    for order in (both, both[::-1]):
        env = {**os.environ, **loaded(module_tool, *order), **mine}
        found = environment(run((switch / "bin" / "show-env",), env=env))
        assert (found.pop("WHOSE"), found["MINE"]) == ("mine", "kept")
        assert (found["PATH"], found["PIP_USER"]) == (plain["PATH"], "0")
        assert "ODD" not in found
        bound = run((switch / "bin" / "in-sh", "-c", "test -e /mnt || echo nothing"), env=env)
        assert (bound.code, bound.stdout, bound.stderr) == (0, "nothing\n", "")


def test_warnings_and_errors_of_the_runtime_are_not_hidden(switch: Path) -> None:
    env = {**os.environ, "SINGULARITYENV_X": "1", "APPTAINERENV_X": "2"}
    result = run((switch / "bin" / "in-sh", "-c", ":"), env=env).ok()
    # the warning is Apptainer's alone: SingularityCE reads one of the two
    expected = "SINGULARITYENV_X and APPTAINERENV_X have different values" if RUNTIME.kind == "apptainer" else ""
    assert expected in result.stderr


def test_hostile_values_arrive_as_text(
    somebody: Somebody, shared_tmp: Path, tiny: Path, module_tool: ModuleTool
) -> None:
    env = tuple((f"HOSTILE{number}", value) for number, value in enumerate(HOSTILE))
    wanted = tiny_plan(shared_tmp / "$(touch pwned) `x` 'q'", env=env)
    switch = make_generation(wanted, tiny)
    bare = (RUNTIME.path, "-q", "exec", tiny, "env", "-0")
    told = loaded(module_tool, wanted)
    for args, base in (
        ((switch / "bin" / "show-env",), {}),
        ((switch / "bin" / "show-env",), {"APPTAINER_NO_EVAL": "1"}),
        ((switch / "bin" / "show-env",), told),
        ((switch / "bin" / "show-env",), {**told, "APPTAINER_NO_EVAL": "1"}),
        (bare, told),
    ):
        found = environment(somebody.run(args, base))
        assert {name: found[name] for name, _ in env} == dict(env)
    assert not list(shared_tmp.rglob("pwned"))


_printable = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
_value = st.text(st.sampled_from('\\\\\\""\'$$`({})!~*;& é') | _printable)
SHOW_ALL = 'n=0; while eval "[ \\"\\${X$n+set}\\" ]"; do eval "printf \'%s\\0\' \\"\\$X$n\\""; n=$((n + 1)); done'


@settings(max_examples=25)
@given(values=st.lists(_value, min_size=8, max_size=32))
def test_any_value_arrives_as_text(values: list[str], tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both through the wrapper's sh and through the runtime's evaluation."""
    env = tuple((f"X{number}", value) for number, value in enumerate(values))
    switch = make_generation(tiny_plan(tmp_path_factory.mktemp("any value"), env=env), tiny)
    result = run((switch / "bin" / "in-sh", "-c", SHOW_ALL))
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.split("\0")[:-1] == values


def test_hostile_records_of_loaded_modules_are_not_run(switch: Path, tmp_path: Path) -> None:
    run_me = "$(touch pwned)"
    env = {
        "_SIFMOD_LOADED": f"A:A;{run_me}:a{run_me}",
        "_SIFMOD_WANT_A": f"1;apptainer;{run_me};`touch pwned`;SINGULARITYENV_X[{run_me}]=1;SINGULARITY{run_me}=2",
        "_SIFMOD_BINDS": run_me,
    }
    result = run((switch / "bin" / "in-sh", "-c", "echo ran"), env={**os.environ, **env}, cwd=tmp_path)
    assert (result.code, result.stdout, result.stderr) == (0, "ran\n", "")
    assert not (tmp_path / "pwned").exists()


def test_the_spelling_for_the_runtime() -> None:
    assert literal('a "b" \\ $c `d` é') == 'a "b" \\\\ \\$c \\`d\\` é'
