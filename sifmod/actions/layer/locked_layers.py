"""The layers of a tree's own modules that a lock names: record them, compare them, copy them from another tree."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.changing_prefix import changing_prefix, for_layers
from sifmod.actions.layer_commands import commands_of, contents, lock_of, write_commands
from sifmod.actions.lock import LockedModule
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.digest import sha256_file
from sifmod.errors import InstallError
from sifmod.module.quote import shell
from sifmod.system import open_to_others
from sifmod.tree.durable import READ_ONLY, regular
from sifmod.tree.layer import (
    IMAGE,
    LOCK,
    Layer,
    Layers,
    all_layers,
    image_key,
    kept_layers,
    layers_in,
    layers_lock,
    live_layer,
    publish_layer,
    remove_generation,
    withdraw_layer,
)
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree


def own_layers(layout: Layout, module: ModuleName, image: str) -> dict[str, tuple[str, str]]:
    """The packed layers over an image of a module in its own tree, by name: digests of the packages and of the layer.

    Raises InstallError for a layer with an invalid command name, OSError.
    """
    prefix = layout.prefix
    own = (layer for layer in all_layers(prefix / "layers", module) if layer.digest and layer.image == image)
    return {layer.name: (layer.digest, contents(layer, lock_of(layer, prefix), commands_of(layer))) for layer in own}


def check_packed(layout: Layout, module: ModuleName, image: str) -> None:
    """Raise InstallError if a layer over the image with this digest, in the module's own tree, is a directory.

    It has no digest, so a lock cannot record it. Also raised if a layer's receipt cannot be read.
    """
    for layer in all_layers(layout.prefix / "layers", module):
        if not layer.image and Path(layer.root).parent.name == image_key(image):
            what = f"the receipt of the layer {layer.name} of {module} cannot be read"
            raise InstallError(f"{what}, so a lock cannot record the layer", "`sifmod verify` names what repairs it")
        if layer.image != image or layer.packed:
            continue
        place = f"--prefix {shell(str(layout.prefix))} --dir {shell(str(layer.top))} --layer {layer.name}"
        words = f"{module} {shell(f'{layer.root}/{LOCK}')} {place}"
        hint = f"`sifmod layer sync {words}` makes it one file, but not with SingularityCE without setuid"
        if layer.editable:
            hint = "add its packages without -e, or remove it: sifmod layer remove"
        raise InstallError(f"the layer {layer.name} of {module} is a directory, which a lock cannot record", hint)


def layers_match(layout: Layout, locked: LockedModule) -> bool:
    """Whether the module's own tree has the layers that the lock names, unchanged."""
    return not _missing(layout, locked)


def _missing(layout: Layout, locked: LockedModule) -> tuple[str, ...]:
    own = own_layers(layout, locked.module, locked.digest) if locked.layers else {}
    return tuple(name for name, digest in locked.layers.items() if own.get(name) != (digest, locked.contents[name]))


def unlocked_layers(prefix: Path, locked: LockedModule) -> tuple[Layer, ...]:
    """The layers over a module's locked image, in its own tree, that the lock does not name."""
    here = all_layers(prefix / "layers", locked.module)
    return tuple(layer for layer in here if layer.image == locked.digest and layer.name not in locked.layers)


class BroughtLayer(NamedTuple):
    """A layer that a lock brought, and the one that it replaced."""

    layers: Layers
    made: Layer
    before: Layer | None


def bring_layers(locked: LockedModule, trees: tuple[Path, ...], site: Site, tree: Tree) -> Iterator[BroughtLayer]:
    """Give a module the layers that its lock names, copied from an earlier generation or the same module in `trees`.

    Raises InstallError for a layer that none of them has, and errors of publishing a layer.
    """
    layout = Layout(site.prefix)
    layers, module, image = layers_in(layout), locked.module, locked.digest
    for name in _missing(layout, locked):
        there = [
            (layer, place)
            for place in (layout.prefix, *trees)
            for layer in kept_layers(place / "layers", module)
            if (layer.name, layer.digest, layer.image) == (name, locked.layers[name], image)
        ]
        with changing_prefix(for_layers(site, layers.prefix)), layers_lock(layers, module, tree) as held:
            before, directory, whole = (
                live_layer(layers, module, name, image),
                held.path("layer"),
                locked.contents[name],
            )
            with held.changing(f"cannot copy the layer {name} of {module}"):
                source = next((layer for layer, place in there if _copied(layer, place, whole, directory)), None)
            if source is None:
                raise _absent(name, module)
            made = publish_layer(layers, source, directory, held)
        yield BroughtLayer(layers, made, before)


def take_back(brought: Iterable[BroughtLayer], tree: Tree) -> None:
    """Remove layers that were brought for an install that failed, except those that replaced one.

    Raises LockError, InstallError, PermissionsError.
    """
    for layers, made, before in brought:
        if before is None:
            with layers_lock(layers, made.module, tree) as held:
                withdraw_layer(layers, made, held)
                remove_generation(layers, Path(made.root), held)


def check_layers(prefix: Path, locked: LockedModule, trees: tuple[Path, ...], *, hashed: bool = False) -> None:
    """Raise InstallError for a layer of the lock that neither the tree at `prefix` nor one of `trees` has.

    Only what is `hashed` is sure to be copied by `bring_layers`.
    """
    own = {layer.root for layer in all_layers(prefix / "layers", locked.module)}
    for name, digest in locked.layers.items():
        for tree in (prefix, *trees):
            found = [layer for layer in kept_layers(tree / "layers", locked.module) if layer.image == locked.digest]
            those = [layer for layer in found if (layer.name, layer.digest) == (name, digest)]
            if any(_is_locked(one, tree, locked.contents[name], hashed and one.root not in own) for one in those):
                break
        else:
            raise _absent(name, locked.module)


def _absent(name: str, module: ModuleName) -> InstallError:
    return InstallError(
        f"the layer {name} of {module} does not match the lock, and no tree has the locked one",
        "`sifmod stack apply --from PREFIX` copies it from the tree where it was made; once the module is installed "
        "without --locked, `sifmod layer sync` makes it from its own lock",
    )


def _is_locked(layer: Layer, tree: Path, whole: str, hashed: bool) -> bool:
    try:
        with regular(Path(layer.root, IMAGE), tree) as image:
            if contents(layer, lock_of(layer, tree), commands_of(layer)) != whole:
                return False
            same = os.fstat(image).st_size == layer.size
            return same and (not hashed or sha256_file(Path(f"/proc/self/fd/{image}")) == layer.digest)
    except (OSError, InstallError):
        return False


def _copied(layer: Layer, tree: Path, whole: str, directory: Path) -> bool:
    """Copy a layer of another tree into the new `directory`; returns whether it matches the lock.

    Others may write to that tree: links are not followed, and the copied files are hashed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    with ExitStack() as held:
        try:
            text, commands = lock_of(layer, tree), commands_of(layer)
            image = held.enter_context(regular(Path(layer.root, IMAGE), tree))
        except (OSError, InstallError):
            return False
        if contents(layer, text, commands) != whole or os.fstat(image).st_size != layer.size:
            return False
        directory.mkdir()
        (directory / LOCK).write_bytes(text)
        mode = (directory / LOCK).stat().st_mode & READ_ONLY
        status = os.fstat(image)
        own = (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), mode)
        # others may still have open for writing what was made where they can write
        _share(image, directory / IMAGE, mode, layer.size, link=own and not open_to_others(Path(layer.root).parent))
    if sha256_file(directory / IMAGE) != layer.digest:
        shutil.rmtree(directory)
        return False
    write_commands(directory / "bin", commands, layer.name)
    return True


def _share(source: int, target: Path, mode: int, size: int, *, link: bool) -> None:
    """Hard-link an open file to `target` if that is possible, else copy it."""
    if link:
        with suppress(OSError):  # another file system, or no hard links
            os.link(f"/proc/self/fd/{source}", target, src_dir_fd=source)  # through a descriptor the link is followed
            return
    with target.open("xb") as file:
        done = 0
        while done < size and (part := os.pread(source, min(size - done, 1 << 20), done)):
            done += file.write(part)
        os.fchmod(file.fileno(), mode)
