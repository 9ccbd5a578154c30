"""The one rule by which configuration is merged (design section 3).

Scalars and lists replace, maps merge by key, `null` removes, and `key+` appends to the list under `key`. Every value
keeps its Node, and with it the place it came from.
"""

from dataclasses import replace

from sifmod.config.yaml.node import Mark, Node, join_key


def merge(layers: tuple[Node, ...], mark: Mark) -> Node:
    """The layers merged, later ones over earlier ones; the result stands at `mark`.

    Each layer must hold a map, with a list under each `key+` (check.check_layer says so where one does not).
    """
    result = Node({}, mark, mark)
    for layer in layers:
        result = replace(_over(result, layer), mark=mark, key=mark)
    return result


def base_key(key: str) -> str:
    """The key that `key+` appends to."""
    return key.removesuffix("+")


def _over(base: Node, layer: Node) -> Node:
    """`layer` over `base`; what is not a map over a map replaces. Nulls and `+` inside a new map are resolved too."""
    if not isinstance(layer.value, dict):
        return layer
    entries = dict(base.value) if isinstance(base.value, dict) else {}
    for key, value in layer.value.items():
        if value.value is None:
            entries.pop(base_key(key), None)
        elif key.endswith("+"):
            base_list = entries.get(base_key(key))
            before = _list_of(base_list) if base_list is not None else ()
            entries[base_key(key)] = replace(value, value=(*before, *value.items))
        else:
            entries[key] = _over(entries.get(key, Node({}, value.mark, value.key)), value)
    return replace(layer, value=entries)


def _list_of(node: Node) -> tuple[Node, ...]:
    """A list's items; a text that stands for a list (`wrappers: auto`) is its only item."""
    return (node,) if node.text else node.items


def leaves(node: Node, path: str = "") -> tuple[tuple[str, Node], ...]:
    """Every scalar, list item and empty container of a merged tree with its key path, in order."""
    if isinstance(node.value, dict) and node.value:
        inner = [leaves(value, join_key(path, key)) for key, value in node.value.items()]
    elif isinstance(node.value, tuple) and node.value:
        inner = [leaves(value, join_key(path, index)) for index, value in enumerate(node.value)]
    else:
        return ((path, node),)
    return tuple(leaf for part in inner for leaf in part)
