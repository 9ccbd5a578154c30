"""What a gc does with layers: old generations can go, a layer that is in use stays, also one for an earlier image."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.tree.layer import Layers, generations, image_key, live_generation, places, remove_generation
from sifmod.tree.layout import Layout
from sifmod.tree.lock import lock
from sifmod.tree.receipt import live

_STALE = "for another image than the installed one; `sifmod add --onto` reads it, `sifmod remove {} --stale` ends it"


class OldLayer(NamedTuple):
    """A generation of a layer. `keep` says why it stays; empty: it goes. Size in bytes."""

    module: ModuleName
    root: Path
    size: int
    keep: str


def old_layers(layout: Layout, too_young: Callable[[float], str]) -> Iterator[OldLayer]:
    """Every generation in the prefix but those of layers that fit their module; `too_young`: why it stays for its age.

    What was replaced or removed last tells since when a generation is not in use.
    """
    for place in places(layout.prefix / "layers"):
        module, now = ModuleName(*place.parts[-4:-2]), live_generation(place)
        there = live(layout, module)
        image = there.image if there else None
        fits = image is not None and image_key(image.sha256) == place.name
        since = place.stat().st_mtime
        for root in generations(place):
            if root.name != now:
                yield OldLayer(module, root, _size(root), too_young(since))
            elif not fits:
                yield OldLayer(module, root, _size(root), _STALE.format(module))


def remove_layers(
    layout: Layout, going: list[OldLayer], lease: float, on_wait: Callable[[str], None]
) -> list[OldLayer]:
    """Remove these generations, as far as they are not live by now; gives those that are gone."""
    layers = Layers(layout.prefix / "layers", layout.prefix)
    for old in going:
        with lock(layers, str(old.module), lease, on_wait) as held:
            if live_generation(old.root.parent) != old.root.name:
                remove_generation(layers, old.root, held)
    return [old for old in going if not os.path.lexists(old.root)]


def _size(root: Path) -> int:
    return sum(os.lstat(os.path.join(top, name)).st_size for top, _, names in os.walk(root) for name in names)  # noqa: PTH118
