"""A Node: a value of a configuration file with its position; and the rule for merging them."""

from dataclasses import dataclass, replace

from sifmod.errors import Problem
from sifmod.secret import without_secrets


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
    """A scalar that YAML reads as a number, a date or a merge key (`kind`), in its own spelling."""

    text: str
    kind: str = "number"


Scalar = str | bool | None | Number
Value = dict[str, "Node"] | tuple["Node", ...] | Scalar


@dataclass(frozen=True)
class Node:
    """A value with its position, the position of its key (or its own), and a scalar's spelling."""

    value: Value
    mark: Mark
    key: Mark
    raw: str = ""
    size: int = 1  # values in it, itself included, with every alias followed

    @property
    def entries(self) -> dict[str, "Node"]:
        """The entries of a map; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple["Node", ...]:
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def text(self) -> str:
        """The text; empty for other values."""
        return self.value if isinstance(self.value, str) else ""

    def at(self, *keys: str) -> "Node":
        """The value at this path of keys; a None node at this position if it is missing."""
        node = self
        for key in keys:
            node = node.entries.get(key) or Node(None, node.mark, node.key)
        return node


def kind(node: Node) -> str:
    """A description of a node for messages: `the number 2.20`, `a list`, `the text 'x'`."""
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
            return f"the text {printable_text(text)}"


def printable_text(text: str) -> str:
    """A text inside a message: quoted, on one line, without secrets, cut after 57 of more than 60 characters."""
    text = without_secrets(text)  # nobody finds one in a text that ends within it
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def join_key(path: str, step: str | int) -> str:
    """A key path with one more step: `image` and `sources`, then 0, give `image.sources[0]`."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    key = step if step.isprintable() and len(step) <= 60 else printable_text(step)
    return f"{path}.{key}" if path else key


def problem_at(mark: Mark, key: str, message: str) -> Problem:
    return Problem(mark.file, mark.line, mark.column, without_secrets(key), without_secrets(message))


def tree(value: object, mark: Mark) -> Node:
    """A Node, all of it at one mark, of plain dicts, tuples and None; any other value becomes text."""
    if isinstance(value, dict):
        return Node({key: tree(inner, mark) for key, inner in value.items()}, mark, mark)
    if isinstance(value, tuple):
        return Node(tuple(tree(inner, mark) for inner in value), mark, mark)
    return Node(None, mark, mark) if value is None else Node(str(value), mark, mark, str(value))


def merge(layers: tuple[Node, ...], mark: Mark) -> Node:
    """The layers merged, later ones over earlier ones; the result stands at `mark` (docs/design.md, section 1).

    Scalars and lists replace, maps merge by key, `null` removes, and `key+` appends to the list under `key`. Every
    value keeps its Node, and so its origin. Each layer must hold a map, with a list under each `key+` (check_layer
    reports it otherwise).
    """
    result = Node({}, mark, mark)
    for layer in layers:
        result = replace(_over(result, layer), mark=mark, key=mark)
    return result


def base_key(key: str) -> str:
    """`key` for `key+`; another key as it is."""
    return key.removesuffix("+")


def _over(base: Node, layer: Node) -> Node:
    """Merge `layer` over `base`; anything but a map over a map replaces.

    Nulls and `+` in a new map are resolved too.
    """
    if not isinstance(layer.value, dict):
        return layer
    entries = dict(base.value) if isinstance(base.value, dict) else {}
    for key, value in layer.value.items():
        if value.value is None:
            entries.pop(base_key(key), None)
        elif key.endswith("+") and not isinstance(value.value, tuple):
            continue  # reported by check_layer
        elif key.endswith("+"):
            under = entries.get(base_key(key))
            # `wrappers: auto` is a list with it
            before = () if under is None else (under,) if under.text else under.items
            entries[base_key(key)] = replace(value, value=(*before, *value.items))
        else:
            entries[key] = _over(entries.get(key, Node({}, value.mark, value.key)), value)
    return replace(layer, value=entries)


def leaves(node: Node, path: str = "") -> tuple[tuple[str, Node], ...]:
    """Every scalar, list item and empty container of a merged tree with its key path, in order."""
    if isinstance(node.value, dict) and node.value:
        inner = [leaves(value, join_key(path, key)) for key, value in node.value.items()]
    elif isinstance(node.value, tuple) and node.value:
        inner = [leaves(value, join_key(path, index)) for index, value in enumerate(node.value)]
    else:
        return ((path, node),)
    return tuple(leaf for part in inner for leaf in part)
