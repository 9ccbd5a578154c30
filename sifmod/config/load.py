"""An easyconfig with its preset, what it extends, its variant and the command line merged in."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.check import build, check_layer, did_you_mean
from sifmod.config.defaults import defaults, filename, tree
from sifmod.config.easyconfig import Easyconfig
from sifmod.config.input import Input, read_input
from sifmod.config.layers import Layers, read_layers
from sifmod.config.merge import merge
from sifmod.config.node import Mark, Node
from sifmod.config.origin import Origin, of_tree
from sifmod.config.settings import LoadedSite
from sifmod.config.site import Site
from sifmod.config.source import settle_path, settle_sources
from sifmod.config.variables import variables_read
from sifmod.errors import ConfigError, OptionError, Problem, VariantError


@dataclass(frozen=True)
class LoadedEasyconfig:
    """The easyconfig of one variant, where each value comes from, and every file and variable that was looked at."""

    easyconfig: Easyconfig
    variant: str | None  # None where the file has no variants
    path: Path
    inputs: tuple[Input, ...]  # the site's are not among them
    origins: tuple[Origin, ...]
    notes: tuple[str, ...]  # what the user should know: a source left out because its variable is not set


Overrides = Mapping[str, str | tuple[str, ...]]
"""What the command line says, by key path: `{"image.sources": ("/data/x.sif",)}`; a tuple is a list."""


def load_easyconfig(
    path: Path, loaded_site: LoadedSite, variant: str | None, overrides: Overrides, environ: Mapping[str, str]
) -> LoadedEasyconfig:
    """One variant of the easyconfig at `path`: the one named, or the first that fits the site.

    A variant fits when its accelerator and its image's architecture are the site's.
    Raises ConfigError with every problem of every file read, VariantError when no variant is called so or none fits
    (it lists them, each with its command), OptionError for what `overrides` say.
    """
    site = loaded_site.site
    layers = read_layers(path, site.robot_paths)
    command_line = _command_line(overrides)
    chosen = _choose(path, layers, site, variant)
    return _load(path, layers, chosen, (site, command_line), environ)


def all_variants(path: Path, loaded_site: LoadedSite, environ: Mapping[str, str]) -> tuple[LoadedEasyconfig, ...]:
    """Every variant, whether it fits the site or not; the easyconfig itself where it has none.

    Raises ConfigError with every problem of every variant, two variants that give one module among them.
    """
    site = loaded_site.site
    layers = read_layers(path, site.robot_paths)
    loaded: list[LoadedEasyconfig] = []
    problems: list[Problem] = []
    for name in layers.variants or (None,):
        try:
            loaded.append(_load(path, layers, name, (site, _command_line({})), environ))
        except ConfigError as error:
            problems += error.problems
    seen: dict[str, str | None] = {}
    for each in loaded:
        module = str(each.easyconfig.module)
        if module in seen and each.variant is not None:
            mark = layers.variants[each.variant][-1].key
            message = f"gives the same module as variant {seen[module]}: {module}"
            problems.append(Problem(mark.file, mark.line, mark.column, f"variants.{each.variant}", message))
        seen.setdefault(module, each.variant)
    if problems:
        raise ConfigError(tuple(sorted(set(problems))))
    return tuple(loaded)


def _load(
    path: Path, layers: Layers, variant: str | None, around: tuple[Site, Node], environ: Mapping[str, str]
) -> LoadedEasyconfig:
    site, command_line = around
    start = Mark(str(path), 1, 1)
    merged = _merged(layers, variant, around, start)
    image = _entries(_entries(merged)["image"])
    sources = image["sources"].value if "sources" in image else ()
    settled = settle_sources(sources if isinstance(sources, tuple) else (), environ)
    if settled.notes and not settled.nodes:
        mark = image["sources"].mark
        raise ConfigError((Problem(mark.file, mark.line, mark.column, "image.sources", "; ".join(settled.notes)),))
    read = variables_read((node for key in ("sources", "build") if (node := image.get(key))), environ)
    if "sources" in image:
        image = {**image, "sources": replace(image["sources"], value=settled.nodes)}
    if "build" in image:
        image = {**image, "build": settle_path(image["build"], environ)}
        read = (*read, read_input(str(image["build"].value), environ))
    complete = replace(merged, value={**_entries(merged), "image": replace(_entries(merged)["image"], value=image)})
    easyconfig = build(Easyconfig, complete)
    if isinstance(easyconfig, tuple):
        raise ConfigError(tuple(problem if problem.line else _moved(problem, start) for problem in easyconfig))
    origins = tuple(origin for key, node in _entries(complete).items() for origin in of_tree(node, key))
    return LoadedEasyconfig(easyconfig, variant, path, (*layers.inputs, *read), origins, settled.notes)


def _merged(layers: Layers, variant: str | None, around: tuple[Site, Node], start: Mark) -> Node:
    site, command_line = around
    chosen = layers.variants[variant] if variant is not None else ()
    merged = merge((defaults(site), *layers.common, *chosen, command_line), start)
    entries = _entries(merged)
    image = _entries(entries["image"])
    if "sources" in _entries(_entries(command_line).get("image", command_line)):
        image = {key: node for key, node in image.items() if key != "build"}
    image = {"filename": filename(entries), **image}
    return replace(merged, value={**entries, "image": replace(entries["image"], value=image)})


def _entries(node: Node) -> dict[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


def _moved(problem: Problem, mark: Mark) -> Problem:
    """A problem of a default stands at the beginning of the file that leaves it so."""
    return Problem(mark.file, mark.line, mark.column, problem.key, problem.message)


def _command_line(overrides: Overrides) -> Node:
    mark = Mark("the command line", 0, 0)
    entries: dict[str, object] = {}
    for path, value in overrides.items():
        *parents, key = path.split(".")
        inner = entries
        for parent in parents:
            inner = inner.setdefault(parent, {})  # type: ignore[assignment]
        inner[key] = value
    node = tree(entries, mark)
    if problems := check_layer(Easyconfig, node):
        raise OptionError("\n".join(f"{problem.key}: {problem.message}" for problem in problems))
    return node


def _choose(path: Path, layers: Layers, site: Site, wanted: str | None) -> str | None:
    if wanted is not None:
        if wanted in layers.variants:
            return wanted
        if not layers.variants:
            raise VariantError(f"{path.name} has no variants, so none is called {wanted!r}", "leave out --variant")
        near = did_you_mean(wanted, layers.variants)
        raise VariantError(f"{path.name} has no variant {wanted!r}{near}\n{_commands(path, layers, site)}")
    if not layers.variants:
        return None
    for name in layers.variants:
        if _target(layers, name, site) == (site.accelerator, site.arch):
            return name
    raise VariantError(
        f"{path.name} has no variant for accelerator {site.accelerator} and architecture {site.arch}, which site "
        f"{site.name} has; to install one all the same\n{_commands(path, layers, site)}",
        "`sifmod config show` says where the site's values come from, --site names another",
    )


def _target(layers: Layers, variant: str, site: Site) -> tuple[str, str]:
    entries = _entries(merge((defaults(site), *layers.common, *layers.variants[variant]), Mark("", 0, 0)))
    accelerator, arch = entries.get("accelerator"), _entries(entries["image"]).get("arch")
    return str(accelerator.value if accelerator else ""), str(arch.value if arch else "")


def _commands(path: Path, layers: Layers, site: Site) -> str:
    on_path = any(path.is_relative_to(directory) for directory in site.robot_paths)
    name = shlex.quote(path.name if on_path else str(path))
    lines = []
    for variant in layers.variants:
        accelerator, arch = _target(layers, variant, site)
        lines.append(f"  {variant} ({accelerator}, {arch}): sifmod install {name} --variant {variant}")
    return "\n".join(lines)
