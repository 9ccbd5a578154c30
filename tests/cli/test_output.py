"""What is printed: sizes, names that others gave, and what becomes of output that cannot be written."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.cli.output import say
from sifmod.system import escape_controls, one_line, size_text
from support.command import SIFMOD
from support.config import write

FULL = "error: the output cannot be written: No space left on device"


def test_sizes_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1_090_000_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.1 GB",
        "5.0 TB",
    ]


def test_what_steers_a_terminal_or_cannot_be_seen_is_spelled() -> None:
    odd = "\x1b\x9b\x7f\xad\u061c\u180e\u200b\u200d\u2028\u202e\u2060\u2069\u3164\ufeff\ufff9\U000e0041\udc80"
    assert [len(escape_controls(letter)) > 1 for letter in odd] == [True] * len(odd)
    assert escape_controls(odd).isprintable()
    assert escape_controls("é 漢\u3000\xa0字\n\t") == "é 漢\u3000\xa0字\n\t"
    assert one_line("a\n\tb\r") == r"a\n\tb\r"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 1),
        ("install -h", 1),
        ("--version", 1),
        ("schema", 1),
        ("schema --output list", 1),
        ("init bash", 1),
        ("site detect", 1),
        ("search pytorch 2.2.0", 1),
        ("list --json", 1),
        ("check nope --json", 4),
        ("install nope --json", 4),
        ("list --json --zz", 2),
        ("search zzzzzz --json", 1),
    ],
)
def test_output_that_cannot_be_written(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is told once, and an error of the verb keeps its exit code; messages that cannot be written change nothing."""
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(words.split()) == code
    err = capfd.readouterr().err
    assert err.count(FULL) == 1
    assert "Traceback" not in err
    usual = {"search zzzzzz --json": 1, "check nope --json": 4, "install nope --json": 4, "list --json --zz": 2}
    with Path("/dev/full").open("w") as full:
        monkeypatch.undo()
        monkeypatch.setattr(sys, "stderr", full)
        assert run(words.split()) == usual.get(words, 0)


def test_a_name_cannot_forge_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "name: Odd\nversion: '1'\nimage: {sources: [x.sif]}\n"
    good = write(tmp_path / "Odd-\n== \u061cforged.yaml", text)
    bad = write(tmp_path / "x\n== \u061cforged.eb", "name = 1\n")
    for words, code in (
        (("check", "."), 0),
        (("check", bad.name), 4),
        (("install", "-D", good.name, "odd", f"./{bad.stem}"), 4),
        (("import", bad.name, "-o", "out"), 5),
        (("search", "--robot-paths", ".", "odd"), 0),
    ):
        assert run(list(words)) == code
        said = "".join(capfd.readouterr())
        assert "forged" in said
        assert "\u061c" not in said
        assert "\n== \\u061cforged" not in said


@pytest.mark.parametrize(("locale", "plain"), [("C", True), ("POSIX", True), ("C.UTF-8", False), ("", False)])
def test_the_locale_c_has_ascii(
    locale: str, plain: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    if locale:
        monkeypatch.setenv("LC_ALL", locale)
        monkeypatch.setenv("LANG", "de_DE.UTF-8")  # the other one goes before it
    assert run(["fetch", "docker://127.0.0.1:9/x…y"]) != 0
    assert run(["--no-such…option"]) == 2
    say("the image 0123… → here")
    err = capfd.readouterr().err
    assert err.isascii() is plain
    assert ("== the image 0123... -> here" in err) is plain


@pytest.mark.parametrize(
    "words", [["install", "--help"], ["schema", "--help"], ["doctor"], ["search", "pytorch", "2.2"]]
)
def test_a_terminal_of_the_locale_c_has_ascii(words: list[str]) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "LC_ALL": "C"}
    with open(theirs, "wb") as terminal:
        subprocess.run([*SIFMOD, *words], stdout=terminal, stderr=subprocess.DEVNULL, env=environment, check=False)
        shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert shown
    assert shown.isascii()
