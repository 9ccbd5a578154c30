"""Every option of every command is typed by some test, beside its command."""

import ast
from functools import cache
from pathlib import Path

from support.options import options_of_commands

TESTS = Path(__file__).parents[1]


@cache
def words_of_files() -> tuple[frozenset[str], ...]:
    """Of each file of tests, the words of its texts, but for what explains; `--x=y` is `--x` too."""
    return tuple(_words(path) for path in sorted(TESTS.glob("*/test_*.py")) if path != Path(__file__))


def _words(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said)
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    return frozenset(words | {word.partition("=")[0] for word in words})


def test_each_option_is_typed_beside_its_command() -> None:
    """In some spelling; a new option needs a test of what it does, in a file where its command is run."""
    missing = [
        f"{' '.join(verb)} {'/'.join(spellings)}"
        for verb, spellings in options_of_commands()
        if not any(there.issuperset(verb) and there.intersection(spellings) for there in words_of_files())
    ]
    assert not missing, "\n".join(missing)
