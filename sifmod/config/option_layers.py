"""What SIFMOD_* variables and the command line's options say, as layers."""

import re
from collections.abc import Mapping

from sifmod.config.easyconfig import Easyconfig
from sifmod.config.expand import expand_paths
from sifmod.config.option import KEYS, VARIABLES
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Mark, Node, Number, Scalar, tree
from sifmod.config.yaml.validate import check_layer, did_you_mean
from sifmod.errors import OptionError

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
_PATHS = ("place", "places")


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raise OptionError for an unknown SIFMOD_* variable, which is probably a misspelled one."""
    for name in sorted(environ):
        if name.startswith("SIFMOD_") and name not in VARIABLES:
            near = did_you_mean(name, VARIABLES)
            raise OptionError(f"{name}: unknown variable{near}", f"known are {', '.join(sorted(VARIABLES))}")


def option_layers(overrides: Mapping[str, str], environ: Mapping[str, str]) -> tuple[Node, Node]:
    """The layer of the variables and the layer of the command line, where a relative path is one of this directory.

    Raises OptionError for an unknown SIFMOD_* variable and for every value that cannot be used.
    """
    refuse_unknown(environ)
    variables = {key: value for key in KEYS if (value := environ.get(f"SIFMOD_{key.upper()}"))}
    layers = (
        _layer({f"SIFMOD_{key.upper()}": (key, value) for key, value in variables.items()}, environ),
        _layer({f"--{key.replace('_', '-')}": (key, _absolute(key, value)) for key, value in overrides.items()}, {}),
    )
    if problems := [problem for layer in layers for problem in check_layer(SiteFile, layer)]:
        raise OptionError("\n".join(f"{problem.file}: {problem.message}" for problem in problems))
    return layers


def _layer(values: Mapping[str, tuple[str, str]], environ: Mapping[str, str]) -> Node:
    """Options as a Node: `values` gives the key and the text for each option's or variable's name."""
    entries: dict[str, Node] = {}
    for name, (key, text) in values.items():
        mark = Mark(name, 0, 0)
        node = Node(_value(key, text, mark), mark, mark, text)
        entries[key] = expand_paths(node, environ) if KEYS[key].type in _PATHS and environ else node
    start = Mark("the command line", 0, 0)
    return Node(entries, start, start)


def _value(key: str, text: str, mark: Mark) -> Scalar | tuple[Node, ...]:
    if KEYS[key].type == "places":
        return tuple(Node(part, mark, mark, part) for part in text.split(":") if part)
    return Number(text) if KEYS[key].type == "number" and _NUMBER.fullmatch(text) else text


def _absolute(key: str, text: str) -> str:
    return KEYS[key].in_full(text) if KEYS[key].type in _PATHS else text


def easyconfig_layer(overrides: Mapping[str, str | tuple[str, ...]]) -> Node:
    """What the command line says about an easyconfig, by key path; raises OptionError for what cannot be used."""
    entries: dict[str, object] = {}
    for path, value in overrides.items():
        parent, _, key = path.rpartition(".")
        entries |= {parent: {key: value}} if parent else {key: value}
    if "image.sources" in overrides:
        entries["image"] = {"sources": overrides["image.sources"], "build": None}
    node = tree(entries, Mark("the command line", 0, 0))
    if problems := check_layer(Easyconfig, node):
        raise OptionError("\n".join(f"{problem.key}: {problem.message}" for problem in problems))
    return node
