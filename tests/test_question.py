"""The question before a large image goes into a home directory that nobody chose as its place."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = "name: Far\nversion: '1'\nimage: {sources: ['docker://127.0.0.1:1/far:1']}\n"  # nobody listens there


@pytest.fixture
def easyconfig(tmp_path: Path) -> Path:
    path = tmp_path / "Far-1.yaml"
    path.write_text(SMALL)
    return path


def answered(answer: str, easyconfig: Path, terminal: str = "xterm") -> tuple[int, str]:
    """Exit code and all that is shown by an install on a terminal where `answer` is typed after the question."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sifmod", "install", str(easyconfig)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": terminal}
    )
    os.close(theirs)
    said, left = b"", f"{answer}\n".encode()
    try:
        while part := os.read(ours, 4096):
            said += part
            if left and said.endswith(b": "):
                os.write(ours, left)
                left = b""
    except OSError:  # the other side has ended
        pass
    return process.wait(), said.decode()


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_the_question_and_its_answer_are_on_one_line(easyconfig: Path, own_home: Path, terminal: str) -> None:
    prefix = own_home / ".local" / "share" / "sifmod"
    said = answered("n", easyconfig, terminal)[1]
    assert f"\nFetch it into {prefix} all the same? [y/N]: n\r\n" in said
    assert "\x1b[?25l" not in said  # no display that lives had begun


def test_no_means_no(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("n", easyconfig)
    assert code == 2
    assert "of unknown size (most are 2 to 20 GB) and would go to" in said
    assert "nothing was fetched" in said
    assert not (own_home / ".local").exists()


def test_the_end_of_what_is_typed_interrupts(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("\x04", easyconfig)
    assert code == 130
    assert "interrupted; repeat the command to go on where it stopped\r\n" in said
    assert not (own_home / ".local").exists()


def test_yes_goes_on(easyconfig: Path) -> None:
    code, said = answered("y", easyconfig)
    assert code == 10
    assert "no source of the image" in said


def test_yes_on_the_command_line_and_a_chosen_prefix_need_no_question(easyconfig: Path, tmp_path: Path) -> None:
    for option in (["--yes"], ["--prefix", str(tmp_path / "chosen")]):
        command = [sys.executable, "-m", "sifmod", "install", str(easyconfig), *option]
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert result.returncode == 10, result.stderr


@pytest.mark.parametrize(("size", "code"), [(2 * 10**9, 10), (2 * 10**9 + 1, 2)])
def test_a_known_size_is_asked_about_from_2_gb(size: int, code: int, tmp_path: Path) -> None:
    image = tmp_path / "large.sif"
    with image.open("wb") as file:
        file.truncate(size)  # all holes, and no SIF: it is refused before it is copied
    easyconfig = tmp_path / "Large-1.yaml"
    easyconfig.write_text(f"name: Large\nversion: '1'\nimage: {{sources: [{image}]}}\n")
    command = [sys.executable, "-m", "sifmod", "install", str(easyconfig)]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert result.returncode == code, result.stderr
    assert ("2.0 GB large" in result.stderr) == (code == 2)
