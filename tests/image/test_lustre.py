"""Striping: how `lfs` is called. There is no Lustre here: `lfs` is a fake that writes down its arguments."""

from pathlib import Path

import pytest

from sifmod.image import disk as lustre
from sifmod.image.settings import Striping
from support.command import run


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a fake `lfs` leaves its arguments."""
    told = tmp_path / "called"
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{told}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return told


def test_the_arguments_of_lfs(tmp_path: Path, called: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lustre, "is_lustre", lambda directory: directory == tmp_path)
    lustre.stripe(tmp_path / "new file", Striping(8, 4 << 20))
    assert called.read_text().splitlines() == ["setstripe", "-c", "8", "-S", "4194304", str(tmp_path / "new file")]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path, called: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lustre, "is_lustre", lambda directory: directory == tmp_path)
    (tmp_path / "old").touch()
    lustre.stripe(tmp_path / "old", Striping(8, 4 << 20))
    lustre.stripe(tmp_path / "new", None)
    assert not called.exists()


def test_without_lfs_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lustre, "is_lustre", lambda directory: directory == tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    lustre.stripe(tmp_path / "new", Striping(8, 4 << 20))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("directory", ["/", "/proc", "/dev/shm", "/no/such/directory"])
def test_other_file_systems_are_not_lustre(directory: str, called: Path) -> None:
    assert not lustre.is_lustre(Path(directory))
    lustre.stripe(Path(directory, "new"), Striping(1, 1 << 20))
    assert not called.exists()


@pytest.mark.parametrize("script", ["cat; echo noise; echo noise >&2; exit 3", "exec sleep 60"], ids=["fails", "hangs"])
def test_an_lfs_that_does_nothing_good_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], script: str
) -> None:
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(lustre, "is_lustre", lambda _: True)
    monkeypatch.setattr(lustre, "_LONGEST", 0.3 if "sleep" in script else 30.0)
    lustre.stripe(tmp_path / "new", Striping(1, 1 << 20))
    assert capfd.readouterr() == ("", "")
    program.write_text("no program at all")
    lustre.stripe(tmp_path / "new", Striping(1, 1 << 20))
    assert not (tmp_path / "new").exists()


def test_a_file_system_is_known_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = run(("stat", "-f", "-c", "%t", tmp_path)).ok().stdout
    monkeypatch.setattr(lustre, "_LUSTRE", int(number, 16))
    assert lustre.is_lustre(tmp_path)
    assert not lustre.is_lustre(Path("/proc"))
