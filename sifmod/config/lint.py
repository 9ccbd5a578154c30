"""Bind paths of a site or an easyconfig that are allowed and yet hardly meant, each with its place."""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

from sifmod.config.bind_paths import is_pattern, matches
from sifmod.config.text import can_be_bound
from sifmod.config.yaml.node import Node, join_key, problem_at
from sifmod.errors import Problem

# what the programs of the image live in
_OF_THE_IMAGE = re.compile(r"/usr|/etc|(/usr)?/(s?bin|lib(32|64|x32)?)")
_SHOWN = 5


def lint_binds(tree: Node) -> tuple[Problem, ...]:
    """What is odd about the binds of checked configuration, one file or several merged, seen from this machine.

    A `:` where two bind paths were meant, a missing source that is not optional, one target twice, a target that hides
    the image's own system, matches of a pattern that cannot be bound. The binds are those of a site, in groups, or of
    an easyconfig.
    """
    first: dict[str, str] = {}
    found: list[Problem] = []
    for key, item in bind_items(tree):
        source, target = ends(item)
        told = (_colon(item), _missing(item, source), _hiding(source, target), _left_out(source))
        messages = [message for message in told if message]
        if (other := first.setdefault(target.rstrip("/"), key)) != key:
            messages.append(f"its target {target} is that of {other} too, and the first one counts")
        found += [problem_at(item.mark, key, message) for message in messages]
    return tuple(found)


def bind_items(tree: Node) -> Iterator[tuple[str, Node]]:
    """Every bind path as it is written, with its key."""
    binds = tree.entries.get("binds")
    groups = [("binds", binds)] if binds else []
    if binds and binds.entries:
        groups = [(join_key("binds", name.removesuffix("+")), group) for name, group in binds.entries.items()]
    for path, group in groups:
        yield from ((join_key(path, index), item) for index, item in enumerate(group.items))


def ends(item: Node) -> tuple[str, str]:
    """Source and target; a pattern without a target of its own has itself, which no other bind has."""
    if item.text:
        parts = item.text.split(":")
        return parts[0], parts[1] if len(parts) > 1 else parts[0]
    source = item.entries["source"].text if "source" in item.entries else ""
    return source, item.entries["target"].text if "target" in item.entries else source


def _colon(item: Node) -> str:
    source, _, target = item.text.partition(":")
    if not target or ":" in target or target == source or not Path(target).is_dir():
        return ""
    return (
        f"{target} is a directory of this machine too: if two bind paths are meant, write {source} and {target} as two "
        f"items, if not, {{source: {source}, target: {target}}}"
    )


def _missing(item: Node, source: str) -> str:
    optional = item.entries.get("optional")
    if optional is not None and optional.value is True:
        return ""
    if is_pattern(source):
        return "" if matches(source) else f"nothing here fits {source}, and it is not optional: no module can be loaded"
    return "" if Path(source).exists() else f"{source} is not here and not optional: no module can be loaded"


def _hiding(source: str, target: str) -> str:
    """A target that the image's own programs need; of a pattern, the places that its matches go to."""
    targets = [target]
    if is_pattern(source):
        found = matches(source)
        targets = [path if target == source else f"{target}/{Path(path).name}" for path in found]
    hidden = [place for place in targets if _OF_THE_IMAGE.fullmatch(normpath(place))]
    return f"hides the image's own {_listed(hidden)}: the image's programs may not start" if hidden else ""


def _left_out(source: str) -> str:
    """Matches of a pattern that no bind path can name."""
    bad = [path for path in matches(source) if not can_be_bound(path)] if is_pattern(source) else []
    return (
        f"left out, for no bind path can hold what is in the name: {_listed([repr(path) for path in bad])}"
        if bad
        else ""
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
