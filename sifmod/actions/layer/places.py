"""Where layers are: found, made, brought from another tree by their digests, taken out of use, and left for a gc."""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.actions.layer_commands import commands_of, contents, lock_of, write_commands
from sifmod.actions.lock import LockedModule
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName
from sifmod.config.prefix import default_prefix, quick_prefix
from sifmod.digest import sha256_file
from sifmod.errors import InstallError, ModuleError, ViewError
from sifmod.module.quote import shell
from sifmod.tree.durable import READ_ONLY, regular
from sifmod.tree.layer import IMAGE, LIVE, LOCK, Layer, Layers, all_layers, live_layer, publish_layer, withdraw_layer
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life, retirement, today
from sifmod.tree.locking import lock
from sifmod.tree.receipt import Installation, live, live_modules

if TYPE_CHECKING:
    from sifmod.config.site import Site


def layouts(prefix: Path, environ: Mapping[str, str]) -> tuple[Layout, ...]:
    """The trees whose modules this user can load: that of the prefix, then those of MODULEPATH."""
    found = [prefix]
    for directory in map(Path, filter(None, environ.get("MODULEPATH", "").split(":"))):
        above = directory.parent
        if directory.name == "modules" and directory.is_absolute() and (above / "software").is_dir():
            found.append(above)
    return tuple(Layout(one) for one in dict.fromkeys(found))


def known(trees: tuple[Layout, ...]) -> dict[ModuleName, Layout]:
    """Every module that is installed in one of the trees, with the first that has it."""
    return {module: tree for tree in reversed(trees) for module, _ in live_modules(tree)}


def installed(module: ModuleName, trees: tuple[Layout, ...]) -> Installation:
    """What is installed as `module`, with an image. Raises ModuleError for a receipt that cannot be read, ViewError."""
    tree = known(trees)[module]
    if (found := live(tree, module)) is None:
        raise ModuleError(f"the receipt of {module} in {tree.prefix} cannot be read", "install it anew with --rebuild")
    if found.image is None:
        raise ViewError(module, found.modules)
    return found


def words_for(installation: Installation, environ: Mapping[str, str]) -> str:
    """The words by which another verb finds it: the module, with its --prefix where nothing else leads there."""
    prefix = installation.prefix
    plain = quick_prefix(None, environ)
    found = plain and Layout(prefix) in layouts(Path(plain), environ)
    return str(installation.module) if found else f"{installation.module} --prefix {shell(str(prefix))}"


def layers_for(installation: Installation, directory: str | None, environ: Mapping[str, str]) -> Layers:
    """Where a layer is made: in `directory`, in the module's own prefix where that is this user's, else in his own."""
    prefix = installation.prefix
    if directory:
        return Layers(Path(directory).absolute(), prefix)
    if prefix.stat().st_uid == os.geteuid():
        return Layers(prefix / "layers", prefix)
    own = environ.get("SIFMOD_PREFIX") or str(default_prefix(environ)[0])
    return Layers(Path(own) / "layers", prefix)


def searched(trees: tuple[Layout, ...], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories in which the modules look for layers, the first one first."""
    own = [environ["SIFMOD_PREFIX"] + "/layers"] if environ.get("SIFMOD_PREFIX") else []
    named = [one for one in environ.get("SIFMOD_LAYERS", "").split(":") if one]
    places = (*named, *own, f"{default_prefix(environ)[0]}/layers", *(f"{tree.prefix}/layers" for tree in trees))
    return tuple(Path(place) for place in dict.fromkeys(places) if place.startswith("/"))


def is_stale(layer: Layer, modules: Mapping[ModuleName, Layout]) -> bool:
    """Whether a layer was made for an image with which none of these modules is installed."""
    there = live(modules[layer.module], layer.module) if layer.module in modules else None
    return bool(layer.image) and (there is None or there.image_sha256 != layer.image)


def after_retired(module: ModuleName, trees: tuple[Layout, ...]) -> tuple[str, str]:
    """What is said of a module that is retired in one of the trees, or was before it was removed, and its successor.

    Empty for any other.
    """
    for tree in trees:
        with suppress(InstallError):
            one = read_life(tree, module.name).of(module.version)
            if one.retired or (one.refused_from and one.refused_from <= today()):
                follows = one.retired.successor if one.retired else ""
                step = f"; `sifmod add {module} --onto {follows}` makes its layer there" if follows else ""
                return f"{retirement(module, one)}{step}", follows
    return "", ""


def found_layers(trees: tuple[Layout, ...], environ: Mapping[str, str]) -> Iterator[Layer]:
    """Every live layer that the modules of these trees may find."""
    for place in searched(trees, environ):
        yield from all_layers(place)


def hidden(layer: Layer, tree: Layout, environ: Mapping[str, str]) -> str:
    """What is to be said of a layer where there is another one of its name for the module of this tree; "": nothing."""
    top = layer.top
    live = Path(layer.root).parent.relative_to(top) / LIVE / LOCK
    there = [place for place in searched((tree,), environ) if (place / live).exists()]
    if top not in there:  # it takes SIFMOD_LAYERS, and is the first one then
        return ""
    if there[0] != top:
        return f"warning: the layer {layer.name} in {there[0]} is found first, and this one is not used; see --layer"
    return f"it is used in the place of the layer {layer.name} in {there[1]}" if there[1:] else ""


def withdrawn(layer: Layer, lease: float, reporter: Reporter) -> None:
    """Take a layer out of use, wherever it is. Raises InstallError, PermissionsError or LockError."""
    top = layer.top
    layers = Layers(top, top.parent)
    with lock(layers, str(layer.module), lease, reporter.waiting(f"the layers of {layer.module}")) as held:
        withdraw_layer(layers, layer, held)
        record_layer(layers, None, layer, lease, reporter)


def own_layers(layout: Layout, installation: Installation) -> dict[str, tuple[str, str]]:
    """The packed layers of a module in its own tree, by name: the digests of their packages, and of their contents.

    Raises InstallError for one with a command of another name than it may have, OSError.
    """
    prefix = layout.prefix
    own = (layer for layer in _layers_of(installation, prefix / "layers") if layer.digest)
    return {layer.name: (layer.digest, contents(layer, lock_of(layer, prefix), commands_of(layer))) for layer in own}


def are_there(layout: Layout, installation: Installation, locked: LockedModule) -> bool:
    """Whether the layers of a module in its own tree are those that the lock names."""
    own = own_layers(layout, installation) if locked.layers else {}
    return all(own.get(name) == (digest, locked.contents[name]) for name, digest in locked.layers.items())


def _layers_of(installation: Installation, top: Path) -> Iterator[Layer]:
    here = (layer for layer in all_layers(top, installation.module) if layer.image == installation.image_sha256)
    return here if installation.image else iter(())


def bring_layers(
    installation: Installation, locked: LockedModule, trees: tuple[Path, ...], site: "Site", reporter: Reporter
) -> None:
    """Make the layers of a module in its own tree those of the lock, from the same module in the `trees`.

    Raises InstallError for one that none of them has, and what publishing a layer raises.
    """
    from sifmod.actions.changing_prefix import changing_prefix, for_layers

    layout = Layout(site.prefix)
    layers, module, key = (
        Layers(layout.prefix / "layers", layout.prefix),
        installation.module,
        installation.image_sha256,
    )
    own = own_layers(layout, installation)
    for name, digest in locked.layers.items():
        whole = locked.contents[name]
        if own.get(name) == (digest, whole):
            continue
        there = [
            (layer, tree)
            for tree in trees
            for layer in _layers_of(installation, tree / "layers")
            if (layer.name, layer.digest) == (name, digest)
        ]
        with (
            changing_prefix(for_layers(site, layers.prefix)),
            lock(layers, str(module), site.lock_lease, reporter.waiting(f"the layers of {module}")) as held,
        ):
            before, directory = live_layer(layers, module, name, key), held.path("layer")
            with held.changing(f"cannot bring the layer {name} of {module}"):
                source = next((layer for layer, tree in there if _copied(layer, tree, whole, directory)), None)
            if source is None:
                raise InstallError(
                    f"the layer {name} of {module} is not as the lock says, and no tree has it",
                    "`--from PREFIX` names the tree where it was made; `sifmod sync` makes it of its own lock",
                )
            made = publish_layer(layers, source, directory, held)
            record_layer(layers, made, before, site.lock_lease, reporter)


def _copied(layer: Layer, tree: Path, whole: str, directory: Path) -> bool:
    """Whether the new `directory` has what the lock names of a layer of another tree; else it is not there.

    Others may write in that tree: its files are read through no link, and hashed where they then lie.
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
        _share(image, directory / IMAGE, (directory / LOCK).stat().st_mode & READ_ONLY, layer.size)
    if sha256_file(directory / IMAGE) != layer.digest:
        shutil.rmtree(directory)
        return False
    write_commands(directory / "bin", commands, layer.name)
    return True


def _share(source: int, target: Path, mode: int, size: int) -> None:
    """Make `target` a link to an open file that is this user's own and has this read-only mode; else a copy."""
    status = os.fstat(source)
    if (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), mode):
        with suppress(OSError):  # another file system, or one without links
            os.link(f"/proc/self/fd/{source}", target, src_dir_fd=source)  # with a descriptor the link is followed
            return
    with target.open("xb") as file:
        done = 0
        while done < size and (part := os.pread(source, min(size - done, 1 << 20), done)):
            done += file.write(part)
        os.fchmod(file.fileno(), mode)
