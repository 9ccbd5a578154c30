"""A module that was retired, and removed since, stays away from a stack until that is undone."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
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


@pytest.mark.parametrize("more", [", labels: {team: ai}", ", hidden: true", ", labels: {team: ai}, default: true"])
def test_a_stack_that_says_something_else_of_it_leaves_it_away(
    here: Path, more: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A label was enough: the nightly apply ended the retirement, and installed the module again."""
    stack(here, more)
    for _ in range(2):
        planned = told(capfd, PLAN)
        assert " [E] App/1: it was retired on 2020-01-01" in planned
        assert "[D]" not in planned
        told(capfd, APPLY)
        assert not is_there(here)
    assert read_life(Layout(here / "prefix"), "App").of("1").retired
    assert run(["retire", "--undo", "App/1"]) == 0
    assert run([*APPLY, "-q"]) == 0
    assert is_there(here)


def test_a_stack_ends_only_the_decisions_that_it_made(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What staff decide by hand stays, whatever else a stack says of the same module."""
    layout = Layout(here / "prefix")
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: App-2.yaml, labels: {a: b}}, Other-1.yaml]\n")
    assert run([*APPLY, "-q"]) == 0
    assert run(["hide", "App/2"]) == 0
    assert run(["deprecate", "App/2", "--message", "old"]) == 0
    assert "[D]" not in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    life = read_life(layout, "App").of("2")
    assert life.hidden
    assert life.deprecated
    assert life.labels == (("a", "b"),)
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: App-2.yaml, hidden: true}, Other-1.yaml]\n")
    assert " [D] App/2: no longer labelled\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    write(here / "stack.yaml", "easyconfigs: [App-2.yaml, Other-1.yaml]\n")
    assert " [D] App/2: shown\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    life = read_life(layout, "App").of("2")
    assert life.deprecated
    assert not life.hidden


def test_a_default_that_stays_away_is_not_planned(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It was rolled back from, and uninstalled: what staff made the default meanwhile stays it."""
    write(here / "stack.yaml", "easyconfigs: [App-2.yaml, {easyconfig: Other-1.yaml, default: true}]\n")
    assert run([*APPLY, "-q"]) == 0
    old = (here / "Other-1.yaml").read_text()
    write(here / "Other-1.yaml", f"{old}env: {{A: bad}}\n")
    assert run([*APPLY, "-q"]) == 0
    assert run(["rollback", "Other/1"]) == 0
    assert run(["uninstall", "Other/1"]) == 0
    write(here / "Other-2.yaml", old.replace("'1'", "'2'"))
    assert run(["install", "-q", "Other-2.yaml", "--skip-sanity-check"]) == 0
    assert run(["default", "Other/2"]) == 0
    for _ in range(2):
        assert " [H] Other/1: " in (planned := told(capfd, PLAN))
        assert "[D]" not in planned
        assert "warning" not in told(capfd, APPLY)
        assert read_life(Layout(here / "prefix"), "Other").default == "2"
    assert run(["rollback", "--release", "Other/1"]) == 0
    assert " [D] Other/1: made the default\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    assert read_life(Layout(here / "prefix"), "Other").default == "1"


@pytest.mark.parametrize("as_json", [False, True])
def test_decisions_that_contradict_each_other_are_planned_as_they_fail(
    here: Path, as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """The plan said [D] and ended with 0, and the apply with 2; the decisions about other names are carried out."""
    assert run(["hide", "App/2"]) == 0
    stack = "easyconfigs: [{easyconfig: App-2.yaml, default: true}, {easyconfig: Other-1.yaml, hidden: true}]\n"
    write(here / "stack.yaml", stack)
    more = ["--json"] if as_json else []
    planned = told(capfd, [*PLAN, *more], 2)
    assert "App/2 cannot be the default and hidden" in planned
    assert as_json or " [D] Other/1: hidden\n" in planned
    assert "App/2 cannot be the default and hidden" in told(capfd, [*APPLY, *more], 2)
    assert read_life(Layout(here / "prefix"), "Other").of("1").hidden
    assert read_life(Layout(here / "prefix"), "App").default is None


def test_a_stack_names_no_module_as_its_own_successor(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The plan and the apply ended with 0, and a refused load said: use App/2."""
    entry = "easyconfig: App-2.yaml, retired: {since: 2020-01-01, successor: App/2}"
    write(here / "stack.yaml", f"easyconfigs: [{{{entry}}}]\n")
    for words in (PLAN, APPLY):
        assert "App/2 cannot be its own successor" in told(capfd, words, 2)
    assert not read_life(Layout(here / "prefix"), "App").of("2").retired


def test_what_no_longer_loads_is_made_no_default(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The plan and the apply ended with 0, and a load of App failed; a default that ends later stays one."""
    entry = "easyconfig: App-2.yaml, default: true, deprecated: {since: 2020-01-01, until: DAY}"
    for day, code in (("2999-01-01", 0), ("2020-02-01", 0)):
        write(here / "stack.yaml", f"easyconfigs: [{{{entry.replace('DAY', day)}}}]\n")
        told(capfd, APPLY, code)
        assert read_life(Layout(here / "prefix"), "App").default == "2"
    assert run(["default", "--none", "App"]) == 0
    for words in (PLAN, APPLY):
        assert "App/2 cannot be the default: App/2 was retired on 2020-02-02" in told(capfd, words, 2)
    assert read_life(Layout(here / "prefix"), "App").default is None


def test_a_module_that_comes_back_to_a_stack_is_as_it_says(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: App-2.yaml, hidden: true}, Other-1.yaml]\n")
    assert run([*APPLY, "-q"]) == 0
    write(here / "stack.yaml", "easyconfigs: [Other-1.yaml]\n")
    assert "[D]" not in told(capfd, PLAN)  # it stays hidden: nothing says what else it should be
    assert run([*APPLY, "-q"]) == 0
    write(here / "stack.yaml", "easyconfigs: [App-2.yaml, Other-1.yaml]\n")
    assert " [D] App/2: shown\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    assert not read_life(Layout(here / "prefix"), "App").of("2").hidden


def of_three(here: Path, app_2: str = "{easyconfig: App-2.yaml}") -> None:
    write(here / "stack.yaml", f"easyconfigs: [{app_2 + ', ' if app_2 else ''}Other-1.yaml]\n")


def gone(*words: str) -> None:
    assert run(["retire", "App/2", "--since", "2020-01-01", *words]) == 0
    assert run(["gc", "--yes", "--now", "--ignore-jobs"]) == 0


def test_what_staff_retire_stays_away_though_the_stack_has_deprecated_it(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was installed again, and was retired all the same."""
    layout, module = Layout(here / "prefix"), ModuleName("App", "2")
    of_three(here, "{easyconfig: App-2.yaml, deprecated: {since: 2026-01-01, until: 2999-01-01, message: old}}")
    assert run([*APPLY, "-q"]) == 0
    gone("--successor", "Other/1")
    of_three(here)
    assert " [E] App/2: it was retired on 2020-01-01, and removed" in told(capfd, PLAN)
    assert run(APPLY) == 0
    assert live_number(layout, module) is None


def test_what_a_stack_decided_ends_when_it_names_the_module_again(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a module that was removed in between the stack forgot it, and it stayed hidden."""
    layout = Layout(here / "prefix")
    of_three(here, "{easyconfig: App-2.yaml, hidden: true}")
    assert run([*APPLY, "-q"]) == 0
    of_three(here, "")
    assert run([*APPLY, "-q"]) == 0
    gone()
    assert run([*APPLY, "-q"]) == 0
    of_three(here)
    assert run(["retire", "--undo", "App/2"]) == 0
    assert " [D] App/2: shown\n" in told(capfd, PLAN)
    assert run([*APPLY, "-q"]) == 0
    assert not read_life(layout, "App").of("2").hidden
    assert live_number(layout, ModuleName("App", "2")) is not None
