"""What takes room beside the tree is named by `gc` and `doctor`, with a command that frees it; neither removes it."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from support.disk_state import disk_state
from support.published import published

MB = 1 << 20


def fill(path: Path, size: int = 3 * MB, days: float = 0.0) -> Path:
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(size))
    if days:
        for one in (path, path.parent):
            os.utime(one, (then := path.stat().st_mtime - days * 86400, then))
    return path.parent


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (place := tmp_path / "tem porary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return place


def test_each_is_named_and_its_command_frees_it(
    temporary: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uid = os.geteuid()
    uv = fill(own_home / ".cache/uv/archive-v0/file")
    os.link(uv / "file", uv / "again")  # which takes no room
    bytecode = fill(own_home / f".cache/sifmod-bytecode-{uid}/file", 2 * MB)
    cache = fill(temporary / f"sifmod-{uid}-4711-abc/file", 4 * MB)
    old = fill(temporary / "sifmod-image-old/file", days=20)
    fill(temporary / "sifmod-test-small/file", 100)
    fill(temporary / "other/file")
    (temporary / "sifmod-scratch-link").symlink_to(temporary / "other")
    before = disk_state(temporary.parent)
    capfd.readouterr()
    assert run(["gc", "--yes", "--now", "--ignore-jobs", "--json"]) == 0
    rows = [row for row in json.loads(capfd.readouterr().out) if row["path"].startswith(str(temporary.parent))]
    assert [(row["kind"], Path(row["path"]), row["removed"]) for row in rows] == [
        ("cache", uv.parent, False),
        ("cache", bytecode, False),
        ("temporary files", cache, False),
        ("temporary files", old, False),
    ]
    assert [3 <= row["size"] / MB < 3.2 for row in rows] == [True, False, False, True]
    assert "changed within 14 days" in rows[2]["keep"]
    assert "not changed for 14 days" in rows[3]["keep"]
    assert {key: value for key, value in disk_state(temporary.parent).items() if "prefix" not in str(key)} == before
    run(["doctor"])
    said = capfd.readouterr().out
    assert f"{uv.parent} takes 3.1 MB" in said
    assert f"{bytecode} takes 2.1 MB" in said
    assert "directories of jobs and commands, such as " in said
    for row in rows:
        subprocess.run(shlex.split(row["keep"].split("`")[-2]), check=True, capture_output=True)
    assert sorted(path.name for path in temporary.iterdir()) == ["other", "sifmod-scratch-link", "sifmod-test-small"]
    assert not list((own_home / ".cache").rglob("file"))


def test_what_belongs_to_another_user_is_not_named(temporary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: to give a directory to another user")
    from sifmod.actions.disk_usage import disk_usage

    theirs = fill(temporary / "sifmod-scratch-theirs/file")
    os.chown(theirs, 12345, 12345)
    site = load_site({}, os.environ).site
    assert not [room for room in disk_usage(site) if room.path == theirs]


def test_counting_ends(own_home: Path) -> None:
    """And what could not be counted in time is named all the same."""
    from sifmod.actions.disk_usage import disk_usage

    cache = fill(own_home / ".cache/uv/archive-v0/file").parent
    (found,) = (room for room in disk_usage(load_site({}, os.environ).site, seconds=0) if room.path == cache)
    assert not found.whole
    assert found.text.startswith("more than ")


def test_stale_layers_are_named_with_their_size(temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    published(temporary.parent / "prefix")
    published(temporary.parent / "prefix", name="second")
    run(["doctor", "--json"])
    (found,) = (row for row in json.loads(capfd.readouterr().out) if row["subject"] == "stale layers")
    assert found["text"].startswith("2 layers for images that are no longer installed take ")
    assert "`sifmod layer list`" in found["hint"]
