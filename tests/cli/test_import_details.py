"""`sifmod import`, to the letter: every file that it writes and every line that it says, of many inputs at once.

What is expected lies below import_details/expected. After a change that is meant remove the file and run the test,
which writes it anew (and fails), and read the difference.
"""

import shutil
from pathlib import Path

import pytest

from sifmod.cli.main import run

TESTS = Path(__file__).parents[1]
EXPECTED = TESTS / "import_details" / "expected"


def expected(name: str, text: str) -> str:
    path = EXPECTED / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} is new")
    return path.read_text()


@pytest.mark.parametrize("inputs", ["import", "import_details/own"])
def test_every_word(
    inputs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    name = inputs.rpartition("/")[2]
    shutil.copytree(TESTS / inputs, tmp_path / name)
    code = run(["import", name])
    said = capsys.readouterr()
    said_all = f"exit code {code}\n{said.out}\n{said.err}".replace(str(tmp_path), "")
    made = {path.name: path.read_text() for path in sorted(tmp_path.glob("*.yaml"))}
    assert said_all == expected(f"{name}.txt", said_all)
    for file, text in made.items():
        assert text == expected(f"{name}-{file}", text)
    assert {f"{name}-{file}" for file in made} == {path.name for path in EXPECTED.glob(f"{name}-*")}
