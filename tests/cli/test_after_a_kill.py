"""After an install that was killed only its own module is marked, and what removes the remains is named."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.images import Images
from support.steps import some
from support.victim import Victim


def test_other_modules_are_as_they_were(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "pre fix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.chdir(tmp_path)
    text = "name: {}\nversion: '1'\nimage: {{sources: ['{}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    for name in ("App", "Other"):
        write(tmp_path / f"{name}-1.yaml", text.format(name, images.tiny_sif))
        assert run(["install", f"{name}-1.yaml", "--skip-sanity-check", "-q"]) == 0
    write(tmp_path / "App-1.yaml", text.format("App", images.tiny("another")))
    again = (["uninstall", "App/1"], ["gc", "--yes", "--now", "--ignore-jobs"])
    env = {"HOME": str(tmp_path), "SIFMOD_SITE": "generic", "PATH": "/none", "SIFMOD_CONFIG_DIR": "/none"}
    words = ("install", tmp_path / "App-1.yaml", "--prefix", prefix, "--skip-sanity-check")
    told = set()
    with Victim(env) as victim:
        assert [run(each) for each in again] == [0, 0]
        steps = victim.run(words).steps
        for step in some(1, steps, 6):
            run(again[0])  # which is not there after some kills
            assert run(again[1]) == 0
            victim.run(words, "killed", step)
            capfd.readouterr()
            assert run(["list", "--json"]) == 0
            rows = {row["module"]: row["problems"] for row in json.loads(capfd.readouterr().out)}
            assert rows["Other/1"] == [], step
            assert run(["install", "-D", "Other-1.yaml"]) == 0
            assert " * [x] Other-1.yaml" in capfd.readouterr().out, step
            assert run(["list"]) == 0
            said = "".join(capfd.readouterr())
            told |= {line.partition("; ")[2] or line.partition(": ")[2] for line in said.splitlines() if "died" in line}
            assert run(["gc", "--yes"]) == 0
            assert run(["list"]) == 0
            assert "died" not in "".join(capfd.readouterr())
    assert told
    assert all("`sifmod gc --yes` removes them" in text or "or `sifmod gc --yes`" in text for text in told)


def test_a_fetch_removes_what_a_killed_install_left(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what the disk is full of."""
    prefix = tmp_path / "pre fix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    write(tmp_path / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    env = {"HOME": str(tmp_path), "SIFMOD_SITE": "generic", "PATH": "/none", "SIFMOD_CONFIG_DIR": "/none"}
    words = ("install", tmp_path / "App-1.yaml", "--prefix", prefix, "--skip-sanity-check", "--rebuild")
    left = 0
    with Victim(env) as victim:
        steps = victim.run(words).steps
        for step in some(1, steps, 5):
            victim.run(words, "killed", step)
            left += len(list(prefix.glob(".staging/*")))
            assert run(["fetch", str(images.tiny("another"))]) == 0
            assert list(prefix.glob(".staging/*")) == []
    assert left
