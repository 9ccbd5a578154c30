"""The layers that a site has put over its modules, brought from another tree by their digests."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sifmod.actions.changing_prefix import changing_prefix, for_layers
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.actions.verify import verify_layer
from sifmod.config.site import Site
from sifmod.errors import InstallError
from sifmod.tree.layer import IMAGE, LOCK, Layer, Layers, all_layers, image_key, live_layer, next_number, publish_layer
from sifmod.tree.layout import Layout
from sifmod.tree.lock import lock
from sifmod.tree.receipt import Installation


def own_layers(layout: Layout, installation: Installation) -> dict[str, str]:
    """The packed layers of a module in its own tree, by name, with their digests."""
    return {layer.name: layer.digest for layer in _layers_of(installation, layout.prefix / "layers") if layer.digest}


def _layers_of(installation: Installation, top: Path) -> Iterator[Layer]:
    here = (layer for layer in all_layers(top, installation.module) if layer.image == installation.digest)
    return here if installation.image else iter(())


def bring_layers(
    installation: Installation, wanted: dict[str, str], trees: tuple[Path, ...], site: Site, reporter: Reporter
) -> None:
    """Make the layers of a module in its own tree those that are wanted, from the same module in the `trees`.

    Raises InstallError for one that none of them has, and what publishing a layer raises.
    """
    layout = Layout(site.prefix)
    layers, module, key = Layers(layout.prefix / "layers", layout.prefix), installation.module, installation.digest
    for name, digest in wanted.items():
        if own_layers(layout, installation).get(name) == digest:
            continue
        there = (layer for tree in trees for layer in _layers_of(installation, tree / "layers") if layer.name == name)
        source = next((layer for layer in there if layer.digest == digest and not verify_layer(layer)), None)
        if source is None:
            raise InstallError(
                f"the layer {name} of {module} is not as the lock says, and no tree has it",
                "`--from PREFIX` names the tree where it was made; `sifmod sync` makes it of its own lock",
            )
        with (
            changing_prefix(for_layers(site, layers.prefix)),
            lock(layers, str(module), site.lock_lease, reporter.waiting(f"the layers of {module}")) as held,
        ):
            before, directory = live_layer(layers, module, name, image_key(key)), held.path("layer")
            with held.changing(f"cannot bring the layer {name} of {module}"):
                _copy(Path(source.root), directory)
            made = replace(source, number=next_number(layers, module, name, image_key(key)))
            made = publish_layer(layers, made, directory, held)
            record_layer(layers, made, before, site.lock_lease, reporter)


def _copy(source: Path, directory: Path) -> None:
    """The files of a layer but those that say where it is; the large one shares its bytes where that can be."""
    directory.mkdir()
    shutil.copyfile(source / LOCK, directory / LOCK)
    linked = False
    with suppress(OSError):
        os.link(source / IMAGE, directory / IMAGE)
        linked = True
    if not linked:
        shutil.copyfile(source / IMAGE, directory / IMAGE)
    (directory / "bin").mkdir()
    for command in (source / "bin").iterdir():
        place = directory / "bin" / command.name
        shutil.copyfile(command, place)
        mode = place.stat().st_mode
        place.chmod(mode | (mode & 0o444) >> 2)  # for who may read it
