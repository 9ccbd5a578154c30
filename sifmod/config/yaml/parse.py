"""Parse YAML text to Nodes: values with file, line and column.

Uses the parser's events and not its objects, so that no tag creates an object, nesting cannot exhaust the stack,
aliases are counted before they are followed, and a scalar keeps its spelling: `2.20` is a `Number` with the text 2.20.
Types are those of YAML 1.1, as PyYAML's safe loader resolves them.
"""

import os
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from pathlib import Path

import yaml

from sifmod.config.input import Input
from sifmod.config.yaml.node import Mark, Node, Number, Scalar, Value, join_key, kind, problem_at
from sifmod.digest import sha256_bytes
from sifmod.errors import ConfigError, Problem

MAX_NODES = 10_000  # with every alias followed
MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_KEY = 1024  # characters, YAML's own limit unless a key begins with `?`; each problem below it has its path
_KEPT = 128  # parsed files: each easyconfig of a stack reads the same presets and quirks

_RESOLVER = yaml.resolver.Resolver()
_TAG = "tag:yaml.org,2002:"
_MERGE = Number("<<", "merge key")
_TRUE = ("yes", "true", "on")


@dataclass(frozen=True)
class Bounds:
    """Limits for one file, and the text for messages on how to raise them."""

    bytes: int = MAX_BYTES
    values: int = MAX_NODES
    raised: str = ""


OF_A_FILE = Bounds()


@dataclass
class _Open:
    event: yaml.CollectionStartEvent
    mark: Mark
    is_map: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    key: tuple[str, Mark] | None = None
    merging: bool = False  # the key is `<<`; its value is dropped
    size: int = 1

    def step(self) -> str | int | None:
        """The container's part of the key path for the current value; None in a map before a key."""
        if not self.is_map:
            return len(self.items)
        return self.key[0] if self.key else None


class Composer:
    """Takes events one by one and keeps the open containers on a list, so that nesting costs no recursion."""

    def __init__(self, file: str, most: "Bounds") -> None:
        """Compose the one document of `file`, a name for messages."""
        self.file = file
        self.most = most
        self.problems: list[Problem] = []
        self.open: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}  # None while the anchored value is still open
        self.root: Node | None = None
        self.documents = 0
        self.nodes = 0

    def feed(self, event: yaml.Event) -> None:
        """Process the next event; raises ConfigError if parsing cannot continue."""
        at = event.start_mark
        mark = Mark(self.file, at.line + 1, at.column + 1) if at else Mark(self.file, 1, 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop(mark, "a second document starts here: a file must have only one")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._complete(self._scalar(event, mark), event.anchor)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event, mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()

    def result(self) -> tuple[Node, tuple[Problem, ...]]:
        """The document's mapping and its problems; raises ConfigError if it is not a mapping."""
        start = Mark(self.file, 1, 1)
        if self.root is None or (self.root.value is None and not self.root.raw):
            self._stop(start, "the file is empty: expected keys and values such as `name: PyTorch`")
        elif not isinstance(self.root.value, dict):
            self._stop(self.root.mark, f"expected keys and values such as `name: PyTorch`, got {kind(self.root)}")
        assert self.root is not None  # noqa: S101 (for mypy: _stop raises)
        return self.root, tuple(self.problems)

    def _alias(self, name: str | None, mark: Mark) -> None:
        target = self.anchors.get(name or "")
        if target is not None:
            self._count(target.size, mark)
            self._place(target, mark)
        elif name in self.anchors:
            self._stop(mark, f"*{name} refers to a value that contains it")
        else:
            self._stop(mark, f"*{name} refers to no earlier &{name}")

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> Node:
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            self._stop(mark, "half of a surrogate pair is not a character")
        tag = event.tag
        if tag is None or tag == "!":
            implicit = event.implicit if tag is None else (False, True)
            tag = str(_RESOLVER.resolve(yaml.ScalarNode, event.value, implicit))  # type: ignore[no-untyped-call]
        elif tag != f"{_TAG}str":
            self._tag_problem(tag, mark)
            tag = f"{_TAG}str"
        return Node(_scalar_value(tag.removeprefix(_TAG), event.value), mark, mark, event.value)

    def _begin(self, event: yaml.CollectionStartEvent, mark: Mark) -> None:
        if len(self.open) >= MAX_DEPTH:
            self._stop(mark, f"nested more than {MAX_DEPTH} deep")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._tag_problem(event.tag, mark)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_Open(event, mark, isinstance(event, yaml.MappingStartEvent)))

    def _end(self) -> None:
        done = self.open.pop()
        value: Value = done.entries if done.is_map else tuple(done.items)
        self._complete(Node(value, done.mark, done.mark, size=done.size), done.event.anchor)

    def _complete(self, node: Node, anchor: str | None) -> None:
        self._count(1, node.mark)
        if anchor:
            self.anchors[anchor] = node
        self._place(node, node.mark)

    def _place(self, node: Node, mark: Mark) -> None:
        if not self.open:
            self.root = node
            return
        into = self.open[-1]
        into.size += node.size
        if not into.is_map:
            into.items.append(replace(node, key=mark))
        elif into.key is None:
            into.key = (self._key(node, mark), mark)
        else:
            name, at = into.key
            if not into.merging:
                into.entries.setdefault(name, replace(node, key=at))
            into.key, into.merging = None, False

    def _key(self, node: Node, mark: Mark) -> str:
        if isinstance(node.value, dict | tuple):
            self._stop(mark, f"a key must be text, got {kind(node)}")
        if len(node.raw) > MAX_KEY:
            self._stop(mark, f"a key of more than {MAX_KEY} characters")
        entries = self.open[-1].entries
        if node.value == _MERGE:
            self.open[-1].merging = True
            self._problem(mark, "<<", "YAML merge keys are not supported: use extends, a preset or variants")
        elif node.raw in entries:
            self._problem(mark, node.raw, f"duplicate key, first given in line {entries[node.raw].key.line}")
        return node.raw

    def _count(self, nodes: int, mark: Mark) -> None:
        self.nodes += nodes
        if self.nodes > self.most.values:
            self._stop(mark, f"more than {self.most.values} values when every alias is followed{self.most.raised}")

    def _tag_problem(self, tag: str, mark: Mark) -> None:
        written = tag.replace(_TAG, "!!", 1)
        self._problem(mark, None, f"the tag {written[:60]!r} is not allowed: only plain values are read")

    def _problem(self, mark: Mark, key: str | None, message: str) -> None:
        steps = [step for container in self.open if (step := container.step()) is not None]
        path = reduce(join_key, steps if key is None else [*steps, key], "")
        self.problems.append(problem_at(mark, path, message))

    def _stop(self, mark: Mark, message: str) -> None:
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
    composer = Composer(file, most)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.feed(event)
    except yaml.YAMLError as error:
        raise ConfigError((*composer.problems, _syntax_problem(error, text, file))) from error
    except (ValueError, OverflowError) as error:  # PyYAML without libyaml: an escape beyond Unicode
        raise ConfigError((*composer.problems, Problem(file, 1, 1, "", f"not YAML: {error}"))) from error
    return composer.result()


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
