"""Load an easyconfig: merge its presets, the easyconfigs it extends, its variant, quirks and the command line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.bind import expand
from sifmod.config.build import Build, names_easyconfig, place_in_image, spelled_out_node
from sifmod.config.easyconfig import Easyconfig, Image
from sifmod.config.expand import resolve_path, resolve_sources, secret_in_path, variables_read
from sifmod.config.find import find_easyconfig, places_before
from sifmod.config.inheritance import Inherited, checked_view, is_view, view_defaults
from sifmod.config.input import Input, read_input
from sifmod.config.load_site import LoadedSite
from sifmod.config.origin import Origin, of_tree
from sifmod.config.private import closed_elsewhere, closed_to_author
from sifmod.config.quirk import Quirk, applicable, variables_with
from sifmod.config.variants import DEFAULT, Overrides, choose_variant, inherited_layers, parts_of_name
from sifmod.config.yaml.node import Mark, Node, join_key, merge, problem_at, tree
from sifmod.config.yaml.validate import build
from sifmod.errors import ConfigError, EasyconfigNotFoundError, PatternError, Problem, VariantError

_FILES = ("definition", "dockerfile", "requirements")
_WHICH_PYTHON = frozenset(("activate", "conda", "venv"))


@dataclass(frozen=True)
class LoadedEasyconfig:
    """The easyconfig of one variant, the origin of each value, and every file and variable that was read."""

    easyconfig: Easyconfig
    variant: str | None  # None if the file has no variants
    path: Path
    inputs: tuple[Input, ...]  # the site's are not among them
    origins: tuple[Origin, ...]
    notes: tuple[str, ...]  # for the user: a source was skipped because its variable is not set
    layers: Inherited  # the layers it was merged from
    plain: Easyconfig  # without quirks, for its variables
    quirks: tuple[Quirk, ...]  # the ones that apply
    tree: Node  # the layers merged
    bases: tuple[Easyconfig, ...]  # of an image that is built: its base, the base of that, and so on


def load_easyconfig(
    path: Path, loaded_site: LoadedSite, variant: str | None, overrides: Overrides, environ: Mapping[str, str]
) -> LoadedEasyconfig:
    """One variant of the easyconfig at `path`: the one named, or the first that fits the site.

    Raises ConfigError with every problem of every file read, VariantError (choose_variant), OptionError for
    what `overrides` say.
    """
    site = loaded_site.site
    layers = inherited_layers(path, site, overrides)
    return _load(path, layers, choose_variant(path, layers, site, variant), _Surroundings(loaded_site, environ))


def with_digests(loaded: LoadedEasyconfig, site: LoadedSite, digests: tuple[str, ...]) -> LoadedEasyconfig:
    """The easyconfig with the quirks of an image by its digests (`sha256:…`); `loaded` itself if none differs.

    A quirk sets and unsets variables, and nothing else. Origins and tree stay as they were.
    """
    quirks = applicable(site.quirks, loaded.easyconfig, site.site.name, digests)
    if quirks == loaded.quirks:
        return loaded
    easyconfig = loaded.easyconfig.model_copy(update=variables_with(quirks, loaded.plain))
    return replace(loaded, easyconfig=easyconfig, quirks=quirks)


def all_variants(path: Path, loaded_site: LoadedSite, environ: Mapping[str, str]) -> tuple[LoadedEasyconfig, ...]:
    """Every variant, whether or not it fits the site; without variants the easyconfig itself.

    Raises ConfigError with every problem of every variant, including two variants with the same module.
    """
    layers = inherited_layers(path, loaded_site.site, {})
    loaded: list[LoadedEasyconfig] = []
    problems: list[Problem] = []
    for name in layers.variants or (None,):
        try:
            loaded.append(_load(path, layers, name, _Surroundings(loaded_site, environ)))
        except ConfigError as error:
            problems += error.problems
    first: dict[str, str | None] = {}
    for each in loaded:
        module = str(each.easyconfig.module)
        if module in first and each.variant is not None:
            message = f"gives the same module as variant {first[module]}: {module}"
            problems.append(problem_at(layers.variants[each.variant].own[-1].key, f"variants.{each.variant}", message))
        first.setdefault(module, each.variant)
    if problems:
        raise ConfigError(tuple(sorted(set(problems))))
    return tuple(loaded)


@dataclass(frozen=True)
class _Surroundings:
    site: LoadedSite
    environ: Mapping[str, str]
    above: tuple[Path, ...] = ()  # the easyconfigs that build on this one


def _load(path: Path, layers: Inherited, variant: str | None, around: _Surroundings) -> LoadedEasyconfig:
    easyconfig, complete, written, notes = _merged(path, layers.of(variant), around.environ)
    plain, quirks = easyconfig, applicable(around.site.quirks, easyconfig, around.site.site.name)
    if quirks:
        upper = replace(layers, last=(*(quirk.layer for quirk in quirks), *layers.last))
        easyconfig, complete, written, notes = _merged(path, upper.of(variant), around.environ)
    try:
        binds, looked_at = expand(easyconfig.binds, around.environ)
    except PatternError as error:
        raise ConfigError((problem_at(complete.entries["binds"].mark, "binds", error.message),)) from error
    read = variables_read([written.at("image", key) for key in ("sources", "build")], around.environ)
    origins = [origin for key, node in complete.entries.items() for origin in of_tree(node, key)]
    bases: tuple[Easyconfig, ...] = ()
    if easyconfig.image and (recipe := easyconfig.image.build):
        recipe = _with_files(recipe, complete.entries["image"].entries["build"])
        own = easyconfig.image.model_copy(update={"build": recipe})
        easyconfig = easyconfig.model_copy(update={"image": own})
        if recipe.definition:
            read = (*read, read_input(recipe.definition, around.environ))
        if recipe.from_:
            below = replace(around, above=(*around.above, Path(os.path.realpath(path))))
            if names_easyconfig(recipe.from_):
                base, of_base = _base(recipe.from_, easyconfig, complete, below)
                inherited = {key: base.tree.entries[key] for key in _python_of_base(complete, base.tree)}
                origins += [origin for key, node in inherited.items() for origin in of_tree(node, key)]
                easyconfig = easyconfig.model_copy(update={key: getattr(base.easyconfig, key) for key in inherited})
                written = replace(written, value={**written.entries, **inherited})
                bases, read = (base.easyconfig, *base.bases), (*read, *of_base)
            else:
                source = Image(filename=f"base-of-{easyconfig.name}.sif", sources=(recipe.from_,), arch=own.arch)
                bases = (easyconfig.model_copy(update={"image": source}),)
    origins += [origin for quirk in quirks for origin in quirk.origins]
    inputs = tuple(dict.fromkeys((*layers.inputs, *read, *looked_at)))
    easyconfig = easyconfig.model_copy(update={"binds": binds})
    return LoadedEasyconfig(
        easyconfig, variant, path, inputs, tuple(origins), notes, layers, plain, quirks, written, bases
    )


def _merged(
    path: Path, layers: tuple[Node, ...], environ: Mapping[str, str]
) -> tuple[Easyconfig, Node, Node, tuple[str, ...]]:
    """The easyconfig, its merged layers completed and as written, and notes about its sources. Raises ConfigError."""
    start = Mark(str(path), 1, 1)
    merged = merge(layers, start)
    notes: tuple[str, ...] = ()
    wrong: tuple[Problem, ...] = ()
    if is_view(merged):
        merged = merge((view_defaults(layers[0]), *layers[1:]), start)
        complete, wrong = checked_view(merged)
    else:
        image, notes = _settled(merged, environ)
        complete = replace(merged, value={**merged.entries, "image": image})
    easyconfig = build(Easyconfig, complete)
    if isinstance(easyconfig, tuple) or wrong:
        # If a default is incomplete, the problem is reported at the start of the file.
        found = (*(easyconfig if isinstance(easyconfig, tuple) else ()), *wrong)
        placed = (problem if problem.line else problem_at(start, problem.key, problem.message) for problem in found)
        raise ConfigError(tuple(sorted(placed)))
    return easyconfig, complete, merged, notes


def _settled(merged: Node, environ: Mapping[str, str]) -> tuple[Node, tuple[str, ...]]:
    """The image with its name and absolute sources, and notes about skipped sources. Raises ConfigError."""
    image = merged.entries.get("image", Node({}, merged.mark, merged.key))
    entries = {"filename": filename(merged), **image.entries}
    notes: tuple[str, ...] = ()
    if written := entries.get("sources"):
        _refuse_secrets({f"image.sources[{number}]": node for number, node in enumerate(written.items)}, environ)
        sources, notes = resolve_sources(written.items, environ)
        if notes and not sources:
            raise ConfigError((problem_at(written.mark, "image.sources", "; ".join(notes)),))
        entries["sources"] = replace(written, value=sources)
    if recipe := entries.get("build"):
        entries["build"] = _settled_build(recipe, environ)
    return replace(image, value=entries), notes


def _refuse_secrets(sources: Mapping[str, Node], environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable with a secret's name in the host or path of one of `sources`, by their keys."""
    problems = [
        problem_at(
            node.mark,
            key,
            f"the value of the variable {name} would be stored where others read it; use ~/.netrc or the registry's "
            "login",
        )
        for key, node in sources.items()
        if (name := secret_in_path(node, environ))
    ]
    if problems:
        raise ConfigError(tuple(problems))


def _refuse_closed(files: Mapping[str, Node]) -> None:
    """Raise ConfigError for one of `files`, by their keys, that is closed to the user who wrote its name."""
    problems = [
        problem_at(node.mark, key, f"{why}: the image would show what is in it; open it to them, or copy this file")
        for key, node in files.items()
        if node.mark.line and node.text and (why := closed_to_author(node.text, node.mark.file))
    ]
    if problems:
        raise ConfigError(tuple(problems))


def _settled_build(written: Node, environ: Mapping[str, str]) -> Node:
    """The build with absolute paths, except those of `files`. Raises ConfigError for a source that cannot be used."""
    recipe = spelled_out_node(written)
    files = {key: resolve_path(recipe.entries[key], environ) for key in _FILES if key in recipe.entries}
    _refuse_closed({f"image.build.{key}": node for key, node in files.items()})
    problems = [
        problem_at(node.mark, f"image.build.{key}", f"{why}: copy it there, or open it to them")
        for key, node in files.items()
        if node.mark.line and node.text and (why := closed_elsewhere(node.text, node.mark.file))
    ]
    if problems:
        raise ConfigError(tuple(problems))
    entries = {**recipe.entries, **files}
    base = entries.get("from")
    if base and base.text:
        if names_easyconfig(base.text):
            beside = resolve_path(base, environ)
            entries["from"] = beside if os.path.isfile(beside.text) else base  # noqa: PTH113 (any text may be asked)
        else:
            _refuse_secrets({"image.build.from": base}, environ)
            settled, notes = resolve_sources((base,), environ)
            if notes:
                raise ConfigError((problem_at(base.mark, "image.build.from", notes[0]),))
            entries["from"] = settled[0]
    return replace(recipe, value=entries) if entries else recipe


def _with_files(recipe: Build, node: Node) -> Build:
    """The build with absolute paths of its files.

    Raises ConfigError for links that leave the directory, and for two files with one path in the image.
    """
    files, problems, places = [], [], dict[str, str]()
    written = node.entries["files"].entries if recipe.files else {}
    for name, target in recipe.files:
        directory = Path(os.path.abspath(written[name].key.file)).parent  # noqa: PTH100 (a link stays a link)
        if not Path(os.path.realpath(directory / name)).is_relative_to(os.path.realpath(directory)):
            message = f"a link leaves the easyconfig's directory, {directory}"
            problems.append(problem_at(written[name].key, join_key("image.build.files", name), message))
        source = f"{directory}/{name}"
        _refuse_closed({join_key("image.build.files", name): replace(written[name], value=source)})
        other = places.setdefault(place_in_image(source, target), source)
        if other != source and not (os.path.isdir(other) and os.path.isdir(source)):  # noqa: PTH112 (as above)
            message = f"{target} is also the path of {other}: give each file its own path"
            problems.append(problem_at(written[name].key, join_key("image.build.files", name), message))
        files.append((source, target))
    if problems:
        raise ConfigError(tuple(problems))
    return recipe.model_copy(update={"files": tuple(files)})


def _python_of_base(own: Node, base: Node) -> tuple[str, ...]:
    """The keys that locate an image's Python, if only the base's easyconfig sets them."""
    said = {key for key in (*_WHICH_PYTHON, "path") if own.at(key).mark != DEFAULT and key in own.entries}
    keys = () if _WHICH_PYTHON & said else sorted(_WHICH_PYTHON)
    return tuple(key for key in (*keys, "path") if key in base.entries and key not in said)


def _base(
    base: str, easyconfig: Easyconfig, complete: Node, around: "_Surroundings"
) -> tuple[LoadedEasyconfig, tuple[Input, ...]]:
    """The easyconfig of the base image, and the inputs that were read for it. Raises ConfigError."""
    image = easyconfig.required_image
    mark = complete.entries["image"].entries["build"].entries["from"].mark
    site = replace(around.site.site, accelerator=easyconfig.accelerator, arch=image.arch)
    try:
        found = find_easyconfig(base, site.robot_paths)
        if Path(os.path.realpath(found)) in around.above:
            raise ConfigError((problem_at(mark, "image.build.from", "an easyconfig cannot be its own base"),))
        layers = inherited_layers(found, site, {})
        loaded = _load(found, layers, choose_variant(found, layers, site, None), around)
    except (EasyconfigNotFoundError, VariantError) as error:
        raise ConfigError((problem_at(mark, "image.build.from", error.message),)) from error
    if loaded.easyconfig.image is None:
        raise ConfigError((problem_at(mark, "image.build.from", f"{base} is a view, which has no image"),))
    places = (Input(str(place), None) for place in places_before(found, base, site.robot_paths))
    return loaded, (*places, *loaded.inputs)


def filename(easyconfig: Node) -> Node:
    """The default name of the SIF: `<name>-<version><versionsuffix>.sif`; `image.sif` without name or version."""
    name, version, suffix = parts_of_name(easyconfig)
    return tree(f"{name}-{version}{suffix}.sif" if name and version else "image.sif", DEFAULT)
