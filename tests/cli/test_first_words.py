"""What newcomers type: words of other tools, slips, earlier names; nothing of it does anything by itself."""

from pathlib import Path

import pytest

from sifmod import __version__
from sifmod.cli.commands import ALIASES, COMMANDS
from sifmod.cli.main import run
from sifmod.cli.suggestion import OTHER_OPTIONS, OTHER_TOOLS, meaning_of, nearest
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from support.disk_state import disk_state
from support.tree import install


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a module that words might be meant for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    install(Layout(tmp_path / "prefix"), "a", ModuleName("PyTorch", "2.2.0"))
    return tmp_path / "prefix"


@pytest.mark.parametrize("word", OTHER_TOOLS)
def test_a_word_of_another_tool_does_nothing(word: str, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(prefix)
    assert run([word, "PyTorch/2.2.0"]) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"error: there is no command `{word}`\n\nhint: {OTHER_TOOLS[word]}\n")
    assert disk_state(prefix) == before
    assert word not in COMMANDS
    assert word not in ALIASES


@pytest.mark.parametrize("text", sorted({*OTHER_TOOLS.values(), *OTHER_OPTIONS.values()}))
def test_a_suggestion_names_commands_that_there_are(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    for typed in (part for part in text.split("`")[1::2] if part.startswith("sifmod ")):
        words = [word for word in typed.split()[1:] if not word.startswith("-") and word.islower()]
        assert (
            run([*words[: 2 if words[:1] and words[0] in ("stack", "site", "layer", "config") else 1], "--help"]) == 0
        )
    capfd.readouterr()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rm", "uninstall"),
        ("pull", "fetch"),
        ("info", "show"),
        ("update", "outdated"),
        ("run", "module load"),
        ("exec", "module load"),
        ("shell", "start-shell"),
        ("build", "image.build"),
        ("publish", "stack apply"),
        ("RM", "uninstall"),
        ("PyTorch-2.2.0.yaml", "sifmod install FILE"),
        ("PyTorch-2.2.0.eb", "sifmod install FILE"),
        ("lsit", "did you mean `sifmod list`?"),
        ("isntall", "did you mean `sifmod install`?"),
        ("uninstal", "did you mean `sifmod uninstall`?"),
        ("jobscrpit", "did you mean `sifmod jobscript`?"),
        ("versoin", ""),
        ("frobnicate", ""),
        ("kist", "did you mean `sifmod list`?"),
        ("xy", ""),
    ],
)
def test_what_is_meant(typed: str, meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([typed, "x"]) == 2
    hint = capfd.readouterr().err.partition("hint: ")[2]
    assert (meant or "`sifmod help` lists the commands") in hint


def test_only_slips_are_near() -> None:
    assert nearest("lsit", COMMANDS) == ["list"]
    assert nearest("tset", COMMANDS) == ["test"]
    assert nearest("ad", COMMANDS) == ["add"]
    assert nearest("publish", COMMANDS) == []
    assert nearest("retrie", COMMANDS) == ["retire"]
    assert nearest("ist", COMMANDS) == ["list"]
    assert meaning_of("apli", ("apply", "plan"), "stack") == ""
    assert meaning_of("aply", ("apply", "plan"), "stack") == "did you mean `sifmod stack apply`?"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("layer", "rm"), "did you mean `sifmod layer remove`?"),
        (("layer", "lsit"), "did you mean `sifmod layer list`?"),
        (("stack", "upgrade"), "did you mean `sifmod stack outdated`?"),
        (("site", "qqqq"), "`sifmod site --help` lists the commands"),
    ],
)
def test_a_word_within_a_group(words: tuple[str, ...], hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "x"]) == 2
    assert capfd.readouterr().err == f"error: there is no command `{' '.join(words)}`\n\nhint: {hint}\n"


def test_a_terminal_is_not_controlled_by_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["\x1b[2J"]) == 2
    assert capfd.readouterr().err.startswith("error: there is no command `\\x1b[2J`\n")


@pytest.mark.parametrize("option", OTHER_OPTIONS)
def test_an_option_of_easybuild_before_any_command(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([option, "pytorch"]) == 2
    assert capfd.readouterr().err.endswith(f"hint: {OTHER_OPTIONS[option]}\n")


def test_another_option_before_any_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--dry-run", "install", "x"]) == 2
    assert "hint: options follow a command: `sifmod install" in capfd.readouterr().err


@pytest.mark.parametrize("alias", ALIASES)
def test_an_earlier_name_goes_on_working_and_is_not_listed(alias: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([alias, "--help"]) == 0
    assert capfd.readouterr().out.startswith(f"Usage: sifmod {ALIASES[alias]} ")
    assert run(["--help"]) == 0
    assert f"  {alias} " not in capfd.readouterr().out


def test_layers_by_both_names(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["layers"], ["layer", "list"]):
        assert run(words) == 0
        assert capfd.readouterr().err == "there are no layers; `sifmod add MODULE PACKAGE` creates one\n"


def test_the_version_in_short(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["-V"]) == 0
    assert capfd.readouterr().out == f"sifmod {__version__}\n"
