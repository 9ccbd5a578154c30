"""`sifmod layers`, `add`, `remove` and `sync`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import layout_for, load_facts, reporter, resolve
from sifmod.cli.output import echo, print_json, print_rows, say
from sifmod.cli.shared_options import Given, json_option, layer_options, places_options, prefix_option
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError
from sifmod.module.quote import shell
from sifmod.system import size_text
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sifmod.actions.layer.add import LayerChange
    from sifmod.actions.layer.shown_layer import ShownLayer, State
    from sifmod.config.site import Site
    from sifmod.tree.layer import Layer

_no_import = click.option("--no-import", is_flag=True, help="Do not try whether what is added can be imported.")

Words = tuple[str, ...]

_UNREADABLE = "used, but its layer.json cannot be read; `sifmod sync` with its pylock.toml makes it again"


@click.command("layers")
@click.argument("module", default="")
@prefix_option
@json_option
def layers_command(module: str, prefix: str | None, as_json: bool) -> None:
    """List the layers of packages: of which module, how large, what for, and whether its image is still used."""
    from sifmod.actions.layer.places import after_retired, found_layers, is_stale, known, layouts
    from sifmod.actions.layer.shown_layer import shown_layer

    layout = layout_for(prefix)
    trees = layouts(layout.prefix, os.environ)
    modules = known(trees)
    rows: list[ShownLayer] = []
    for layer in found_layers(trees, os.environ):
        if not str(layer.module).startswith(module):
            continue
        state: State = "stale" if is_stale(layer, modules) else "live" if layer.image else "unreadable"
        rows.append(shown_layer(layer, state, after_retired(layer.module, trees)))
    if as_json:
        print_json(rows)
        return
    print_rows(
        [
            (
                str(row.module),
                f"{row.layer} (stale)" if row.state == "stale" else row.layer,
                size_text(row.size),
                f"{row.file_count} files",
                row.ended or _about(row, there=row.module in modules),
                "" if Path(row.path).is_relative_to(layout.prefix) else f"in {row.path}",
            )
            for row in rows
        ]
    )
    if not rows:
        echo(f"there is no layer{f' of {module}' if module else ''}; `sifmod add MODULE PACKAGE` makes one", err=True)


def _about(row: "ShownLayer", *, there: bool) -> str:
    """What a layer is for, or what is wrong with it and which command ends it. `there`: its module is installed."""
    if row.state == "unreadable":
        return _UNREADABLE
    if row.state != "stale":
        return ", ".join(row.requirements)
    named = "" if row.layer == "default" else f" --layer {row.layer}"
    if not there:
        return f"its module is not installed; `sifmod remove {row.module} --all{named}` removes it"
    return f"for an earlier image; `sifmod remove {row.module} --stale{named}` removes it"


def changed(name: str, change: "LayerChange", given: Given, of: str | None = None) -> None:
    """Change a layer of the module called `name`, and say what came of it; `of`: whose layer it is to be like."""
    from sifmod.actions.changing_prefix import changing_prefix, for_layers
    from sifmod.actions.layer.add import change_layer, check, like
    from sifmod.actions.layer.places import after_retired, found_layers, hidden, installed, known, layers_for, layouts
    from sifmod.actions.layer.shown_layer import shown_layer

    site, directory, as_json = load_facts(given).site, given["directory"], given["as_json"]
    trees = layouts(site.prefix, os.environ)
    modules = known(trees)
    environ = {**os.environ, **({"SIFMOD_LAYERS": directory} if directory else {})}
    left = {layer.module for layer in found_layers(trees, environ)} - modules.keys()
    try:
        module = resolve(name, {*modules, *left})
    except ModuleError as error:
        gone = ModuleName(*name.split("/", 1)) if "/" in name else None
        raise ModuleError(error.message, (gone and after_retired(gone, trees)[0]) or error.hint) from error
    if module in left and change.everything:
        removed_stale(str(module), given, site)
        return
    if module in left:
        hint = f"install it again, or remove its layers: `sifmod remove {module} --all`"
        raise ModuleError(f"{module} is not installed", after_retired(module, trees)[0] or hint)
    if retired := after_retired(module, trees)[0]:
        say(f"warning: {retired}")
    installation = installed(module, trees)
    check(installation, change.name)
    layers = layers_for(installation, directory, os.environ)
    if of is not None:
        there = tuple(found_layers(trees, os.environ))
        change = like(change, resolve(of, {one.module for one in there} | modules.keys()), there)
    with changing_prefix(for_layers(site, layers.prefix)):
        layer, became = change_layer(installation, layers, change, site, reporter())
    if as_json:
        print_json(shown_layer(layer, "removed" if became == "removed" else "live"))
    elif became == "removed":
        say(f"layer {layer.name} of {module}: removed; what runs with it keeps it")
    elif became == "unchanged":
        say(f"layer {layer.name}: nothing to do")
    else:
        form = f"one file of {size_text(layer.size)}" if layer.packed else f"a directory of {size_text(layer.size)}"
        say(f"layer {layer.name}: {layer.files} files, {form}; the lock is beside it, in {layer.root}")
    if not as_json:
        for told in _shells(module, layer, became, site.runtime_kind):
            say(told)
        if became == "made" and (told := hidden(layer, Layout(layers.tree), os.environ)):
            say(told)
        if directory and became == "made":
            say(f"who wants it sets SIFMOD_LAYERS={layers.prefix}")


def removed_stale(name: str, given: Given, site: "Site") -> None:
    """Take the layers of a module, which need not be installed, out of use that were made for other images."""
    from sifmod.actions.changing_prefix import changing_prefix, for_layers
    from sifmod.actions.layer.places import found_layers, is_stale, known, layouts, withdrawn
    from sifmod.actions.layer.shown_layer import shown_layer

    layer, trees = given["layer"], layouts(site.prefix, os.environ)
    modules = known(trees)
    more = {"SIFMOD_LAYERS": given["directory"]} if given["directory"] else {}
    stale = [one for one in found_layers(trees, {**os.environ, **more}) if is_stale(one, modules) and one.name == layer]
    module = resolve(name, {one.module for one in stale} | modules.keys())
    going = [one for one in stale if one.module == module]
    if not going:
        raise ModuleError(
            f"{module} has no layer {layer} for an earlier image", "`sifmod layers` lists those that there are"
        )
    for one in going:
        with changing_prefix(for_layers(site, one.top)):
            withdrawn(one, site.lock_lease, reporter())
        why = "for an earlier image" if module in modules else "which is not installed"
        say(f"layer {one.name} of {module}, {why}: removed; {_freed(one, site)}")
    if given["as_json"]:
        print_json([shown_layer(one, "removed") for one in going])


def _freed(layer: "Layer", site: "Site") -> str:
    """What frees the space of a layer that was taken out of use."""
    if layer.top == site.prefix / "layers":
        return "`sifmod gc` frees its space"
    if layer.top.name == "layers":
        return f"`sifmod gc --prefix {shell(str(layer.top.parent))}` frees its space"
    return f"its files stay in {Path(layer.root).parent} until you remove them"


def _shells(module: "ModuleName", layer: "Layer", became: str, runtime: str) -> "Iterator[str]":
    """What this shell, which has loaded the module, has to do; nothing for one that has not."""
    from sifmod.module.variables import state_key

    key = state_key(module)
    bound = f"_SIFMOD_LAYER_{key}" in os.environ
    names = ("SINGULARITY_BINDPATH", "APPTAINER_BINDPATH")
    packed = any(f"{layer.name}/" in text and "/layer.squashfs:" in text for text in map(os.environ.get, names) if text)
    if f"_SIFMOD_GENERATION_{key}" in os.environ and became != "unchanged":
        if not bound and became == "made":
            yield "the module's commands have it at once"
            yield f"`{runtime} exec` and new commands need another `module load {module}`"
        elif bound and (became == "removed" or packed != layer.packed):
            yield f"`{runtime} exec` needs another `module load {module}`; the module's commands do not"


@click.command("add")
@click.argument("module", metavar="MODULE")
@click.argument("requirements", nargs=-1, metavar="REQUIREMENT...")
@click.option(
    "-r", "--requirement", "files", multiple=True, metavar="FILE", help="Add what a requirements.txt asks for."
)
@click.option("-c", "--constraint", "constraints", multiple=True, metavar="FILE", help="Take versions that it allows.")
@click.option(
    "-e", "--editable", multiple=True, metavar="DIRECTORY", help="Add a project of yours as it is being edited."
)
@click.option("--onto", metavar="MODULE", help="Make the layer of MODULE anew for this module or its new image.")
@click.option("-U", "--upgrade", is_flag=True, help="Take newer versions of all that the layer holds.")
@click.option("--pre", is_flag=True, help="Take versions before a release, too.")
@click.option("--unpacked", is_flag=True, help="Keep a directory, which can be edited, and not one file.")
@places_options
@click.option("--no-build-isolation", is_flag=True, help="Compile with what the image and the layer hold (flash-attn).")
@_no_import
@layer_options
@prefix_option
@json_option
def add_command(
    module: str,
    requirements: Words,
    files: Words,
    constraints: Words,
    editable: Words,
    onto: str | None,
    **given: Any,
) -> None:
    """Add Python packages to a module, in a layer over its image.

    A REQUIREMENT is what pip takes: a name with a version, a wheel or a project here (./x.whl, '.[dev]'), a URL,
    git+https://…. They are there at once for everything that the module starts, on every node. What the image is built
    around (torch, what is compiled against it, NVIDIA's and AMD's libraries, MPI) stays as it is; anything else may be
    newer.
    """
    from dataclasses import replace

    from sifmod.actions.layer.add import LayerChange
    from sifmod.image.packages.asked import asked

    if not (requirements or files or constraints or editable or onto or given["upgrade"]):
        raise OptionError("there is nothing to add", f"name packages: sifmod add {module} transformers")
    wanted = asked(requirements, editable, map(Path, files), map(Path, constraints))
    more = {"no_build_isolation": given["no_build_isolation"], "pre": given["pre"]}
    wanted = replace(wanted, words=(*_words(given, **more), *wanted.words))
    kind = {"upgrade": given["upgrade"], "unpacked": given["unpacked"], "tried": not given["no_import"]}
    change = LayerChange(given["layer"], wanted, **kind)
    changed(onto or module, change, given, of=module if onto else None)


def _words(given: Given, **more: bool) -> Words:
    """The words of uv for where packages are looked for."""
    from sifmod.image.packages.wanted import words_of

    options = {"no_index": given["no_index"], **more}
    return words_of(given["find_links"], given["index_url"], given["extra_index_url"], **options)


@click.command("remove")
@click.argument("module", metavar="MODULE")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="The whole layer.")
@click.option("--stale", is_flag=True, help="The layers for images that are no longer installed.")
@places_options
@layer_options
@prefix_option
@json_option
def remove_command(module: str, names: Words, everything: bool, stale: bool, **given: Any) -> None:
    """Take packages out of a module's layer, and what only they needed; what the image holds is there again."""
    from sifmod.actions.layer.add import LayerChange
    from sifmod.image.packages.wanted import Wanted

    if stale:
        if names or everything:
            raise OptionError("--stale goes without packages and without --all")
        removed_stale(module, given, load_facts(given).site)
        return
    if not names and not everything:
        raise OptionError("there is nothing to remove", "name packages, or --all for the whole layer")
    change = LayerChange(given["layer"], Wanted(words=_words(given)), remove=names, everything=everything, tried=False)
    changed(module, change, given)


@click.command("sync")
@click.argument("module", metavar="MODULE")
@click.argument("lock", metavar="LOCK")
@places_options
@click.option("--unpacked", is_flag=True, help="Keep a directory and not one file.")
@_no_import
@layer_options
@prefix_option
@json_option
def sync_command(module: str, lock: str, unpacked: bool, **given: Any) -> None:
    """Make a layer as a lock says (pylock.toml, which each layer has beside it): the same bytes on every machine.

    LOCK may be a requirements.txt in which every line has its digests: the layer then holds that, and nothing else.
    """
    from dataclasses import replace

    from sifmod.actions.layer.add import LayerChange
    from sifmod.image.packages.asked import asked
    from sifmod.image.packages.wanted import Wanted, read_lock

    name, tried = given["layer"], not given["no_import"]
    if lock.endswith(".toml"):
        change = LayerChange(
            name, Wanted(words=_words(given)), lock=read_lock(Path(lock)), unpacked=unpacked, tried=tried
        )
    else:
        wanted = asked(files=(Path(lock),), all_hashed=True)
        wanted = replace(wanted, words=(*_words(given), *wanted.words))
        change = LayerChange(name, wanted, replaces=True, unpacked=unpacked, tried=tried)
    changed(module, change, given)
