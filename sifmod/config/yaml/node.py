"""A Node: a value of a configuration file that knows the file, line and column it came from."""

from dataclasses import dataclass

from sifmod.errors import Problem


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file; line and column count from 1. An option or a variable is a `file` with line 0."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Number:
    """A scalar that YAML reads as a number, or as a date: its own spelling."""

    text: str
    kind: str = "number"


Scalar = str | bool | None | Number
Value = dict[str, "Node"] | tuple["Node", ...] | Scalar


@dataclass(frozen=True)
class Node:
    """A value with its place, the place of its key (its own where it has none), and a scalar's spelling."""

    value: Value
    mark: Mark
    key: Mark
    raw: str = ""
    size: int = 1  # values in it, itself included, with every alias followed

    @property
    def entries(self) -> dict[str, "Node"]:
        """A map's entries; none for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple["Node", ...]:
        """A list's items; none for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def text(self) -> str:
        """A text; empty for anything else."""
        return self.value if isinstance(self.value, str) else ""


def kind(node: Node) -> str:
    """What a node is, for a message: `the number 2.20`, `a list`, `the text 'x'`."""
    match node.value:
        case dict():
            return "keys and values"
        case tuple():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return f"{node.raw}, which YAML reads as {'true' if node.value else 'false'}"
        case Number(text, what):
            return f"the {what} {text}"
        case str(text):
            return f"the text {shown(text)}"


def shown(text: str) -> str:
    """A text inside a message: quoted, one line, at most 60 characters."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def join_key(path: str, step: str | int) -> str:
    """A key path with one more step: `image` and `sources`, then 0, give `image.sources[0]`."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    key = step if step.isprintable() and len(step) <= 60 else shown(step)
    return f"{path}.{key}" if path else key


def problem_at(mark: Mark, key: str, message: str) -> Problem:
    """A problem at a mark."""
    return Problem(mark.file, mark.line, mark.column, key, message)


def tree(value: object, mark: Mark) -> Node:
    """Plain dicts, tuples, text and None as a Node, all of it at one mark."""
    if isinstance(value, dict):
        return Node({key: tree(inner, mark) for key, inner in value.items()}, mark, mark)
    if isinstance(value, tuple):
        return Node(tuple(tree(inner, mark) for inner in value), mark, mark)
    return Node(None, mark, mark) if value is None else Node(str(value), mark, mark, str(value))
