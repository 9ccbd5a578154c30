"""Inheritance of an easyconfig: its presets, the easyconfigs it extends, the file itself, its variants; and views."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from sifmod.config.easyconfig import Accelerator, Easyconfig, EasyconfigFile
from sifmod.config.find import SUFFIXES, find_easyconfig, places_before
from sifmod.config.input import Input
from sifmod.config.kinds import accelerator_of
from sifmod.config.private import closed_to_author
from sifmod.config.yaml.node import Mark, Node, base_key, join_key, printable_text, problem_at, tree
from sifmod.config.yaml.parse import load_yaml
from sifmod.config.yaml.validate import check_layer
from sifmod.errors import ConfigError, EasyconfigNotFoundError, Problem


@dataclass(frozen=True)
class Inherited:
    """The layers to merge: `first`, `presets`, a variant's presets, `common`, the variant's own keys, `last`."""

    presets: tuple[Node, ...]
    common: tuple[Node, ...]
    variants: dict[str, "InheritedByVariant"]
    inputs: tuple[Input, ...]
    first: tuple[Node, ...] = ()
    last: tuple[Node, ...] = ()

    def of(self, variant: str | None) -> tuple[Node, ...]:
        """The layers of one variant; None: of the easyconfig itself.

        A variant named rocm, cuda, none or cpu has that accelerator by default.
        """
        if variant is None:
            return (*self.first, *self.presets, *self.common, *self.last)
        named = accelerator_of(variant)
        said = {"accelerator": named} if named in get_args(Accelerator) else {}
        own = tree(said, Mark(f"variant {variant}", 0, 0))
        layers = self.variants[variant]
        return (*self.first, own, *self.presets, *layers.presets, *self.common, *layers.own, *self.last)


@dataclass(frozen=True)
class InheritedByVariant:
    """A variant's presets, which rank below the file's keys as the file's presets do, and the variant's own keys."""

    presets: tuple[Node, ...]
    own: tuple[Node, ...]


_NOTHING = Inherited((), (), {}, ())


def read_inherited(path: Path, robot_paths: tuple[Path, ...]) -> Inherited:
    """Read a file, its presets and all files that it extends; raises ConfigError with every problem of every file."""
    reading = _Reading(robot_paths)
    layers = reading.file(path, ())
    if reading.problems:
        raise ConfigError(tuple(sorted(set(reading.problems))))
    return replace(layers, inputs=tuple(reading.inputs))


@dataclass
class _Reading:
    """Follows `preset` and `extends`, and continues after a problem to find all of them."""

    robot_paths: tuple[Path, ...]
    problems: list[Problem] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)

    def file(self, path: Path, above: tuple[Path, ...], extends: Node | None = None) -> Inherited:
        """The layers of a file; `above`: real paths of the files that extend it; `extends`: the key in the last one."""
        node = self._read(path, EasyconfigFile) if extends is None else self._base(path, extends)
        if node is None:
            return _NOTHING
        preset = self._preset(node.entries.get("preset"), "preset")
        base = self._extended(node.entries.get("extends"), path, (*above, Path(os.path.realpath(path))))
        variants = self._variants(node.entries.get("variants"), base.variants)
        own = _without(node, ("extends", "preset", "variants"))
        return Inherited((*preset, *base.presets), (*base.common, own), variants, ())

    def _variants(self, declared: Node | None, base: dict[str, InheritedByVariant]) -> dict[str, InheritedByVariant]:
        if declared is not None and declared.value is None:
            return {}
        variants = dict(base)
        for name, layer in declared.entries.items() if declared is not None else ():
            if layer.value is None:
                variants.pop(name, None)
                continue
            preset = self._preset(layer.entries.get("preset"), join_key("variants", name) + ".preset")
            below = variants.get(name, InheritedByVariant((), ()))
            own = _without(layer, ("preset",))
            variants[name] = InheritedByVariant((*preset, *below.presets), (*below.own, own))
        return variants

    def _read(self, path: Path, model: type[Easyconfig]) -> Node | None:
        try:
            document = load_yaml(path)
        except ConfigError as error:
            self.problems += error.problems
            return None
        self.problems += (*document.problems, *check_layer(model, document.node))
        self.inputs.append(document.input)
        return document.node

    def _base(self, path: Path, extends: Node) -> Node | None:
        """Like `_read`, for a file that another one names; if it is not an easyconfig, only that is reported."""
        apart = _Reading(self.robot_paths)
        node = apart._read(path, EasyconfigFile)
        keys = {base_key(key) for key in node.entries} if node is not None else set()
        strange = apart.problems and path.suffix not in SUFFIXES
        if strange or (node is not None and not keys & EasyconfigFile.model_fields.keys()):
            self._problem(extends, "extends", f"{printable_text(str(path))} is not an easyconfig")
            return None
        self.problems += apart.problems
        self.inputs += apart.inputs
        return node

    def _preset(self, named: Node | None, key: str) -> tuple[Node, ...]:
        if named is None or not isinstance(named.value, str):
            return ()
        places = [directory / "presets" / f"{named.value}.yaml" for directory in self.robot_paths]
        for place in places:
            if os.path.isfile(place):  # noqa: PTH113 (closed directories)
                node = self._read(place, Easyconfig)
                return () if node is None else (node,)
            self.inputs.append(Input(str(place), None))
        looked = ", ".join(str(place.parent) for place in places)
        self._problem(named, key, f"there is no preset {printable_text(named.value)}; searched in {looked}")
        return ()

    def _extended(self, named: Node | None, path: Path, above: tuple[Path, ...]) -> Inherited:
        if named is None or not isinstance(named.value, str):
            return _NOTHING
        found = path.parent / named.value
        if why := closed_to_author(found, path):
            self._problem(named, "extends", why)
            return _NOTHING
        try:
            if not found.is_file():
                beside, found = found.absolute(), find_easyconfig(named.value, self.robot_paths)
                places = (beside, *places_before(found, named.value, self.robot_paths))
                self.inputs += (Input(str(place), None) for place in places)
        except (EasyconfigNotFoundError, OSError, ValueError):  # ValueError: a NUL in the name
            message = f"there is no {printable_text(named.value)}, neither beside {path.name} nor in `robot_paths`"
            self._problem(named, "extends", message)
            return _NOTHING
        real = Path(os.path.realpath(found))
        if real in above:
            circle = " → ".join(file.name for file in (*above[above.index(real) :], real))
            self._problem(named, "extends", f"an easyconfig cannot extend itself: {circle}")
            return _NOTHING
        return self.file(found, above, named)

    def _problem(self, node: Node, key: str, message: str) -> None:
        self.problems.append(problem_at(node.mark, key, message))


def _without(node: Node, keys: tuple[str, ...]) -> Node:
    return replace(node, value={key: value for key, value in node.entries.items() if key not in keys})


_OF_AN_IMAGE = (
    *("image", "activate", "conda", "venv", "wrappers", "verb", "runscripts", "runscript_env", "user_software"),
    *("protected", "gpu_selection", "mpi", "sanity_check"),
)


def is_view(easyconfig: Node) -> bool:
    """Whether merged keys are those of a view."""
    return bool(easyconfig.at("modules").items)


def view_defaults(defaults: Node) -> Node:
    """The lowest layer of a view: most defaults of other easyconfigs belong to the modules that it loads."""
    return replace(defaults, value={"accelerator": defaults.entries["accelerator"]})


def checked_view(view: Node) -> tuple[Node, tuple[Problem, ...]]:
    """A view without the keys that need an image, and its problems: each such key, and two modules with one name."""
    entries = view.entries
    found = [
        problem_at(entries[key].key, key, "a view has no image of its own: remove this key, or `modules`")
        for key in _OF_AN_IMAGE
        if key in entries
    ]
    seen = {entries["name"].text: "the view itself"} if "name" in entries else {}
    for index, module in enumerate(entries["modules"].items):
        name, _, _ = module.text.partition("/")
        if name in seen:
            message = f"{module.text} cannot be loaded together with {seen[name]}, which has the same name"
            found.append(problem_at(module.mark, f"modules[{index}]", message))
        seen.setdefault(name, module.text)
    rest = {key: node for key, node in entries.items() if key not in _OF_AN_IMAGE}
    return replace(view, value=rest), tuple(found)
