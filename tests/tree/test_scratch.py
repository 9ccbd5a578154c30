"""A directory for a moment: what a killed run has left of it goes with the next one, and nothing else does."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod.system import scratch_directory

HOLD = """
from sifmod.system import scratch_directory
with scratch_directory() as place:
    (place / "file").touch()
    print(place, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def started(temporary: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen(
        (sys.executable, "-c", HOLD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_run_has_left_goes(temporary: Path) -> None:
    killed, left = started(temporary)
    alive, held = started(temporary)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    for place in (left, held):
        os.utime(place, (0, 0))
    (fresh := temporary / "sifmod-scratch-fresh").mkdir()
    (other := temporary / "sifmod-0-4711-abc").mkdir()  # a cache of a job
    os.utime(other, (0, 0))
    (away := temporary / "away").mkdir()
    (link := temporary / "sifmod-scratch-link").symlink_to(away)
    with scratch_directory() as place:
        assert place.stat().st_mode & 0o777 == 0o700
        assert not left.exists()
        assert all(one.exists() for one in (held / "file", fresh, other, link, away))
    assert not place.exists()
    alive.communicate("\n")
    assert not held.exists()


def test_a_file_system_without_locks(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre is without `-o flock`: a directory is made, and one that may be in use is not removed."""

    def flock(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with scratch_directory() as first:
        (first / "file").touch()
        os.utime(first, (0, 0))
        with scratch_directory() as second:
            assert (first / "file").exists()
        assert not second.exists()
    assert not [*temporary.glob("sifmod-scratch-*")]


def test_another_users_is_left_alone(temporary: Path) -> None:
    (theirs := temporary / "sifmod-scratch-theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(theirs, 12345, 12345)
    else:
        theirs.chmod(0)
    os.utime(theirs, (0, 0))
    with scratch_directory():
        assert theirs.exists()


def test_a_directory_that_is_a_thousand_deep_goes_too() -> None:
    with scratch_directory() as place:
        subprocess.run(("mkdir", "-p", place / "/".join(["d"] * 1500)), check=True)
    assert not place.exists()
