"""Messages, help texts, docstrings and pages have no words that an engineer of the field would not use for them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sifmod.cli.commands import COMMANDS
from sifmod.cli.main import cli
from support.command import ROOT

FORBIDDEN = (
    *("anew", "afresh", "became", "told", "mend", "mends", "mended", "heed", "heeded", "whoever", "whomever"),
    *("somebody", "everybody", "stranger", "strangers", "verb", "verbs", "carried over", "leads out of"),
    *("what is none", "that is none of", "a text that is none", "those that there are", "as it is to be", "put right"),
    *("in the place of", "not what was promised", "is asked for", "looked into", "it was looked at"),
)
# "it is no program", but not "there is no program"
NEGATED = r"(?<!there )is no (?:program|file|directory|bundle|lock|requirement|url|regular|receipt|registry|module)"
PATTERN = re.compile(rf"\b(?:{'|'.join(map(re.escape, FORBIDDEN))}|{NEGATED})\b", re.IGNORECASE)
# the user's files, which `carried over` is about; programs in other languages
EXEMPT = ("tree/state.py", "actions/install/install.py", "actions/layer/imports.py")
SOURCES = sorted(path for path in (ROOT / "sifmod").rglob("*.py") if not str(path).endswith(EXEMPT))


def found(text: str) -> list[str]:
    """The forbidden words of a text, with their surroundings; code in backticks does not count."""
    plain = re.sub(r"`[^`]*`|\w+\[[^ ]*\]", "`…`", " ".join(text.split()))
    return [plain[max(0, match.start() - 40) : match.end() + 40] for match in PATTERN.finditer(plain)]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and other texts of a source, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "sifmod")))
def test_the_texts_of_a_source(path: Path) -> None:
    assert [(line, words) for line, text in texts(path.read_text()) if (words := found(text))] == []


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """The help of a command and those below it, by what is typed."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below, click.Context(below, parent=context, info_name=name))


def test_the_help_of_each_command() -> None:
    read = dict(helps(cli, click.Context(cli, info_name="sifmod", **cli.context_settings)))
    assert len(read) > len(COMMANDS) > 30
    assert {typed: words for typed, text in read.items() if (words := found(text))} == {}


PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_sentences_of_a_page(path: Path) -> None:
    """But for "verb", a key of easyconfigs and a word of the house rules."""
    text = re.sub(r"(?ms)^```.*?^```|\bverb\b", "", path.read_text("utf-8"))
    assert found(text) == []


def test_each_word_is_found() -> None:
    assert all(found(f"The image {word}, perhaps.") for word in FORBIDDEN)
    assert found("/x is no program") and not found("there is no program")
    assert found(f"code `{FORBIDDEN[0]}` in backticks, and a longer word: {FORBIDDEN[0]}y") == []
