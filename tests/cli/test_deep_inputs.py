"""Directories nested in each other, more than Python can call itself, in what a user is given."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write

DEPTH = 1200
HEAD = {"format": 1, "stack": "ours", "sifmod": {"version": "1", "sha256": "0"}, "settings": {}, "variables": {}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "a place"
    (place / "given").mkdir(parents=True)
    monkeypatch.setenv("SIFMOD_PREFIX", str(place / "prefix"))
    monkeypatch.chdir(place / "given")
    for _ in range(DEPTH):
        os.mkdir("d")
        os.chdir("d")
    Path("Deep-1.yaml").write_text("name: Deep\nversion: '1'\n")
    os.chdir(place)
    yield place
    subprocess.run(("rm", "-rf", place / "given"), check=True)  # Python's own removal ends with a RecursionError


def test_a_directory_that_is_a_bundle(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "given/bundle.json", json.dumps(HEAD))
    assert run(["stack", "apply", "--bundle", "given"]) == 2
    assert "given is not a bundle: unexpected file 'd/d/" in capfd.readouterr().err


def test_a_pattern_of_a_stack(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "stack.yaml", "name: ours\neasyconfigs: ['given/**/*.yaml']\n")
    assert run(["stack", "plan", "stack.yaml"]) == 5
    err = capfd.readouterr().err
    assert "visits more than 200 nested directories" in err
    assert "limits:" not in err


@pytest.mark.parametrize(("words", "code"), [(["check", "given"], 5), (["import", "given", "-o", "out"], 2)])
def test_a_directory_of_easyconfigs(here: Path, words: list[str], code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(words) == code
    assert ("Deep-1.yaml:1:1: image: expected" in capfd.readouterr().out) == (words[0] == "check")
    assert not (here / "out").exists()
