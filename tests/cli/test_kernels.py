"""`sifmod jupyter`: what is checked before a kernel is made, and what is said; real kernels: system/test_jupyter.py."""

import sys
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.command import run as command
from support.inside import programs, sif

PYTHON = """#!/bin/sh
# stands in for a module's Python: the layers have ipykernel, but for `bare`, and the image has none
case ${SIFMOD_LAYER-default} in
  default | notes) exit 0 ;;
  none) printf 'Tools/1: there is no layer none\\n' >&2; exit 24 ;;
  lost) printf '\\036Tools/1: there is no apptainer\\037install it\\036\\n' >&2 ;;
  *) echo "ModuleNotFoundError: No module named '${2#import }'" >&2 ;;
esac
exit 1
"""
EASYCONFIG = """
name: Tools
version: '{version}'
image: {{sources: ['{image}']}}
venv: /opt/env
accelerator: none
wrappers: [python]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.chdir(tmp_path)
    install(tmp_path)
    return tmp_path


def install(here: Path, version: str = "1") -> None:
    image = sif(here / "image.sif", {**programs("opt/env/bin/python", "bin/sh"), "opt/env/pyvenv.cfg": ""})
    (here / "Tools.yaml").write_text(EASYCONFIG.format(image=image, version=version))
    assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", "Tools.yaml"]) == 0
    wrapper = here / "prefix/software/Tools" / version / "bin/python"
    wrapper.parent.chmod(0o755)
    wrapper.unlink()
    wrapper.write_text(PYTHON)
    wrapper.chmod(0o755)


def error(capfd: pytest.CaptureFixture[str], *words: str, code: int = 24) -> tuple[str, str | None]:
    """The message of a refusal and its hint."""
    said = answer(capfd, ("jupyter", *words), code)
    return said["error"], said["hint"]


def test_a_lab_runs_nothing_of_the_directory_in_which_it_starts(here: Path) -> None:
    packages, shared = here / "packages", here / "shared"
    for name, text in {
        packages / "jupyterlab/__init__.py": "",
        packages / "jupyterlab/__main__.py": "import json, os, sys; print('the lab in', os.getcwd(), *sys.argv[1:3])",
        shared / "jupyterlab.py": "print('planted')",
        shared / "json.py": "print('planted')",
    }.items():
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text(text)
    wrapper = here / "prefix/software/Tools/1/bin/python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec python3 "$@"\n')
    started = command((sys.executable, "-P", "-m", "sifmod", "jupyter", "Tools", "--lab"), cwd=shared).ok()
    assert started.stdout.splitlines()[-1] == f"the lab in {shared} --no-browser -y"
    assert "planted" not in started.stdout


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("layer", ["bare", ""])
def test_what_is_checked_is_what_the_kernel_has(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    """The kernel takes no SIFMOD_LAYER of the shell that it is made in."""
    monkeypatch.setenv("SIFMOD_LAYER", layer)
    assert answer(capfd, ("jupyter", "Tools"), 0)["state"] == "made"


def test_a_kernel_that_cannot_start_is_refused(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = here / "prefix/software/Tools/1/bin/python"
    wrapper.write_text(PYTHON.replace("default | notes", "notes"))
    monkeypatch.setenv("SIFMOD_LAYER", "notes")
    assert error(capfd, "Tools")[1] == "sifmod add Tools/1 ipykernel"
    assert not (here / "jupyter").exists()
    # JupyterLab starts in the shell's own environment
    monkeypatch.setenv("SIFMOD_LAYER", "bare")
    assert error(capfd, "Tools", "--lab")[1] == "sifmod add Tools/1 jupyterlab --layer bare"
    monkeypatch.setenv("SIFMOD_LAYER", "")
    assert "unset SIFMOD_LAYER" in str(error(capfd, "Tools", "--lab")[1])


@pytest.mark.usefixtures("here")
def test_the_hint_of_a_module_is_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert error(capfd, "Tools", "--layer", "none") == (
        "Tools/1 has no layer none",
        "`sifmod add Tools/1 ipykernel --layer none` makes it; `sifmod layer list Tools/1` lists the existing ones",
    )
    message = "ipykernel of Tools/1 cannot be used: Tools/1: there is no apptainer"
    assert error(capfd, "Tools", "--layer", "lost") == (message, "install it")


def test_hints_keep_the_prefix(here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIFMOD_PREFIX")
    words = "Tools", "--prefix", str(here / "prefix")
    hint = f"sifmod add Tools/1 --prefix {here}/prefix ipykernel --layer bare"
    assert error(capfd, *words, "--layer", "bare")[1] == hint
    monkeypatch.setenv("MODULEPATH", str(here / "prefix/modules"))  # which leads there as well
    assert error(capfd, *words, "--layer", "bare")[1] == "sifmod add Tools/1 ipykernel --layer bare"


def test_a_kernel_of_a_module_that_is_gone_says_how_it_is_removed(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = answer(capfd, ("jupyter", "Tools", "--layer", "notes"), 0)["path"]
    (here / "prefix/software/Tools/1/bin/python").unlink()
    ended = command((f"{kernel}/python",))
    assert (ended.code, "`sifmod jupyter Tools/1 --layer notes --remove` removes" in ended.stderr) == (127, True)


@pytest.mark.parametrize("bound", ["", "/work data:/data,/scratch"])
def test_a_kernel_adds_to_what_the_user_binds(here: Path, capfd: pytest.CaptureFixture[str], bound: str) -> None:
    kernel = answer(capfd, ("jupyter", "Tools", "--layer", "notes"), 0)["path"]
    wrapper = here / "prefix/software/Tools/1/bin/python"
    wrapper.write_text('#!/bin/sh\nprintf "%s\\n" "$SINGULARITY_BIND" "$@"\n')
    file = "/run time/kernel-1.json"
    said = command((f"{kernel}/python", "-f", file), env={"PATH": "/usr/bin:/bin", "SINGULARITY_BIND": bound})
    assert said.ok().stdout.splitlines() == [f"{bound},/run time" if bound else "/run time", "-f", file]


def test_of_two_versions_the_one_with_a_kernel_is_meant_by_remove(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(here, "1.5")
    install(here, "2")
    made = answer(capfd, ("jupyter", "Tools/2"), 0)["kernel"]
    assert "can be any of" in error(capfd, "Tools")[0]
    assert "there is no kernel Tools 1 in" in error(capfd, "Tools/1", "--remove")[0]
    assert answer(capfd, ("jupyter", "Tools", "--remove"), 0)["kernel"] == made
    assert "can be any of" in error(capfd, "Tools", "--remove")[0]


@pytest.mark.usefixtures("here")
def test_uninstall_names_the_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    answer(capfd, ("jupyter", "Tools"), 0)
    answer(capfd, ("jupyter", "Tools", "--layer", "notes"), 0)
    removals = ["sifmod jupyter Tools/1 --remove", "sifmod jupyter Tools/1 --layer notes --remove"]
    assert run(["uninstall", "Tools"]) == 0
    said = capfd.readouterr().err
    for removal in removals:
        assert f"Tools/1: Jupyter still lists its kernel; `{removal}` removes it\n" in said
    assert answer(capfd, ("uninstall", "Tools/1"), 0)["uninstalled"][0]["kernels"] == removals
    for removal in removals:
        assert run(removal.split()[1:]) == 0


def test_what_cannot_be_done_has_a_hint(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "leave one of them out" in str(error(capfd, "Tools", "--lab", "--remove", code=2)[1])
    for place in ("/proc/1/nohome", str(here / "Tools.yaml")):
        monkeypatch.setenv("JUPYTER_DATA_DIR", place)
        assert "set JUPYTER_DATA_DIR" in str(error(capfd, "Tools", code=18)[1])
