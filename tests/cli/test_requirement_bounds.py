"""Files of requirements that were made to hurt: refused in seconds, by a message that names the bound."""

import time
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.disk_state import disk_state
from support.images import Images

RECIPE = "name: App\nversion: '1'\nimage: {{build: {{from: '{image}', requirements: wanted.txt}}}}\n"
SECONDS = 30  # a machine with a load of 20 needs 5 for the slowest


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "App-1.yaml", RECIPE.format(image=images.tiny_sif))
    return tmp_path


def refused(here: Path, capfd: pytest.CaptureFixture[str]) -> str:
    before, began = disk_state(here), time.monotonic()
    assert run(["install", "-q", "--yes", "App-1.yaml"]) in (2, 10)
    assert time.monotonic() - began < SECONDS
    after = disk_state(here)
    assert [path for path in after if "App" in str(path)] == [path for path in before if "App" in str(path)]
    return capfd.readouterr().err


def test_a_file_of_one_word(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "wanted.txt", "a" * 30_000_000)
    assert "wanted.txt has more bytes than 4194304 (`limits: {requirements_size: N}`" in refused(here, capfd)
    write(here / "wanted.txt", "a" * 4_000_000)
    told = refused(here, capfd)
    assert "wanted.txt:1: aaaaaaaa" in told
    assert "… has more characters than 65536 (`limits: {requirement_size: N}`" in told
    assert len(told) < 1000


def test_a_requirement_over_many_lines(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "wanted.txt", "six==1.0 \\\n" + "    --hash=sha256:00 \\\n" * 5000)
    assert "wanted.txt:1: six==1.0" in (told := refused(here, capfd))
    assert "has more characters than 65536" in told


def test_files_that_name_others_many_times(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Twelve names in each of nine files: 5 billion lines, each file once in a path."""
    for number in range(9):
        write(here / f"{number}.txt", f"-r {number + 1}.txt\n" * 12)
    write(here / "9.txt", "")
    write(here / "wanted.txt", "-r 0.txt\n")
    told = refused(here, capfd)
    assert "with it, requirements have more files than 1000 (`limits: {included_files: N}`" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"six{' ' * 60_000}x", "is not a requirement"),
        (f"six{' ' * 60_000}# comment\n-e x", "--editable is not supported"),
        (
            f"six; {'(' * 60_000}",
            "wanted.txt:1: ",
        ),  # nested too deep, or not a requirement where the recursion limit is higher
        (f"./{'a' * 60_000}", "names a path or URL"),
        ("[" * 60_000, "is not a requirement"),
    ],
)
def test_a_line_that_a_reader_could_hang_or_fail_on(
    here: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(here / "wanted.txt", f"{text}\n")
    assert said in refused(here, capfd)


@pytest.mark.parametrize("name", ["one\ntwo", "a#b"])
@pytest.mark.parametrize("words", [("-e", "{}"), ("./{}",), ("--find-links", "{}", "six")])
def test_a_directory_whose_name_is_more_than_a_path_for_uv(
    here: Path, name: str, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """With `-e` the name's second line was a requirement of its own."""
    write(here / name / "pyproject.toml", "")
    write(here / "one/pyproject.toml", "")
    assert run(["add", "App/1", *(word.format(name) for word in words)]) == 2
    assert "contains a # or a line break, which requirements cannot express" in capfd.readouterr().err
