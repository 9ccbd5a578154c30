"""The command as a process among others: closed streams, a directory that is gone, signals of a terminal."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SIFMOD = str(Path(sys.executable).with_name("sifmod"))

# whoever runs the tests may have SIGHUP ignored, which is inherited
START = "import os, signal, sys; signal.signal(1, getattr(signal, sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.mark.parametrize("arguments", ["list", "fetch ./no.sif"])
def test_closed_streams(tmp_path: Path, arguments: str) -> None:
    def started(how: str) -> subprocess.CompletedProcess[str]:
        command = ("sh", "-c", f"exec {SIFMOD} {arguments} {how}")
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    usual = started("")
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        code = started(closed)
        assert code.returncode == usual.returncode, closed
        assert "Traceback" not in code.stderr, closed
        assert code.stdout == ("" if ">&-" in closed.replace("2>&-", "") else usual.stdout), closed


@pytest.mark.parametrize("arguments", [("new", "./x.sif"), ("fetch", "./x.sif"), ("fetch", "-o", "x.sif", "./y.sif")])
def test_a_current_directory_that_is_gone(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", SIFMOD, *arguments)
    result = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    assert result.returncode in (1, 10)
    assert "Traceback" not in result.stderr
    assert "error: " in result.stderr
    assert not gone.exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed(tmp_path: Path, silent_server: socket.socket, *, ignored: bool) -> None:
    """SIGHUP cleans up as SIGTERM does; under nohup it is ignored, and stays so."""
    url = f"http://127.0.0.1:{silent_server.getsockname()[1]}/x.sif"
    start = (sys.executable, "-c", START, "SIG_IGN" if ignored else "SIG_DFL")
    command = (*start, SIFMOD, "fetch", "-q", url)
    process = subprocess.Popen((*command, "--prefix", str(tmp_path / "prefix")), stderr=subprocess.PIPE, text=True)
    connection, _ = silent_server.accept()
    with connection:
        process.send_signal(signal.SIGHUP)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (143 if ignored else 129)
    assert errors == "error: terminated; repeat the command to continue where it stopped\n"
    assert list((tmp_path / "prefix").glob(".staging/*")) == []


@pytest.mark.parametrize("words", [("site", "show"), ("--version",)])
def test_an_output_that_is_full_is_told_as_that(words: tuple[str, ...]) -> None:
    """Of the tree it says nothing. test_output.py has more of it."""
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([SIFMOD, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    assert result.stderr.startswith("error: the output cannot be written: No space left on device\n")
