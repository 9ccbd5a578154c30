"""add, and layer list, remove and sync: a module's layers, found by its name, listed, changed, taken out of use."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from sifmod.actions.changing_prefix import changing_prefix, for_layers
from sifmod.actions.layer.add import Outcome, check, make_layer
from sifmod.actions.layer.layer_change import LayerChange, like
from sifmod.actions.layer.places import (
    found_layers,
    installed,
    is_stale,
    known,
    layers_for,
    layouts,
    layouts_of,
    searched,
)
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.actions.sharing import closed_projects, rights
from sifmod.actions.start import resolve
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import InstallError, ModuleError
from sifmod.result import Beside, Described, Internal, OrNull
from sifmod.tree.layer import LIVE, LOCK, Layer, Layers, layers_lock, withdraw_layer
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life, retirement, today
from sifmod.tree.locking import Tree, forget_locks
from sifmod.tree.receipt import live_number

State = Literal["live", "stale", "unreadable", "removed"]


@dataclass(frozen=True)
class ShownLayer:
    """A layer, its state, and the retirement of its module."""

    layer: Beside[Layer]
    state: Annotated[
        State,
        Described(
            "stale: built for an image that is no longer installed; unreadable: the layer is used, but its receipt "
            "cannot be read"
        ),
    ]
    is_installed: Internal[bool] = True  # whether its module is installed
    ended: Annotated[OrNull[str], Described("retirement notice of the layer's module")] = ""
    successor: Annotated[OrNull[str], Described("the module to move the layer to with `add --onto`")] = ""


@dataclass(frozen=True)
class LayerOutcome:
    """The outcome of a change of a module's layers."""

    module: ModuleName
    layers: tuple[Layer, ...]  # one, none, or those that were taken out of use since their image is not installed
    what: Outcome | Literal["withdrawn"]
    is_installed: bool = True  # whether the module is installed
    note: str = ""  # about another layer of this name

    @property
    def layer(self) -> Layer:
        """The layer that was changed, or is as it was. Raises IndexError if there is none."""
        return self.layers[0]


def list_layers(trees: Iterable[Layout], module: str = "") -> tuple[ShownLayer, ...]:
    """The layers of modules whose names start with `module`, in these trees and those on MODULEPATH."""
    found, visible = [], layouts(trees, os.environ)
    modules = known(visible)
    for layer in found_layers(visible, os.environ):
        if str(layer.module).startswith(module):
            state: State = "stale" if is_stale(layer, modules) else "live" if layer.image else "unreadable"
            found.append(ShownLayer(layer, state, layer.module in modules, *_retired_notice(layer.module, visible)))
    return tuple(found)


def change_layer(change: LayerChange, site: Site, reporter: Reporter) -> LayerOutcome:
    """Change a layer of a module as requested. Layers of a module that is not installed can only be removed.

    Raises ModuleError for an unknown module, and the errors of `make_layer`.
    """
    if change.stale:
        return _remove_stale(change, site, reporter)
    trees = layouts_of(site, os.environ)
    modules = known(trees)
    left = {layer.module for layer in found_layers(trees, _with(change.directory))} - modules.keys()
    try:
        module = resolve(change.module, {*modules, *left})
    except ModuleError as error:
        gone = ModuleName(*change.module.split("/", 1)) if "/" in change.module else None
        raise ModuleError(error.message, (gone and _retired_notice(gone, trees)[0]) or error.hint) from error
    if module in left and change.everything:
        return _remove_stale(replace(change, module=str(module)), site, reporter)
    retired = _retired_notice(module, trees)[0]
    if module in left:
        hint = f"install it again, or remove its layers: `sifmod layer list {module}` says how"
        raise ModuleError(f"{module} is not installed", retired or hint)
    if retired:
        reporter.say(f"warning: {retired}")
    if note := _behind(module, trees):
        reporter.say(note)
    installation = installed(module, trees)
    check(installation, change.name)
    layers = layers_for(installation, change.directory, site.prefix, os.environ)
    if change.model is not None:
        there = tuple(found_layers(trees, os.environ))
        change = like(change, resolve(change.model, {one.module for one in there} | modules.keys()), there)
    with changing_prefix(for_layers(site, layers.prefix)) as take_back:
        layer, done = make_layer(installation, layers, change, site, reporter)
        if layer is None:
            with suppress(OSError):
                forget_locks(layers)
            take_back()
    wanted = rights(site) if layer and done == "made" and layer.top == site.prefix / "layers" else None
    for closed in closed_projects(wanted, layer) if layer and wanted else ():
        reporter.say(f"warning: {closed}")
    note = hidden(layer, Layout(layers.tree), os.environ) if layer and done == "made" else ""
    return LayerOutcome(module, (layer,) if layer else (), done, note=note)


def _remove_stale(change: LayerChange, site: Site, reporter: Reporter) -> LayerOutcome:
    """Take layers out of use that were made for other images of a module. Raises ModuleError if there are none."""
    trees = layouts_of(site, os.environ)
    modules = known(trees)
    found = [one for one in found_layers(trees, _with(change.directory)) if one.name == change.name]
    module = resolve(change.module, {one.module for one in found} | modules.keys())
    going = tuple(one for one in found if one.module == module and is_stale(one, modules))
    if not going:
        raise ModuleError(
            f"{module} has no layer {change.name} for an earlier image",
            "`sifmod layer list` lists the existing ones",
        )
    for one in going:
        with changing_prefix(for_layers(site, one.top)):
            withdrawn(one, reporter.tree(site), reporter)
    return LayerOutcome(module, going, "withdrawn", module in modules)


def _with(directory: str | None) -> Mapping[str, str]:
    """The environment in which the layers of a directory are found too."""
    return {**os.environ, **({"SIFMOD_LAYERS": directory} if directory else {})}


def _behind(module: ModuleName, trees: tuple[Layout, ...]) -> str:
    """A note that other trees have this module too, which that of the first tree hides; "" if none has it."""
    places = [str(tree.prefix) for tree in trees if live_number(tree, module) is not None]
    return f"{module} of {places[0]} is used; {' and '.join(places[1:])} has this module too" if places[1:] else ""


def _retired_notice(module: ModuleName, trees: tuple[Layout, ...]) -> tuple[str, str]:
    """The retirement notice of a module in these trees, even after its removal, and its successor.

    Both are "" for a module that is not retired.
    """
    for tree in trees:
        with suppress(InstallError):
            one = read_life(tree, module.name).of(module.version)
            if one.retired or (one.refused_from and one.refused_from <= today()):
                follows = one.retired.successor if one.retired else ""
                step = f"; `sifmod add {module} --onto {follows}` rebuilds its layer there" if follows else ""
                return f"{retirement(module, one)}{step}", follows
    return "", ""


def hidden(layer: Layer, tree: Layout, environ: Mapping[str, str]) -> str:
    """A note if this layer hides another one of its name for its module, or is hidden by it; "" otherwise."""
    top = layer.top
    live = Path(layer.root).parent.relative_to(top) / LIVE / LOCK
    there = [place for place in searched((tree,), environ) if os.path.exists(place / live)]  # noqa: PTH110 (closed)
    if top not in there:  # it is used with SIFMOD_LAYERS, and comes first then
        return ""
    if there[0] != top:
        return f"warning: the layer {layer.name} in {there[0]} comes first, so this one is not used; see --layer"
    return f"this layer is used instead of the layer {layer.name} in {there[1]}" if there[1:] else ""


def withdrawn(layer: Layer, tree: Tree, reporter: Reporter) -> None:
    """Take a layer out of use, wherever it is. Raises InstallError, PermissionsError or LockError."""
    top = layer.top
    layers = Layers(top, top.parent, named=top != tree.layout.prefix / "layers")
    with layers_lock(layers, layer.module, tree) as held:
        withdraw_layer(layers, layer, held)
        record_layer(layers, None, layer, tree, reporter)
