"""Expand variables and `~/` in configuration, and make relative sources absolute."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sifmod.config.input import Input, read_input
from sifmod.config.redact import LOCAL, is_secret, shown
from sifmod.config.yaml.node import Node, leaves

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")
_WITH_PATH = re.compile(rf"({'|'.join(LOCAL)}):(?://)?(?=[^/])")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")


def resolve_sources(nodes: tuple[Node, ...], environ: Mapping[str, str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The usable sources, expanded and absolute; and a note for each one skipped because a variable is not set.

    A relative path is relative to the directory of the file that contains it. On the command line a bare name is the
    file of that name in the current directory, if it exists.
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
            how = f"`export {unset[0]}=…` sets it"
            notes.append(
                f"the source {shown(node.raw)} cannot be used, as the variable {unset[0]} is empty or not set: {how}"
            )
        else:
            settled.append(node)
    return tuple(settled), tuple(notes)


def secret_in_path(node: Node, environ: Mapping[str, str]) -> str:
    """The first variable with a secret's name in a remote source, except in its query; "" for none.

    Receipts and modulefiles show a source without its query.
    """
    source = str(node.value)
    scheme = _SCHEME.match(expand(source, environ).strip().lower())
    if scheme is None or scheme[0].rstrip(":") in LOCAL:
        return ""
    for match in _VARIABLE.finditer(source):
        if is_secret(match[1]) and "?" not in expand(source[: match.start()], environ):
            return match[1]
    return ""


def resolve_path(node: Node, environ: Mapping[str, str]) -> Node:
    """A path of `image.build`, expanded and made absolute like a source; unset variables stay as written."""
    if not isinstance(node.value, str):
        return node
    return replace(node, value=os.path.join(_directory(node), expand(node.value, environ)))  # noqa: PTH118 (text)


def _directory(node: Node) -> str:
    """The directory of the file with the value; for an option, the current directory."""
    return os.path.abspath(Path(node.mark.file).parent if node.mark.line else ".")  # noqa: PTH100 (a link stays one)


def _settled(source: str, directory: str) -> str:
    if (match := _WITH_PATH.match(source)) and not _REMOTE.match(source):
        return f"{match.group(1)}:{directory}/{source[match.end() :]}"
    if _SCHEME.match(source) or "/" not in source or source.startswith("/"):
        return source
    return os.path.normpath(f"{directory}/{source}")


def _spelled(text: str) -> str:
    return f"${{HOME}}/{text[2:]}" if text.startswith("~/") else text


def names_in(text: str) -> tuple[str, ...]:
    """The names of the variables in a text; HOME for a leading `~/`."""
    return tuple(match.group(1) for match in _VARIABLE.finditer(_spelled(text)))


def unset_in(text: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables in a text that are unset or empty and have no default."""
    found = _VARIABLE.finditer(_spelled(text))
    return tuple(match[1] for match in found if not environ.get(match[1]) and match[2] is None)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace each `${NAME}` and `${NAME:-DEFAULT}`, and a `~/` at the start by HOME.

    An unset or empty variable is replaced by its default, or stays as written without one.
    """

    def value(match: re.Match[str]) -> str:
        return environ.get(match[1]) or (match.group() if match[2] is None else match[2])

    return _VARIABLE.sub(value, _spelled(text))


def expand_paths(node: Node, environ: Mapping[str, str]) -> Node:
    """Expand every text at or below `node`.

    An unset variable at the start stays, after a `/`, so that the value is valid as a path for now.
    """
    if isinstance(node.value, dict):
        return replace(node, value={key: expand_paths(value, environ) for key, value in node.value.items()})
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(expand_paths(value, environ) for value in node.value))
    if not isinstance(node.value, str):
        return node
    text = expand(node.value, environ)
    return replace(node, value=f"/{text}" if text.startswith("${") else text)


def texts(node: Node) -> Iterator[Node]:
    """Every text at or below `node`."""
    return (leaf for _, leaf in leaves(node) if isinstance(leaf.value, str))


def variables_read(nodes: Iterable[Node], environ: Mapping[str, str]) -> tuple[Input, ...]:
    """The variables in the texts below `nodes`, as inputs."""
    names = [name for node in nodes for text in texts(node) for name in names_in(text.raw)]
    return tuple(read_input(f"${name}", environ) for name in dict.fromkeys(names))
