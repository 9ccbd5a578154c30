"""Compare the modules of a tree with their receipts."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.finding import Finding
from sifmod.actions.layer.places import found_layers
from sifmod.actions.start import installed, live_names, resolve
from sifmod.actions.verify import Verified, verify
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.tree.layer import Layer
from sifmod.tree.layout import Layout


class VerifiedTree(NamedTuple):
    """The findings of modules, which layers have faults, and whether modules have faults besides."""

    modules: tuple[Verified, ...]
    layers: tuple[Layer, ...]  # that have faults
    own: bool  # modules have faults apart from their layers


def verify_modules(layout: Layout, names: Collection[str] = ()) -> VerifiedTree:
    """Compare the modules that these names mean, or all, with their receipts; a fault of one does not stop the others.

    Changes nothing. Raises ModuleError if a name means no module or several.
    """
    known = live_names(layout)
    look = f"it looks in {layout.prefix}: `sifmod list` shows all, --prefix names another tree"
    wanted = [resolve(name, known, look) for name in names] or known
    layers = tuple(found_layers((layout,), os.environ))
    found = tuple(_verified(layout, module, layers) for module in wanted)
    paths = {Path(fault.path) for one in found for fault in one.faults}
    of_layers = {layer: {path for path in paths if path.is_relative_to(layer.root)} for layer in layers}
    return VerifiedTree(
        found, tuple(layer for layer in layers if of_layers[layer]), bool(paths.difference(*of_layers.values()))
    )


def _verified(layout: Layout, module: ModuleName, layers: Iterable[Layer]) -> Verified:
    try:
        return Verified(module, verify(layout, installed(layout, module), layers))
    except ModuleError as error:
        return Verified(module, (Finding("unreadable", str(layout.switch(module)), "a receipt", error.message),))
