"""The text of wrappers and runscripts: clean sh for any plan, and the same for the same plan."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import plan
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.module.plan import Activation, Bind, Plan, Runtime, Wrapper, literal
from sifmod.module.render import render
from sifmod.module.scripts import scripts
from support.command import run
from support.generation import SHELLS

ROOT = "/opt/sifmod/software/PyTorch/.generations/2.2.0-rocm-5.6.1/1"
ALL = ("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages")
HOSTILE = "$(touch pwned) `touch pwned` '; touch pwned; ' \"; touch pwned; \" \\ \n touch pwned \n ]] é"
ODD = plan(
    module=ModuleName(f"Py{HOSTILE}", f"1{HOSTILE}"),
    easyconfig=HOSTILE,
    prefix=f"/opt/{HOSTILE}",
    accelerator="cuda",
    gpu_flags=("nv", "nvccli"),
    runtime=Runtime("singularity", f"/opt/{HOSTILE}/bin/singularity"),
    activation=Activation(HOSTILE, f"source {HOSTILE!r}"),
    binds=(Bind(f"/a{HOSTILE}", f"/b{HOSTILE}", ("ro", HOSTILE)), Bind("/c", "/c", optional=True)),
    env=(("LD_PRELOAD", HOSTILE), ("X", HOSTILE)),
    path=(f"/d{HOSTILE}",),
    wrappers=(Wrapper("odd", (HOSTILE, "-c", HOSTILE)), Wrapper("start-shell", ("/runscripts/start-shell",))),
    runscripts=ALL,
    runscript_env=(("Y", HOSTILE),),
    verb="run",
    user_software=True,
)
BARE = plan(
    accelerator="none",
    gpu_flags=(),
    runtime=Runtime("apptainer", ""),
    activation=Activation("true", ""),
    binds=(),
    env=(),
    path=(),
    wrappers=(),
    runscripts=(),
)
PIP = "runscripts/.pip/pip/__init__.py"
PLANS = {"usual": plan(runscripts=ALL, runscript_env=(("A", "1"), ("B", "2"))), "odd": ODD, "bare": BARE}


@pytest.mark.parametrize("wanted", PLANS.values(), ids=PLANS.keys())
def test_every_script_is_clean_sh(wanted: Plan, tmp_path: Path) -> None:
    paths = []
    for file in scripts(wanted, 1):
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        if file.path in ("runscripts/README", PIP):  # no text of a shell
            continue
        paths.append(path)
        for shell in SHELLS:
            assert run((*shell, "-n", path)).ok().stderr == ""
    # about odd text itself it has remarks: that a $ in single quotes is just that
    severity = "warning" if wanted is ODD else "style"
    options = ("--external-sources", "--exclude=SC1091", f"--severity={severity}")  # launch.sh is found at run time
    checked = run(("shellcheck", *options, *paths), cwd=tmp_path)
    assert checked.code == 0, checked.stdout


@pytest.mark.parametrize("wanted", PLANS.values(), ids=PLANS.keys())
def test_the_same_plan_gives_the_same_text(wanted: Plan) -> None:
    assert scripts(wanted, 1) == scripts(wanted, 1)


def test_the_files() -> None:
    files = {file.path: file.executable for file in scripts(plan(runscripts=("conda-python-distributed",)), 1)}
    assert files == {
        "bin/python": True,
        "bin/pip": True,
        "share/launch.sh": False,
        "runscripts/conda-python-distributed": True,
        "runscripts/get-master": True,  # which the other one calls
        PIP: False,  # what stands before the image's
    }


def test_a_wrapper_is_short_and_the_same_in_every_module() -> None:
    (text,) = (file.text for file in scripts(plan(), 1) if file.path == "bin/python")
    shebang, comment, *where, source, launch = text.splitlines()
    assert (shebang, comment[0], len(where)) == ("#!/bin/sh", "#", 6)
    assert (source, launch) == ('. "$sifmod_bin/../share/launch.sh"', 'launch python "$@"')
    (other,) = (file.text for file in scripts(ODD, 2) if file.path == "bin/start-shell")
    assert other.splitlines()[:-1] == text.splitlines()[:-1]


def test_names_that_no_script_can_hold_are_refused() -> None:
    for changes in (
        {"env": (("A;touch x", "1"),)},
        {"runscript_env": (("A=$(id)", "1"),)},
        {"wrappers": (Wrapper("../python", ("python",)),)},
        {"wrappers": (Wrapper("a\nb", ("python",)),)},
    ):
        with pytest.raises(ModuleError):
            render(plan(**changes), 1)


def test_spellings_of_the_runtime() -> None:
    apptainer, singularity = Runtime("apptainer", "/opt/a"), Runtime("singularity", "")
    assert apptainer.prefixes == ("SINGULARITY", "APPTAINER")
    assert singularity.prefixes == ("SINGULARITY",)
    assert apptainer.candidates == ("/opt/a", "apptainer", "singularity")
    assert singularity.candidates == ("singularity", "apptainer")
    assert literal('a "b" \\ $c `d` é') == 'a "b" \\\\ \\$c \\`d\\` é'


def test_where_the_image_is_looked_for() -> None:
    image = PLANS["usual"].required_image
    wanted = plan(image=type(image)(**{**vars(image), "image_dirs": ("/a", "/b")}))
    assert wanted.images_of(ROOT) == tuple(f"{where}/{image.filename}" for where in (ROOT, "/a", "/b"))


def test_activation_in_front_of_a_command() -> None:
    by_command, by_variables = Activation("source x", "source x"), Activation("source x", "")
    assert by_variables.activated(("python",)) == ("python",)
    assert by_command.activated(("/runscripts/start-shell",)) == ("/runscripts/start-shell",)
    assert by_command.activated(("pip", "list"))[:3] == ("bash", "-c", 'source x && exec "$@"')
    assert by_command.activated(("pip", "list"))[3:] == ("bash", "pip", "list")


@pytest.mark.parametrize(("command", "expected"), [("true", (0, "a b\n")), ("exit 3", (3, "")), ("false", (1, ""))])
def test_an_activation_that_fails_runs_nothing(command: str, expected: tuple[int, str]) -> None:
    for users_venv in (False, True):
        words = Activation(command, command, users_venv).activated(("printf", r"%s\n"))
        done = run((*words, "a b"))
        assert (done.code, done.stdout) == expected


# Reads share/launch.sh, and says what the runtime would be told.
TOLD = """
sifmod_bin=$1/bin
. "$sifmod_bin/../share/launch.sh"
sifmod_set_environment
printf '%s\\0' "$sifmod_module" "$SINGULARITYENV_PREPEND_PATH" "$APPTAINERENV_X"
"""
_any = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
_directory = st.text(st.characters(exclude_characters="\0:", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@settings(max_examples=60)
@given(version=_any, value=_any, directory=_directory)
def test_any_text_is_the_same_text_to_sh(
    tmp_path_factory: pytest.TempPathFactory, shell: tuple[str, ...], version: str, value: str, directory: str
) -> None:
    root = tmp_path_factory.mktemp("text")
    wanted = plan(module=ModuleName("PyTorch", version), env=(("X", value),), path=(directory,))
    (text,) = (file.text for file in scripts(wanted, 1) if file.path == "share/launch.sh")
    (root / "share").mkdir()
    (root / "bin").mkdir()
    (root / "share" / "launch.sh").write_text(text)
    said = (
        run((*shell, "-c", TOLD, "sh", root), env={"PATH": "/nonexistent:/usr/bin:/bin"}).ok().stdout.split("\0")[:-1]
    )
    assert said == [f"PyTorch/{version}", literal(directory), literal(value)]
