"""`sifmod add`, and `sifmod layer`: list, add, remove and sync."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmod.actions.start import trees_for
from sifmod.cli.command import argument, command, group
from sifmod.cli.context import load_facts, reporter
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, print_rows, say
from sifmod.cli.shared_options import LayerOptions, TreeOptions
from sifmod.errors import OptionError
from sifmod.module.quote import shell
from sifmod.system import size_text

with later():
    from sifmod.actions.layer import layer_change, layers, places
    from sifmod.config import name
    from sifmod.config import site as config_site
    from sifmod.image.packages import package_lock, request, requirements
    from sifmod.module import variables
    from sifmod.tree import layer

_UNREADABLE = "used, but its layer.json cannot be read; `sifmod layer sync` with its pylock.toml rebuilds it"


class LayersOptions(TreeOptions):
    module: str = argument("[MODULE]", default="")


@command("layer list", LayersOptions, lambda: list[layers.ShownLayer])
def list_command(given: LayersOptions) -> None:
    """List the layers of packages: their module, size, content, and whether their image is still in use."""
    trees, module = trees_for(given.prefix), given.module
    found = layers.list_layers(trees, module)
    for place in places.unusable(os.environ):
        say(f"warning: modules find no layer in {place} of SIFMOD_LAYERS: it is missing, closed to you, or relative")
    if given.as_json:
        print_json(found)
        return
    print_rows(
        [
            (
                str(one.layer.module),
                f"{one.layer.name} (stale)" if one.state == "stale" else one.layer.name,
                size_text(one.layer.size),
                f"{one.layer.files} files",
                one.ended or _about(one),
                "" if Path(one.layer.root).is_relative_to(trees[0].prefix) else f"in {one.layer.root}",
            )
            for one in found
        ]
    )
    if not found:
        echo(
            f"there are no layers{f' of {module}' if module else ''}; `sifmod add MODULE PACKAGE` creates one", err=True
        )


def _about(one: "layers.ShownLayer") -> str:
    """The requirements of a layer, or its problem and the command for it."""
    layer = one.layer
    if one.state == "unreadable":
        return _UNREADABLE
    if one.state != "stale":
        return ", ".join(layer.requirements)
    named = "" if layer.name == "default" else f" --layer {layer.name}"
    if not one.is_installed:
        return f"its module is not installed; `sifmod layer remove {layer.module} --all{named}` removes it"
    return f"for an earlier image; `sifmod layer remove {layer.module} --stale{named}` removes it"


def changed(
    change: "layer_change.LayerChange",
    given: LayerOptions,
    site: "config_site.Site",
    *,
    no_build_isolation: bool = False,
    pre: bool = False,
) -> None:
    """Change a layer of a module, and report the outcome."""
    flags = {"no_index": given.no_index, "no_build_isolation": no_build_isolation, "pre": pre}
    words = request.words_of(given.find_links, given.index_url, given.extra_index_url, **flags)
    wanted = replace(change.add, words=(*words, *change.add.words))
    change = replace(change, name=given.layer, directory=given.directory, add=wanted)
    _report(layers.change_layer(change, site, reporter()), site, given)


def _report(outcome: "layers.LayerOutcome", site: "config_site.Site", given: LayerOptions) -> None:
    """Report the outcome of a change of layers."""
    module, what = outcome.module, outcome.what
    if what == "withdrawn":
        why = "for an earlier image" if outcome.is_installed else "which is not installed"
        for one in outcome.layers:
            say(f"layer {one.name} of {module}, {why}: removed; {_freed(one, site)}")
    if given.as_json:
        state: layers.State = "removed" if what in ("removed", "withdrawn") else "live"
        rows = [layers.ShownLayer(one, state) for one in outcome.layers]
        print_json(rows if what == "withdrawn" else rows[0] if rows else None)
        return
    if what == "withdrawn":
        return
    if what == "already there":
        say(f"{module}: nothing was changed")
        return
    layer = outcome.layer
    if what == "removed":
        say(f"layer {layer.name} of {module}: removed; running programs keep it")
    elif what == "unchanged":
        say(f"layer {layer.name}: nothing to do")
    else:
        form = f"one file of {size_text(layer.size)}" if layer.packed else f"a directory of {size_text(layer.size)}"
        say(f"layer {layer.name}: {layer.files} files, {form}; its lock is in {layer.root}")
    for text in (*_shells(module, layer, what, site.runtime_kind), outcome.note):
        if text:
            say(text)
    if given.directory and what == "made":
        say(f"to use it, set SIFMOD_LAYERS={shell(str(layer.top))}")


def _freed(layer: "layer.Layer", site: "config_site.Site") -> str:
    """How to free the space of a removed layer."""
    if layer.top == site.prefix / "layers":
        prefix = ""
    elif layer.top.name == "layers":
        prefix = f" --prefix {shell(str(layer.top.parent))}"
    else:
        return f"its files stay in {Path(layer.root).parent} until you remove them"
    return f"`sifmod gc{prefix} --yes` frees its space after 14 days, with --now at once"


def _shells(module: "name.ModuleName", layer: "layer.Layer", done: str, runtime: str) -> "Iterator[str]":
    """If this shell has the module loaded: what uses the changed layer at once, and what needs another load."""
    key = variables.state_key(module)
    bound = f"_SIFMOD_LAYER_{key}" in os.environ
    names = ("SINGULARITY_BINDPATH", "APPTAINER_BINDPATH")
    packed = any(f"{layer.name}/" in text and "/layer.squashfs:" in text for text in map(os.environ.get, names) if text)
    if f"_SIFMOD_GENERATION_{key}" in os.environ and done != "unchanged":
        if not bound and done == "made":
            yield "the module's commands use the layer at once"
            yield f"`{runtime} exec` and new commands need another `module load {module}`"
        elif bound and (done == "removed" or packed != layer.packed):
            yield f"`{runtime} exec` needs another `module load {module}`; the module's commands do not"


class AddOptions(LayerOptions):
    module: str = argument("MODULE")
    requirements: tuple[str, ...] = argument("REQUIREMENT...", default=(), many=True)
    files: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    onto: str | None = None
    upgrade: bool = False
    pre: bool = False
    unpacked: bool = False
    no_build_isolation: bool = False
    no_import: bool = False


@command("add", AddOptions, lambda: layers.ShownLayer | None)
def add_command(given: AddOptions) -> None:
    """Add Python packages to a module, in a layer over its image.

    A REQUIREMENT is what pip accepts: a name with a version, a local wheel or project (./x.whl, '.[dev]'), a URL,
    git+https://…. Everything that the module starts can use the packages at once, on every node. The core of the image
    (torch, packages compiled against it, NVIDIA's and AMD's libraries, MPI) is protected; others may be upgraded.
    """
    module, onto = given.module, given.onto
    if not (given.requirements or given.files or given.constraints or given.editable or onto or given.upgrade):
        raise OptionError("there is nothing to add", f"name packages: sifmod add {module} transformers")
    site = load_facts(given.settings).site  # whose limits hold for the files
    wanted = requirements.parse_requests(
        given.requirements, given.editable, map(Path, given.files), map(Path, given.constraints)
    )
    change = layer_change.LayerChange(onto or module, add=wanted, upgrade=given.upgrade, model=module if onto else None)
    change = replace(change, unpacked=given.unpacked, tried=not given.no_import)
    changed(change, given, site, no_build_isolation=given.no_build_isolation, pre=given.pre)


class RemoveOptions(LayerOptions):
    module: str = argument("MODULE")
    names: tuple[str, ...] = argument("NAME...", default=(), many=True)
    everything: bool = False
    stale: bool = False


@command("layer remove", RemoveOptions, lambda: layers.ShownLayer | list[layers.ShownLayer])
def remove_command(given: RemoveOptions) -> None:
    """Remove packages and their unused dependencies from a module's layer; the image's own packages reappear."""
    names, everything, stale = given.names, given.everything, given.stale
    if stale and (names or everything):
        raise OptionError("--stale cannot be combined with packages or --all")
    if everything and names:
        raise OptionError("--all cannot be combined with packages", "--all removes the whole layer")
    if not (names or everything or stale):
        hint = "name packages, or --all for the whole layer; `sifmod uninstall` removes a module"
        raise OptionError("no package is named", hint)
    change = layer_change.LayerChange(given.module, remove=names, everything=everything, stale=stale)
    changed(change, given, load_facts(given.settings).site)


class SyncOptions(LayerOptions):
    module: str = argument("MODULE")
    lock: str = argument("LOCK")
    unpacked: bool = False
    no_import: bool = False


@command("layer sync", SyncOptions, lambda: layers.ShownLayer)
def sync_command(given: SyncOptions) -> None:
    """Create a layer from a lock (the pylock.toml that each layer has beside it): the same bytes on every machine.

    LOCK may be a requirements.txt in which every line has digests: the layer then has exactly these packages.
    """
    site = load_facts(given.settings).site  # whose limits hold for the lock
    path = Path(given.lock)
    change = layer_change.LayerChange(given.module, unpacked=given.unpacked, tried=not given.no_import)
    if given.lock.endswith(".toml"):
        text, files = package_lock.with_absolute_paths(request.read_lock(path), path.parent)
        request.check_open(request.texts_of(text), path)
        change = replace(change, lock=text, files=files)
    else:
        change = replace(change, add=requirements.parse_requests(files=(path,), all_hashed=True), replaces=True)
    changed(change, given, site)


layer_command = group(
    "layer", "List, change and rebuild layers of packages.", list_command, add_command, remove_command, sync_command
)
