"""A prefix that sifmod 0.1.0 has written, whose files name its place: it goes on working, and is taken over.

prefixes/0.1.0.tar.xz is what commit 3c9aac1 wrote, without its locks: two generations of a module of an image with
empty directories, for both module tools, and a file of the user's own. It can only be at /tmp/sifmod-0.1.0.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from loads import unloads
from sifmod.cli.main import run
from support.command import run as started
from support.disk_state import disk_state
from support.module_tool import ModuleTool

HOME = Path("/tmp/sifmod-0.1.0")
MODULE = "Tiny/1.0"
TAKEN_OVER = ("install", "-q", "--module-only", "--installed", "--skip-sanity-check")


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The prefix of 0.1.0 in its place."""
    with FileLock(f"{HOME}.lock"):
        shutil.rmtree(HOME, ignore_errors=True)
        started(("tar", "-C", "/tmp", "-xJf", Path(__file__).parents[1] / "prefixes" / "0.1.0.tar.xz")).ok()
        monkeypatch.setenv("SIFMOD_PREFIX", f"{HOME}/prefix")
        monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
        yield HOME / "prefix"
        shutil.rmtree(HOME)


@pytest.fixture
def elsewhere(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same prefix, moved."""
    place = tmp_path / "elsewhere"
    shutil.move(old, place)
    monkeypatch.setenv("SIFMOD_PREFIX", str(place))
    return place


def loaded(tool: ModuleTool, prefix: Path) -> dict[str, str]:
    """The environment in a load, after which it is as before."""
    _, step, _ = unloads(tool, prefix / "modules", f"module load {MODULE}", f"module unload {MODULE}")
    return dict(step.environment)


def generation(prefix: Path) -> str:
    return os.readlink(prefix / "software" / MODULE).rpartition("/")[2]


def test_it_goes_on_working(old: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(old)
    values = loaded(module_tool, old)
    assert (values["SINGULARITYENV_COLOUR"], Path(values["SIF"]).is_file()) == ("green", True)
    assert run(["verify"]) == 0
    assert run(["list"]) == 0
    assert capfd.readouterr().out.startswith("Tiny/1.0: ok\n")
    assert disk_state(old) == before
    assert run(["rollback", "Tiny"]) == 0
    assert loaded(module_tool, old)["SINGULARITYENV_COLOUR"] == "blue"


def test_it_is_taken_over(old: Path, module_tool: ModuleTool, tmp_path: Path) -> None:
    assert run([*TAKEN_OVER]) == 0
    assert generation(old) == "3"
    assert run(["verify"]) == 0
    assert loaded(module_tool, old)["SINGULARITYENV_COLOUR"] == "green"
    assert (old / "user-software" / MODULE / "user-software/mine.txt").read_text() == "mine\n"
    before = disk_state(old)
    assert run([*TAKEN_OVER]) == 0
    assert disk_state(old) == before
    moved = tmp_path / "moved"
    shutil.move(old, moved)
    values = loaded(module_tool, moved)
    assert str(old) not in " ".join(values.values())
    assert Path(values["SIF"]).is_file()


def test_a_module_can_go_back_to_what_0_1_0_has_made(old: Path, module_tool: ModuleTool) -> None:
    stubs = {path: path.read_text() for path in (old / "modules/Tiny").iterdir()}
    assert run([*TAKEN_OVER]) == 0
    assert all(path.read_text() != text for path, text in stubs.items())
    assert run(["rollback", "Tiny"]) == 0
    assert (generation(old), loaded(module_tool, old)["SINGULARITYENV_COLOUR"]) == ("2", "green")
    assert {path: path.read_text() for path in stubs} == stubs
    assert run(["rollback", "Tiny"]) == 0
    assert (generation(old), loaded(module_tool, old)["SINGULARITYENV_COLOUR"]) == ("3", "green")


@pytest.mark.parametrize("live", ["2", "3"])
def test_either_stub_works_with_either_generation(old: Path, live: str, module_tool: ModuleTool) -> None:
    """As a run that is killed between the switch and the stubs leaves it, and as a shell of before finds it."""
    stubs = {path: path.read_text() for path in (old / "modules/Tiny").iterdir()}
    assert run([*TAKEN_OVER]) == 0
    if live == "3":
        for path, text in stubs.items():
            path.write_text(text)
    else:
        (old / "software" / MODULE).unlink()
        (old / "software" / MODULE).symlink_to(".generations/1.0/2")
    values = loaded(module_tool, old)
    assert values["EBROOTTINY"] == f"{old}/software/Tiny/.generations/1.0/{live}"


def test_a_shell_that_loaded_before_unloads_after(old: Path, module_tool: ModuleTool) -> None:
    sifmod = f"{Path(sys.executable).with_name('sifmod')} {' '.join(TAKEN_OVER)} --prefix {old}"
    env = {"SIFMOD_MODULE_SYNTAX": "both"}
    unloads(module_tool, old / "modules", f"module load {MODULE}", sifmod, f"module unload {MODULE}", env=env)
    assert generation(old) == "3"


def test_moved_it_is_seen_and_repaired(
    elsewhere: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify"]) == 1
    out, err = capfd.readouterr()
    root = "software/Tiny/.generations/1.0/2"
    assert out == (
        "Tiny/1.0: 1 fault\n"
        f"  moved: {elsewhere}/{root}: expected files that name it, found files that name {HOME}/prefix/{root}\n"
    )
    assert "`sifmod install --module-only --installed`" in err
    assert run([*TAKEN_OVER]) == 0
    assert run(["verify"]) == 0
    values = loaded(module_tool, elsewhere)
    assert str(HOME) not in " ".join(values.values())
    assert Path(values["SIF"]).is_relative_to(elsewhere)
    assert Path(values["SIF"]).is_file()
    assert (elsewhere / "user-software" / MODULE / "user-software/mine.txt").read_text() == "mine\n"


def test_moved_it_is_installed_again(elsewhere: Path, module_tool: ModuleTool) -> None:
    assert run(["install", "-q", "--skip-sanity-check", f"{HOME}/Tiny-1.0.yaml"]) == 0
    assert generation(elsewhere) == "3"
    assert Path(loaded(module_tool, elsewhere)["SIF"]).is_relative_to(elsewhere)


def test_what_changed_between_its_generations(old: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(old)
    assert run(["diff", "Tiny"]) == 0
    assert "variables in the container: 1 changed\n  ~ COLOUR blue → green\n" in capfd.readouterr().out
    assert disk_state(old) == before
