"""Which prefix a setting is about: who names a prefix of their own is not held to the sharing of the machine's."""

from collections.abc import Sequence
from dataclasses import replace

from sifmod.config.yaml.node import Node

_SHARING = ("sharing", "group", "umask")


def about_this_prefix(levels: Sequence[Sequence[Node]]) -> tuple[tuple[Node, ...], dict[str, str]]:
    """The layers without the sharing of another prefix than the last one named, and the prefixes which that one hides.

    A level is the machine's files, the user's, the variables or the command line. With `sharing` go the `group` and the
    `umask` of its level; where nothing says `sharing` they stay. The prefixes have the place at which each is named.
    """
    named = [_prefix(level) for level in levels]
    last = next((node.text for node in reversed(named) if node), "")
    kept: list[Node] = []
    before = ""
    for level, node in zip(levels, named, strict=True):
        before = node.text if node else before
        foreign = before not in ("", last) and any("sharing" in layer.entries for layer in level)
        kept += [_without_sharing(layer) if foreign else layer for layer in level]
    others = (node for node in named if node and node.text != last)
    return tuple(kept), {
        node.text: str(node.mark) for node in others if node.text.startswith("/") and "$" not in node.text
    }


def _prefix(level: Sequence[Node]) -> Node | None:
    nodes = (layer.entries.get("prefix") for layer in reversed(level))
    return next((node for node in nodes if node is not None and node.text), None)


def _without_sharing(layer: Node) -> Node:
    return replace(layer, value={key: node for key, node in layer.entries.items() if key not in _SHARING})
