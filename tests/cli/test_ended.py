"""A module that was retired, and removed since, stays away from a stack until that is undone."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_number
from support.config import write
from support.disk_state import disk_state
from support.images import Images

APPLY = ["stack", "apply", "stack.yaml", "--skip-sanity-check"]
PLAN = ["stack", "plan", "stack.yaml", "--skip-sanity-check"]


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of three modules, of which App/1 was retired and removed."""
    directory = tmp_path / "a place"
    directory.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(directory / "prefix"))
    monkeypatch.chdir(directory)
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    for name, version in (("App", "1"), ("App", "2"), ("Other", "1")):
        write(directory / f"{name}-{version}.yaml", f"name: {name}\nversion: '{version}'\n{image}")
    stack(directory)
    assert run([*APPLY, "-q"]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["retire", "App/1", "--successor", "App/2", "--since", "2020-01-01"]) == 0
    assert run(["gc", "--yes", "--now", "--ignore-jobs"]) == 0
    assert not is_there(directory)
    return directory


def stack(here: Path, more: str = "") -> None:
    write(here / "stack.yaml", f"easyconfigs: [{{easyconfig: App-1.yaml{more}}}, App-2.yaml, Other-1.yaml]\n")


def is_there(here: Path) -> bool:
    return live_number(Layout(here / "prefix"), ModuleName("App", "1")) is not None


def told(capfd: pytest.CaptureFixture[str], words: list[str], code: int = 0) -> str:
    capfd.readouterr()
    assert run(words) == code
    return "".join(capfd.readouterr())


@pytest.mark.parametrize("more", [[], ["--locked"], ["--rebuild"], ["--only", "App/1"]])
def test_it_is_left_out_and_named(here: Path, more: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(here / "prefix/software/App")
    why = "it was retired on 2020-01-01, and removed; `sifmod retire --undo App/1` and another apply install it again"
    planned = told(capfd, [*PLAN, *more] if more != ["--only", "App/1"] else PLAN)
    assert f" [E] App/1: {why}\n" in planned
    assert "1 retired and removed" in planned
    applied = told(capfd, [*APPLY, *more])
    assert f"[E] App/1: {why}\n" in applied
    assert (f"  App/1: left out: {why}\n" in applied) == (more == ["--rebuild"])  # of what was done
    assert disk_state(here / "prefix/software/App").keys() >= before.keys()
    assert not is_there(here)
    row = next(row for row in json.loads(told(capfd, [*PLAN, "--json"]))["members"] if row["module"] == "App/1")
    assert (row["mark"], row["why"]) == ("E", [why])


def test_undoing_it_brings_it_back(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "App/1: no longer retired" in told(capfd, ["retire", "--undo", "App/1"])
    assert " [ ] App/1\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    assert is_there(here)
    assert "no module is called `App/3`" in told(capfd, ["retire", "--undo", "App/3"], 24)
    assert run(["uninstall", "App/1"]) == 0
    assert "no module is called `App/1`" in told(capfd, ["retire", "App/1"], 24)


def test_a_stack_that_has_retired_it_takes_it_back(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["retire", "--undo", "App/1"]) == 0
    stack(here, ", retired: {since: 2020-01-01}")
    assert run([*APPLY, "-q"]) == 0
    assert run(["gc", "--yes", "--now", "--ignore-jobs"]) == 0
    assert " [E] App/1: " in told(capfd, PLAN)
    stack(here)
    assert " [ ] App/1\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    assert is_there(here)


def test_no_lock_is_written_of_a_stack_with_it(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock = (here / "stack.lock").read_bytes() if (here / "stack.lock").exists() else None
    said = told(capfd, ["stack", "lock", "stack.yaml"], 18)
    why = "App/1 is not installed as described in App-1.yaml: it was retired on 2020-01-01, and removed;"
    assert why in said.replace(f"{here}/", "")
    assert "hint: or remove it from the stack" in said
    assert lock == ((here / "stack.lock").read_bytes() if (here / "stack.lock").exists() else None)
