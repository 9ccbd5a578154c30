"""YAML text to Nodes: values that know the file, line and column they came from.

Built from the parser's events and not from its objects, so that no tag ever makes one, nesting cannot exhaust the
stack, aliases are counted before they are followed, and a scalar keeps its own spelling: `2.20` is a `Number` that
still says 2.20. Types are those of YAML 1.1, as PyYAML's safe loader resolves them.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from sifmod.config.input import Input
from sifmod.config.yaml.compose import MAX_NODES, Composer
from sifmod.config.yaml.node import Mark, Node, problem_at
from sifmod.digest import sha256_bytes
from sifmod.errors import ConfigError, Problem

MAX_BYTES = 1 << 20

_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.1, 5.1
_LOADER: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """A file's content, what is wrong with its YAML beside its meaning, and its digest."""

    node: Node
    problems: tuple[Problem, ...]
    input: Input


def load_yaml(path: Path, most: int = MAX_NODES) -> Document:
    """Read one file of at most 1 MiB and `most` values that holds one YAML mapping; raises ConfigError alone."""
    data = _read(path)
    node, problems = parse_yaml(data, str(path), most)
    return Document(node, problems, Input(os.path.abspath(path), sha256_bytes(data)))  # noqa: PTH100 (keeps symlinks)


def parse_yaml(data: bytes, file: str, most: int = MAX_NODES) -> tuple[Node, tuple[Problem, ...]]:
    """A mapping and the problems that do not stop the reading (duplicate keys…); raises ConfigError for the rest."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        raise _failure(Mark(file, *_place(before, len(before))), "not UTF-8 text: save the file as UTF-8") from error
    if bad := _NOT_YAML.search(text):
        mark = Mark(file, *_place(text, bad.start()))
        raise _failure(mark, f"the control character {bad.group()!r} is not allowed in YAML")
    composer = Composer(file, most)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.feed(event)
    except yaml.YAMLError as error:
        raise ConfigError((*composer.problems, _syntax_problem(error, text, file))) from error
    except (ValueError, OverflowError) as error:  # PyYAML without libyaml: an escape beyond Unicode
        raise ConfigError((*composer.problems, Problem(file, 1, 1, "", f"not YAML: {error}"))) from error
    return composer.result()


def _read(path: Path) -> bytes:
    start = Mark(str(path), 1, 1)
    try:
        if path.is_dir():
            raise _failure(start, "is a directory, expected a YAML file")
        if path.exists() and not path.is_file():
            raise _failure(start, "is not a regular file, expected a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _failure(start, f"cannot be read: {reason[:1].lower()}{reason[1:]}") from error
    if len(data) > MAX_BYTES:
        raise _failure(start, "is larger than 1 MiB, the limit for a configuration file")
    return data


def _failure(mark: Mark, message: str) -> ConfigError:
    return ConfigError((problem_at(mark, "", message),))


def _place(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if line > text.count("\n") + 1:  # libyaml counts the end of the file as one more line
        line, column = _place(text, len(text))
    return Problem(file, line, column, "", _syntax_message(error, text, line, column))


def _syntax_message(error: yaml.YAMLError, text: str, line: int, column: int) -> str:
    what = str(getattr(error, "problem", "") or error).splitlines()[0]
    lines = text.split("\n")
    letter = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    if "cannot start any token" in what:
        if letter == "\t":
            return "a tab cannot be used here: indent with spaces"
        return f"a text that begins with {letter} must be quoted"
    if "mapping values are not allowed" in what:
        return "a second ': ' in one value: quote the text, or check the indentation"
    if "<document start>" in what:
        return "a second document begins here: a file holds one"
    context = getattr(error, "context", None)
    return f"not YAML: {what}{f' {context}' if context else ''}"
