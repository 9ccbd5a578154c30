"""The places of layers: find them, also those that an install leaves, choose their directory, remove them."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from sifmod.actions.author.new_file import check_below, check_not_of_others
from sifmod.actions.start import is_readable, layout_at
from sifmod.config.name import ModuleName
from sifmod.config.prefix import default_prefix, quick_prefix
from sifmod.errors import ModuleError, OptionError, PermissionsError, ViewError
from sifmod.module.quote import shell
from sifmod.result import Described, PathText
from sifmod.tree.layer import (
    DEFAULT,
    MODULE,
    Layer,
    Layers,
    all_layers,
)
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live, live_modules, live_number, read_receipt

if TYPE_CHECKING:
    from sifmod.config.site import Site


class OutgoingLayer(NamedTuple):
    """A layer of this user's, made for an image that an install replaces, or may replace."""

    module: ModuleName
    layer: Annotated[str, Described("name of the layer")]
    path: PathText
    command: Annotated[str, Described("command that makes the layer for the new image, after the install")]
    certain: Annotated[bool, Described("whether the new image is surely another one")]


def layouts(trees: Iterable[Layout], environ: Mapping[str, str]) -> tuple[Layout, ...]:
    """The trees whose modules this user can load: the first, the others that can be read, then those on MODULEPATH."""
    own, *others = trees
    found = [own, *filter(is_readable, others)]
    for directory in map(Path, filter(None, environ.get("MODULEPATH", "").split(":"))):
        with suppress(OptionError):  # what cannot be a prefix, such as / for /modules
            if directory.name == "modules" and is_readable(tree := Layout(directory.parent)):
                found.append(tree)
    return tuple(dict.fromkeys(found))


def layouts_of(site: "Site", environ: Mapping[str, str]) -> tuple[Layout, ...]:
    """The `layouts` of a site's trees. Raises the errors of `layout_at` for the site's prefix."""
    layout_at(site.prefix)
    return layouts(map(Layout, (site.prefix, *site.trees)), environ)


def known(trees: tuple[Layout, ...]) -> dict[ModuleName, Layout]:
    """Every installed module of these trees, with the first tree that has it."""
    return {module: tree for tree in reversed(trees) for module, _ in live_modules(tree)}


def installed(module: ModuleName, trees: tuple[Layout, ...]) -> Installation:
    """The installation of `module`, which must have an image.

    Raises ModuleError for an unreadable receipt, ViewError.
    """
    tree = known(trees)[module]
    if (found := live(tree, module)) is None:
        raise ModuleError(f"the receipt of {module} in {tree.prefix} cannot be read", "install it again with --rebuild")
    if found.image is None:
        raise ViewError(module, found.modules)
    return found


def also_in(module: ModuleName, site: "Site") -> tuple[Path, ...]:
    """The prefixes of the site's other trees that have a module of this name."""
    others = filter(is_readable, map(Layout, site.trees))
    return tuple(tree.prefix for tree in others if live_number(tree, module) is not None)


def module_words(installation: Installation, environ: Mapping[str, str]) -> str:
    """The arguments for another command: the module, with --prefix if nothing else leads there."""
    prefix = installation.prefix
    plain = quick_prefix(None, environ)
    found = plain and Layout(prefix) in layouts((Layout(Path(plain)),), environ)
    return str(installation.module) if found else f"{installation.module} --prefix {shell(str(prefix))}"


def layers_for(
    installation: Installation, directory: str | None, site_prefix: Path, environ: Mapping[str, str]
) -> Layers:
    """Where to create a layer: `directory`, the module's prefix if this user owns and works on it, or the user's own.

    `site_prefix` is the prefix in force: the owner of a tree who works with another one adds to no module of all users.
    Raises OptionError for a directory that cannot be bound, PermissionsError for one that another user has planted.
    """
    prefix = installation.prefix
    if directory:
        top = Path(directory).absolute()
        if set(str(top)) & set(",:"):
            raise OptionError(f"--dir: {top} contains a comma or a colon, which bind paths cannot express")
        check_not_of_others(top)
        check_own(layers := Layers(top, prefix, named=True), installation.module)
        return layers
    if prefix == site_prefix and prefix.stat().st_uid == os.geteuid():
        return Layers(prefix / "layers", prefix)
    own = environ.get("SIFMOD_PREFIX") or str(default_prefix(environ)[0])
    return Layers(Path(own) / "layers", prefix)


def check_own(layers: Layers, module: ModuleName) -> None:
    """Raise PermissionsError if another user owns a directory of these layers or their locks, where all may write."""
    for place in (layers.prefix / module.name, layers.locks, layers.staging) if layers.named else ():
        check_below(place, layers.prefix)


def searched(trees: tuple[Layout, ...], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories in which modules look for layers, in order."""
    own = [environ["SIFMOD_PREFIX"] + "/layers"] if environ.get("SIFMOD_PREFIX") else []
    named = [one for one in environ.get("SIFMOD_LAYERS", "").split(":") if one]
    places = (*named, *own, f"{default_prefix(environ)[0]}/layers", *(f"{tree.prefix}/layers" for tree in trees))
    return tuple(dict.fromkeys(Path(place) for place in places if place.startswith("/")))


def unusable(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The directories in SIFMOD_LAYERS in which no module finds a layer."""
    named = filter(None, environ.get("SIFMOD_LAYERS", "").split(":"))
    return tuple(one for one in named if not (one.startswith("/") and os.access(one, os.R_OK | os.X_OK)))


def is_stale(layer: Layer, modules: Mapping[ModuleName, Layout]) -> bool:
    """Whether a readable layer's module has its image neither in these trees nor in the tree that it was made for.

    That of a tree that is closed to this user counts as not stale.
    """
    there = live(modules[layer.module], layer.module) if layer.module in modules else None
    try:
        own = read_receipt(Path(os.path.realpath(Path(layer.root, MODULE), strict=True)))
    except PermissionError:
        return False
    except OSError:  # the tree is gone, or no longer has the module
        own = None
    return bool(layer.image) and layer.image not in [one.image_sha256 for one in (there, own) if one]


def found_layers(trees: tuple[Layout, ...], environ: Mapping[str, str]) -> Iterator[Layer]:
    """Every live layer visible to the modules of these trees.

    Raises PermissionsError for a directory of SIFMOD_LAYERS that is closed to this user, as a load fails then.
    """
    for named in (one for one in environ.get("SIFMOD_LAYERS", "").split(":") if one.startswith("/")):
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                Path(named, "any").stat()
            except PermissionError as error:
                why = f"{named}, which SIFMOD_LAYERS names, is closed to you"
                raise PermissionsError(why, "ask its owner, or leave it out") from error
    for place in searched(trees, environ):
        yield from all_layers(place)


def outgoing(
    before: Installation, digest: str | None, environ: Mapping[str, str], brought: Collection[str] = ()
) -> tuple[OutgoingLayer, ...]:
    """Layers of this user over the image of `before`, which the image with this digest replaces (None: unknown).

    Those of the tree whose names are in `brought` are left out: the lock has them for the new image.
    """
    if before.image is None or digest == before.image_sha256:
        return ()
    module, own = before.module, layers_for(before, None, before.prefix, environ).prefix
    found = (
        layer
        for place in searched(layouts((Layout(before.prefix),), environ), environ)
        for layer in all_layers(place, module)
        if layer.image == before.image_sha256 and not (layer.name in brought and place == before.prefix / "layers")
    )
    rows = []
    for layer in found:
        more = "" if layer.name == DEFAULT else f" --layer {layer.name}"
        more += "" if layer.top == own else f" --dir {shell(str(layer.top))}"
        command = f"sifmod add {module_words(before, environ)} --onto {module}{more}"
        rows.append(OutgoingLayer(module, layer.name, layer.root, command, digest is not None))
    return tuple(rows)


def layer_warnings(layers: Iterable[OutgoingLayer]) -> Iterable[str]:
    """A warning for each layer, on one line."""
    for one in layers:
        gets = "gets" if one.certain else "may get"
        text = f"{one.module} {gets} another image, which its layer {one.layer} does not fit"
        yield f"warning: {text}; afterwards run `{one.command}` to rebuild the layer"
