"""Where each value comes from, for `config show` and `show --origins`."""

from typing import NamedTuple

from sifmod.config.yaml.node import Node, Number, join_key, leaves
from sifmod.config.yaml.validate import Model


class Origin(NamedTuple):
    """A value as text, and where it came from: the file and line, the variable, the option, or how it was found."""

    key: str
    value: str | None  # None: not set
    origin: str


def of_tree(node: Node, key: str) -> tuple[Origin, ...]:
    """The origins of every value of a merged tree below `key`."""
    return tuple(Origin(path, _text(leaf), str(leaf.mark)) for path, leaf in leaves(node, key))


def of_default(key: str, value: object) -> tuple[Origin, ...]:
    """The origins of a model's default, as for YAML: one for each item; none for an empty default."""
    match value:
        case Model():
            parts = [of_default(join_key(key, name), getattr(value, name)) for name in type(value).model_fields]
        case tuple():
            parts = [of_default(f"{key}[{number}]", item) for number, item in enumerate(value)]
        case None | "":
            parts = []
        case bool():
            return (Origin(key, "true" if value else "false", "default"),)
        case _:
            return (Origin(key, f"{value:g}" if isinstance(value, float) else str(value), "default"),)
    return tuple(origin for part in parts for origin in part)


def _text(node: Node) -> str:
    match node.value:
        case Number(text):
            return text
        case bool():
            return "true" if node.value else "false"
        case dict() | tuple():
            return "(empty)"
        case _:
            return str(node.value)
