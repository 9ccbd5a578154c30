"""Generations of layers in a prefix that no module uses, which `gc` removes."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.tree.layer import (
    generations,
    image_key,
    layers_in,
    layers_lock,
    live_generation,
    places,
    remove_generation,
)
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree
from sifmod.tree.receipt import live
from sifmod.tree.removal import states_below

_STALE = (
    "for an image that the module does not have now; `sifmod add --onto` builds it again, `sifmod layer remove {} "
    "--stale` removes it"
)


class OldLayer(NamedTuple):
    """A generation of a layer. `keep` is the reason to keep it; empty: remove it. Size in bytes."""

    module: ModuleName
    root: Path
    size: int
    keep: str


def old_layers(layout: Layout, too_young: Callable[[float], str]) -> Iterator[OldLayer]:
    """The generations of layers in the prefix that are not live, or are for an image that is not installed.

    `too_young` gives the reason to keep one, or "", for the time (seconds since 1970) since which it is unused: when
    its layer was last replaced or removed.
    """
    for place in places(layout.prefix / "layers"):
        module, now = ModuleName(*place.parts[-4:-2]), live_generation(place)
        there, roots = live(layout, module), list[Path]()
        fits = there is not None and image_key(there.image_sha256) == place.name
        with suppress(FileNotFoundError, PermissionError):  # another gc has removed it, or it is closed to this user
            since, roots = place.stat().st_mtime, generations(place)
        for root in roots:
            if root.name != now or not fits:
                keep = too_young(since) if root.name != now else _STALE.format(module)
                size = sum(state.st_size for state in states_below(root) if not stat.S_ISDIR(state.st_mode))
                yield OldLayer(module, root, size, keep)


def remove_layers(tree: Tree, going: list[OldLayer]) -> list[OldLayer]:
    """Remove these generations, unless they are live by now; returns the removed ones."""
    layers = layers_in(tree.layout)
    for old in going:
        with layers_lock(layers, old.module, tree) as held:
            if live_generation(old.root.parent) != old.root.name:
                remove_generation(layers, old.root, held)
    return [old for old in going if not os.path.lexists(old.root)]
