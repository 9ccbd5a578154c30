"""Two hooks of one moment, and one that says much."""

from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.disk_state import disk_state


@pytest.fixture
def easyconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    return write(tmp_path / "Both-1.yaml", "name: Both\nversion: '1'\nmodules: [Other/1]\n")


def hooks(place: Path, moment: str, **programs: str) -> None:
    paths = []
    for name, text in programs.items():
        path = write(place / "hook s" / name, f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        paths.append(f"'{path}'")
    write(place / "etc-sifmod.d" / "hooks.yaml", f"hooks:\n  {moment}: [{', '.join(paths)}]\n")


def test_each_hook_of_a_moment_runs_in_order(
    tmp_path: Path, easyconfig: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks(tmp_path, "before_install", first="echo one", second="seq 1 12", third="echo three")
    assert run(["install", str(easyconfig)]) == 0
    said = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith(("== first", "== second", "== third"))
    ]
    assert said == ["== first: one", *(f"== second: {number}" for number in range(3, 13)), "== third: three"]


def test_one_that_fails_says_its_last_words_and_the_next_does_not_run(
    tmp_path: Path, easyconfig: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks(tmp_path, "before_publish", first="seq 1 12; exit 3", second="echo two")
    before = disk_state(tmp_path / "tree") if (tmp_path / "tree").exists() else None
    assert run(["install", str(easyconfig)]) != 0
    err = capfd.readouterr().err
    assert "failed with exit code 3; the module is as it was\n  3\n" in err
    assert "\n  12\n" in err
    assert ("\n  2\n" in err, "two" in err) == (False, False)
    assert f"hint: {tmp_path}/etc-sifmod.d/hooks.yaml configures it" in err
    assert before is None
    assert not (tmp_path / "tree/modules/Both").exists()
