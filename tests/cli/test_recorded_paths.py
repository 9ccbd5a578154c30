"""The path of an easyconfig in a receipt, which another user has made again where all may write."""

import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.command import User
from support.config import write
from support.identity import call_as
from support.images import Images
from support.registry import Registry

SKIP = "--skip-sanity-check"
OTHER = 71_000


@pytest.fixture
def checkout(
    needs_root: None,  # noqa: ARG001
    shared_tmp: Path,
    images: Images,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A directory in one like /tmp, with the easyconfig of a module that is installed."""
    place = shared_tmp / "like tmp"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setenv("SIFMOD_PREFIX", str(shared_tmp / "tree"))
    reference = registry.push_layout(images.tiny_layout(), "recorded:1")
    text = f"name: App\nversion: '1'\nimage: {{sources: ['{reference}']}}\nwrappers: [sh]\n"
    easyconfig = write(place / "checkout/App-1.yaml", text)
    assert run(["install", str(easyconfig), SKIP]) == 0
    registry.push_layout(images.tiny_layout("moved"), "recorded:1")
    return easyconfig.parent


def changed(checkout: Path) -> None:
    """As after `rm -r` by its owner, and `mkdir` by somebody else."""
    easyconfig = checkout / "App-1.yaml"
    write(easyconfig, easyconfig.read_text() + "env: {STRANGER: was here}\n")


@pytest.mark.parametrize("words", [["install", "--module-only", "--installed", "--yes"], ["upgrade", "--all"]])
def test_nobody_elses_easyconfig_is_taken(checkout: Path, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """A stranger's image and variables came into the module of everybody."""
    changed(checkout)
    for path in (checkout, *checkout.iterdir()):
        os.chown(path, OTHER, OTHER)
    there = Path(os.environ["SIFMOD_PREFIX"], "software/App")
    before = sorted(there.rglob("*"))
    capfd.readouterr()
    assert run(words) == 25
    said = " ".join("".join(capfd.readouterr()).split())
    assert f"is now a file of user {OTHER}, who may not be its author" in said
    assert sorted(there.rglob("*")) == before


@pytest.mark.parametrize("words", [["install", "--module-only", "--installed", "--yes"], ["upgrade", "--all"]])
def test_the_sites_paths_are_trusted(checkout: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(checkout))
    changed(checkout)
    for path in (checkout, *checkout.iterdir()):
        os.chown(path, OTHER, OTHER)
    assert run(words) == 0


def test_what_has_its_recorded_content_is_taken(checkout: Path) -> None:
    """Of whoever has the project directory now."""
    for path in (checkout, *checkout.iterdir()):
        os.chown(path, OTHER, OTHER)
    assert run(["install", "--module-only", "--installed", "--yes"]) == run(["upgrade", "--all"]) == 0


@pytest.mark.parametrize("words", [["install", "--module-only", "--installed", "--yes"], ["upgrade", "--all"]])
def test_ones_own_is(checkout: Path, words: list[str]) -> None:
    changed(checkout)
    there = Path(os.environ["SIFMOD_PREFIX"], "software/App")
    before = sorted(there.rglob("*"))
    assert run(words) == 0
    assert sorted(there.rglob("*")) != before


@pytest.mark.parametrize("words", [["install", "--module-only", "--installed", "--yes"], ["upgrade", "--all"]])
def test_one_that_is_closed_is_not_called_missing(
    checkout: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(checkout.parent / "none"))
    monkeypatch.setenv("HOME", str(checkout.parent))
    checkout.chmod(0o700)
    assert call_as(User(OTHER, OTHER), lambda: run(words)) == 25
    said = " ".join("".join(capfd.readouterr()).split())
    assert f"{checkout}/App-1.yaml is closed to you" in said
    assert "hint: ask its owner to open it" in said
