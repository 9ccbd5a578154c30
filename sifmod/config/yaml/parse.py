"""Parse YAML text to Nodes: values with file, line and column.

Uses the parser's events and not its objects, so that no tag creates an object, nesting has a limit, aliases are counted
before they are followed, and a scalar keeps its spelling: `2.20` is a `Number` with the text 2.20.
Types are those of YAML 1.1, as PyYAML's safe loader resolves them.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sifmod.config.input import Input
from sifmod.config.yaml.node import Mark, Node, Number, Scalar, Value, join_key, kind, problem_at
from sifmod.digest import sha256_bytes
from sifmod.errors import ConfigError, Problem
from sifmod.secret import cut

MAX_NODES = 10_000  # with every alias followed
MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_KEY = 1024  # characters, YAML's own limit unless a key begins with `?`; each problem below it has its path
_KEPT = 128  # parsed files: each easyconfig of a stack reads the same presets and quirks

_RESOLVER = yaml.resolver.Resolver()
_TAG = "tag:yaml.org,2002:"
_MERGE = Number("<<", "merge key")
_TRUE = ("yes", "true", "on")
Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Bounds:
    """Limits for one file, and the text for messages on how to raise them."""

    bytes: int = MAX_BYTES
    values: int = MAX_NODES
    raised: str = ""


OF_A_FILE = Bounds()


class _Composer:
    """Composes the document of `file`, a name for messages; calls itself for at most MAX_DEPTH nested values."""

    def __init__(self, file: str, most: Bounds, events: Iterator[Any]) -> None:
        self.file = file
        self.most = most
        self.events = events
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}  # None while the anchored value is still open
        self.nodes = 0
        self.depth = 0

    def document(self) -> Node:
        """The one document's mapping; raises ConfigError if it is none, or parsing cannot continue."""
        root: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                self._stop(self._mark(event), "a second document starts here: a file must have only one")
            if isinstance(event, yaml.NodeEvent):
                root = self._value(event, ())
        if root is None or (root.value is None and not root.raw):
            start = Mark(self.file, 1, 1)
            self._stop(start, "the file is empty: expected keys and values such as `name: PyTorch`")
        if not isinstance(root.value, dict):
            self._stop(root.mark, f"expected keys and values such as `name: PyTorch`, got {kind(root)}")
        return root

    def _mark(self, event: yaml.Event) -> Mark:
        at = event.start_mark
        return Mark(self.file, at.line + 1, at.column + 1) if at else Mark(self.file, 1, 1)

    def _value(self, event: Any, path: Steps) -> Node:
        """The value that starts with `event`, at this key path; its key is at the same place."""
        mark, before = self._mark(event), self.nodes
        if isinstance(event, yaml.AliasEvent):
            name = event.anchor or ""
            target = self.anchors.get(name)
            if target is None:
                what = "a value that contains it" if name in self.anchors else f"no earlier &{name}"
                self._stop(mark, f"*{name} refers to {what}")
            self._count(target.size, mark)
            return replace(target, key=mark)
        is_scalar = isinstance(event, yaml.ScalarEvent)
        value = self._scalar(event, mark, path) if is_scalar else self._collection(event, mark, path)
        self._count(1, mark)
        node = Node(value, mark, mark, event.value if is_scalar else "", self.nodes - before)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark, path: Steps) -> Scalar:
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            self._stop(mark, "half of a surrogate pair is not a character")
        tag = event.tag
        if tag is None or tag == "!":
            implicit = event.implicit if tag is None else (False, True)
            tag = str(_RESOLVER.resolve(yaml.ScalarNode, event.value, implicit))  # type: ignore[no-untyped-call]
        elif tag != f"{_TAG}str":
            self._tag_problem(tag, mark, path)
            tag = f"{_TAG}str"
        return _scalar_value(tag.removeprefix(_TAG), event.value)

    def _collection(self, event: yaml.CollectionStartEvent, mark: Mark, path: Steps) -> Value:
        if self.depth >= MAX_DEPTH:
            self._stop(mark, f"nested more than {MAX_DEPTH} deep")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._tag_problem(event.tag, mark, path)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.depth += 1
        value = self._map(path) if isinstance(event, yaml.MappingStartEvent) else self._list(path)
        self.depth -= 1
        return value

    def _list(self, path: Steps) -> tuple[Node, ...]:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return tuple(items)

    def _map(self, path: Steps) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._value(event, path)
            inside = (*path, key.raw)
            if isinstance(key.value, dict | tuple):
                self._stop(key.key, f"a key must be text, got {kind(key)}")
            if len(key.raw) > MAX_KEY:
                self._stop(key.key, f"a key of more than {MAX_KEY} characters")
            if key.value == _MERGE:
                message = "YAML merge keys are not supported: use extends, a preset or variants"
                self._problem(key.key, inside, message)
                self._value(next(self.events), inside)
                continue
            if key.raw in entries:
                self._problem(key.key, inside, f"duplicate key, first given in line {entries[key.raw].key.line}")
            entries.setdefault(key.raw, replace(self._value(next(self.events), inside), key=key.key))
        return entries

    def _count(self, nodes: int, mark: Mark) -> None:
        self.nodes += nodes
        if self.nodes > self.most.values:
            self._stop(mark, f"more than {self.most.values} values when every alias is followed{self.most.raised}")

    def _tag_problem(self, tag: str, mark: Mark, path: Steps) -> None:
        written = tag.replace(_TAG, "!!", 1)
        self._problem(mark, path, f"the tag {cut(written, 60)!r} is not allowed: only plain values are read")

    def _problem(self, mark: Mark, path: Steps, message: str) -> None:
        self.problems.append(problem_at(mark, reduce(join_key, path, ""), message))

    def _stop(self, mark: Mark, message: str) -> NoReturn:
        raise ConfigError((*self.problems, problem_at(mark, "", message)))


def _scalar_value(tag: str, raw: str) -> Scalar:
    match tag:
        case "null":
            return None
        case "bool":
            return raw.lower() in _TRUE
        case "int" | "float":
            return Number(raw)
        case "timestamp":
            return Number(raw, "date")
        case "merge":
            return _MERGE
        case _:
            return raw


_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.1, 5.1
_LOADER: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """A file's content, its YAML problems, and its digest."""

    node: Node
    problems: tuple[Problem, ...]
    input: Input


def load_yaml(path: Path, most: Bounds = OF_A_FILE) -> Document:
    """Read a file with one YAML mapping; raises only ConfigError."""
    start = Mark(str(path), 1, 1)
    try:
        if path.is_dir():
            raise _failure(start, "is a directory, expected a YAML file")
        if path.exists() and not path.is_file():
            raise _failure(start, "is not a regular file, expected a YAML file")
        with path.open("rb") as file:
            data = file.read(most.bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _failure(start, f"cannot be read: {reason[:1].lower()}{reason[1:]}") from error
    if len(data) > most.bytes:
        raise _failure(start, f"has more than {most.bytes} bytes, the limit for a configuration file{most.raised}")
    node, problems = parse_yaml(data, str(path), most)
    return Document(node, problems, Input(os.path.abspath(path), sha256_bytes(data)))  # noqa: PTH100 (keeps symlinks)


@lru_cache(_KEPT)
def parse_yaml(data: bytes, file: str, most: Bounds = OF_A_FILE) -> tuple[Node, tuple[Problem, ...]]:
    """A mapping and the problems that do not stop the reading (duplicate keys…); raises ConfigError for others."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        raise _failure(Mark(file, *_place(before, len(before))), "not UTF-8 text: save the file as UTF-8") from error
    if bad := _NOT_YAML.search(text):
        mark = Mark(file, *_place(text, bad.start()))
        raise _failure(mark, f"the character {bad.group()!r} is not allowed in YAML")
    composer = _Composer(file, most, yaml.parse(text, Loader=_LOADER))
    try:
        return composer.document(), tuple(composer.problems)
    except yaml.YAMLError as error:
        raise ConfigError((*composer.problems, _syntax_problem(error, text, file))) from error
    except (ValueError, OverflowError) as error:  # PyYAML without libyaml: an escape beyond Unicode
        raise ConfigError((*composer.problems, Problem(file, 1, 1, "", f"not YAML: {error}"))) from error


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
    what = str(getattr(error, "problem", "") or error).splitlines()[0]
    lines = text.split("\n")
    letter = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    context = getattr(error, "context", None)
    message = f"not YAML: {what}{f' {context}' if context else ''}"
    if "cannot start any token" in what and letter == "\t":
        message = "a tab cannot be used here: indent with spaces"
    elif "cannot start any token" in what:
        message = f"a text that starts with {letter} must be quoted"
    elif "mapping values are not allowed" in what:
        message = "a second ': ' in one value: quote the text, or check the indentation"
    elif "maximum nesting depth" in what:  # libyaml has its own limit and reads ahead, before any event
        message = f"nested more than {MAX_DEPTH} deep"
    elif "<document start>" in what:
        message = "a second document starts here: a file must have only one"
    return Problem(file, line, column, "", message)
