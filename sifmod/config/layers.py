"""The layers of an easyconfig: its presets, what it extends, the file itself, and its variants."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from sifmod.config.check import check_layer
from sifmod.config.easyconfig import Accelerator, Easyconfig, EasyconfigFile
from sifmod.config.find import find_easyconfig
from sifmod.config.input import Input
from sifmod.config.node import Mark, Node, problem_at, tree
from sifmod.config.yaml import load_yaml
from sifmod.errors import ConfigError, EasyconfigNotFoundError, Problem

_USED_UP = ("extends", "preset", "variants")


@dataclass(frozen=True)
class Layers:
    """What is merged, in this order: `first`, `common`, those of one of the `variants`, `last`."""

    common: tuple[Node, ...]
    variants: dict[str, tuple[Node, ...]]
    inputs: tuple[Input, ...]
    first: tuple[Node, ...] = ()
    last: tuple[Node, ...] = ()

    def of(self, variant: str | None) -> tuple[Node, ...]:
        """The layers of one variant; of the easyconfig itself for None.

        A variant called rocm, cuda, none or cpu has that accelerator where nothing says otherwise.
        """
        if variant is None:
            return (*self.first, *self.common, *self.last)
        named = {"cpu": "none"}.get(variant, variant)
        said = {"accelerator": named} if named in get_args(Accelerator) else {}
        own = tree(said, Mark(f"variant {variant}", 0, 0))
        return (*self.first, own, *self.common, *self.variants[variant], *self.last)


def read_layers(path: Path, robot_paths: tuple[Path, ...]) -> Layers:
    """Read a file, its preset and all that it extends; raises ConfigError with every problem of every file."""
    reading = _Reading(robot_paths)
    layers = reading.file(path, ())
    if reading.problems:
        raise ConfigError(tuple(sorted(set(reading.problems))))
    return layers


@dataclass
class _Reading:
    """Follows `preset` and `extends`, and goes on after a problem so that all are found."""

    robot_paths: tuple[Path, ...]
    problems: list[Problem] = field(default_factory=list)

    def file(self, path: Path, above: tuple[Path, ...]) -> Layers:
        """`above` are the files that extend this one, by their real paths."""
        node, inputs = self._read(path, EasyconfigFile)
        entries = node.entries if node is not None else {}
        above = (*above, Path(os.path.realpath(path)))
        common, read = self._preset(entries.get("preset"))
        base = self._extended(entries.get("extends"), path, above)
        variants = dict(base.variants)
        declared = entries.get("variants")
        if declared is not None and declared.value is None:
            variants = {}
        elif declared is not None:
            for name, layer in declared.entries.items():
                if layer.value is None:
                    variants.pop(name, None)
                else:
                    variants[name] = (*variants.get(name, ()), layer)
        if node is not None:
            own = Node({key: value for key, value in entries.items() if key not in _USED_UP}, node.mark, node.key)
            common = (*common, *base.common, own)
        return Layers(common, variants, (*inputs, *read, *base.inputs))

    def _read(self, path: Path, model: type[Easyconfig]) -> tuple[Node | None, tuple[Input, ...]]:
        try:
            document = load_yaml(path)
        except ConfigError as error:
            self.problems += error.problems
            return None, ()
        self.problems += (*document.problems, *check_layer(model, document.node))
        return document.node, (document.input,)

    def _preset(self, named: Node | None) -> tuple[tuple[Node, ...], tuple[Input, ...]]:
        if named is None or not isinstance(named.value, str):
            return (), ()
        places = [directory / "presets" / f"{named.value}.yaml" for directory in self.robot_paths]
        absent: list[Input] = []
        for place in places:
            if place.is_file():
                node, inputs = self._read(place, Easyconfig)
                return (node,) if node is not None else (), (*absent, *inputs)
            absent.append(Input(str(place), None))
        looked = ", ".join(str(place.parent) for place in places)
        self._problem(named, "preset", f"no preset is called {named.value!r}; looked in {looked}")
        return (), ()

    def _extended(self, named: Node | None, path: Path, above: tuple[Path, ...]) -> Layers:
        nothing = Layers((), {}, ())
        if named is None or not isinstance(named.value, str):
            return nothing
        beside = path.parent / named.value
        absent: tuple[Input, ...] = ()
        try:
            if beside.is_file():
                found = beside
            else:
                absent = (Input(os.path.abspath(beside), None),)  # noqa: PTH100 (a link stays a link)
                found = find_easyconfig(named.value, self.robot_paths)
        except (EasyconfigNotFoundError, OSError, ValueError) as error:
            reason = error.message if isinstance(error, EasyconfigNotFoundError) else str(error)
            self._problem(named, "extends", f"{reason.splitlines()[0]}; not beside {path.name} either")
            return nothing
        real = Path(os.path.realpath(found))
        if real in above:
            circle = " → ".join(file.name for file in (*above[above.index(real) :], real))
            self._problem(named, "extends", f"an easyconfig cannot extend itself: {circle}")
            return nothing
        base = self.file(found, above)
        return Layers(base.common, base.variants, (*absent, *base.inputs))

    def _problem(self, node: Node, key: str, message: str) -> None:
        self.problems.append(problem_at(node.mark, key, message))
