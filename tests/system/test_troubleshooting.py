"""docs/troubleshooting.md: the messages that it quotes are those of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from support.command import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
ANY = "\0"  # what only a run knows


def quoted(cell: str) -> list[str]:
    """What stands in code in a cell; two backticks may have one in between."""
    return [double.strip() or single for double, single in re.findall(r"``(.+?)``(?!`)|`([^`]+)`", cell)]


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a source; what is put into one is unknown."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def everything() -> list[str]:
    python = [path.read_text("utf-8") for path in (ROOT / "sifmod").rglob("*.py")]
    scripts = [path.read_text("utf-8") for path in (ROOT / "sifmod/module/templates").rglob("*") if path.is_file()]
    lines = [re.sub(r"\$\{?[\w@*#-]+\}?|%s|\$\(.*?\)", ANY, line) for text in scripts for line in text.splitlines()]
    return [text for source in python for text in texts(ast.parse(source))] + lines


def test_there_are_many() -> None:
    assert len(ROWS) > 50
    assert all(len(row) == 3 for row in ROWS), "message, cause, remedy"


def is_printed(message: str) -> bool:
    """Whether its parts stand in one text, in this order, with what only a run knows between them."""
    message = re.sub(r"answered \d+ …", f"answered {ANY}", message)
    parts = [part.strip() for part in message.split("…")]
    assert sum(map(len, parts)) >= 8, "too short to be found"
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.search(text) for text in everything())


@pytest.mark.parametrize("message", [message for row in ROWS for message in quoted(row[0])])
def test_a_message_is_in_the_code(message: str) -> None:
    assert is_printed(message)


def test_another_message_is_not() -> None:
    assert not is_printed("… has a good SHA-256 and was refused")
    assert not is_printed("waiting for …, which … is sleeping on")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_says_what_to_do(row: list[str]) -> None:
    assert row[2].rstrip(" |").strip()
