"""Where a source points: relative paths and variables in `image.sources` and `image.build`, made absolute."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.shown import LOCAL, shown
from sifmod.config.variables import expand, unset_in
from sifmod.config.yaml.node import Node

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")
_WITH_PATH = re.compile(rf"({'|'.join(LOCAL)}):(?://)?(?=[^/])")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class Sources:
    """The sources that can be tried, and a note for each one left out because a variable is not set."""

    nodes: tuple[Node, ...]
    notes: tuple[str, ...]


def settle_sources(nodes: tuple[Node, ...], environ: Mapping[str, str]) -> Sources:
    """Expand each source; a relative path is one of the directory of the file that says it.

    On the command line a bare name is the file of that name in the current directory, where there is one.
    """
    settled: list[Node] = []
    notes: list[str] = []
    for node in nodes:
        unset = unset_in(str(node.value), environ)
        if isinstance(node.value, str) and not unset:
            source = expand(node.value, environ)
            if not node.mark.line and os.path.exists(source):  # noqa: PTH110 (any text may be asked)
                source = os.path.abspath(source)  # noqa: PTH100 (a link stays a link)
            settled.append(replace(node, value=_settled(source, _directory(node))))
        elif unset:
            notes.append(f"source {shown(node.raw)} left out: the variable {unset[0]} is not set")
        else:
            settled.append(node)
    return Sources(tuple(settled), tuple(notes))


def settle_path(node: Node, environ: Mapping[str, str]) -> Node:
    """A path (`image.build`) made absolute in the same way; what is not set stays as written."""
    if not isinstance(node.value, str):
        return node
    return replace(node, value=os.path.join(_directory(node), expand(node.value, environ)))  # noqa: PTH118 (text)


def _directory(node: Node) -> str:
    """Of the file that a value stands in; of an option, the current one."""
    return os.path.abspath(Path(node.mark.file).parent if node.mark.line else ".")  # noqa: PTH100 (a link stays one)


def _settled(source: str, directory: str) -> str:
    if (match := _WITH_PATH.match(source)) and not _REMOTE.match(source):
        return f"{match.group(1)}:{directory}/{source[match.end() :]}"
    if _SCHEME.match(source) or "/" not in source or source.startswith("/"):
        return source
    return os.path.normpath(f"{directory}/{source}")
