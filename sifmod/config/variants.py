"""What an easyconfig inherits, and its variants: which there are, for which machines, and which one is meant."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sifmod.config.index import IndexEntry
from sifmod.config.inheritance import Inherited, read_inherited
from sifmod.config.option_layers import easyconfig_layer
from sifmod.config.site import Site
from sifmod.config.yaml.node import Mark, Node, merge, tree
from sifmod.config.yaml.validate import did_you_mean
from sifmod.errors import VariantError

DEFAULT = Mark("default", 0, 0)
# Empty, so that the host's value does not reach the container; `PYTHONPATH: null` passes it on.
_ENV = {"PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PYTHONPATH": "", "LD_PRELOAD": ""}
_WRAPPERS = ("start-shell",)  # if nothing is known about the image
_RUNSCRIPTS = (
    *("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages"),
    *("torchrun-distributed", "gpu-check"),
)
Overrides = Mapping[str, str | tuple[str, ...]]
"""Values from the command line, by key path: `{"image.sources": ("/data/x.sif",)}`; a tuple is a list."""


def inherited_layers(path: Path, site: Site, overrides: Overrides) -> Inherited:
    last = (easyconfig_layer(overrides),)
    layers = read_inherited(path, site.robot_paths)
    return replace(layers, first=(defaults(site),), last=last)


def defaults(site: Site) -> Node:
    """The lowest layer. An easyconfig without accelerator or architecture gets the site's."""
    values = {"path": ("/runscripts",), "env": _ENV, "wrappers": _WRAPPERS, "runscripts": _RUNSCRIPTS}
    of_site = {"accelerator": site.accelerator, "image": {"arch": site.arch}}
    entries = {**tree(values, DEFAULT).entries, **tree(of_site, Mark(f"site {site.name}", 0, 0)).entries}
    return Node(entries, DEFAULT, DEFAULT)


def parts_of_name(easyconfig: Node) -> tuple[str, ...]:
    return tuple(easyconfig.at(key).text for key in ("name", "version", "versionsuffix"))


def choose_variant(path: Path, layers: Inherited, site: Site, wanted: str | None) -> str | None:
    """The variant named `wanted`, else the first that fits the site; None for an easyconfig without variants.

    A variant fits if its accelerator and its image's architecture are the site's. Raises VariantError, which lists the
    variants, each with its command.
    """
    if wanted is not None and not layers.variants:
        raise VariantError(f"{path.name} has no variants, so there is no variant {wanted!r}", "leave the variant out")
    if wanted is not None:
        if wanted in layers.variants:
            return wanted
        near = did_you_mean(wanted, layers.variants)
        known = _list(path, layers, site)
        raise VariantError(f"{path.name} has no variant {wanted!r}{near}\nits variants are\n{known}")
    if not layers.variants:
        return None
    for name in layers.variants:
        if _target(layers, name) == (site.accelerator, site.arch):
            return name
    raise VariantError(
        f"{path.name} has no variant for this machine: site {site.name} has accelerator {site.accelerator} and "
        f"architecture {site.arch}\nits variants are\n{_list(path, layers, site)}",
        "`sifmod config show` lists the origin of the site's values; --site selects another site",
    )


def variants_for(path: Path, site: Site) -> tuple[str | None, ...]:
    """The variants of an easyconfig whose image has the site's architecture; only None if it has no variants.

    Raises ConfigError, VariantError if no variant is for this architecture.
    """
    layers = inherited_layers(path, site, {})
    fit = tuple(name for name in layers.variants if _target(layers, name)[1] == site.arch)
    if layers.variants and not fit:
        known = _list(path, layers, site)
        raise VariantError(f"{path.name} has no variant for architecture {site.arch}\nits variants are\n{known}")
    return fit or (None,)


def outlines(path: Path, site: Site) -> Iterator[IndexEntry]:
    """The variants of an easyconfig in order, with module name, accelerator, architecture; the rest is not validated.

    Without variants the easyconfig itself. Raises ConfigError.
    """
    layers = inherited_layers(path, site, {})
    for variant in layers.variants or (None,):
        name, version, suffix = parts_of_name(merge(layers.of(variant), DEFAULT))
        accelerator, arch = _target(layers, variant)
        yield IndexEntry(variant, name, version, suffix, accelerator, "", (), {}, (), "", arch)


def _target(layers: Inherited, variant: str | None) -> tuple[str, str]:
    merged = merge(layers.of(variant), Mark("", 0, 0))
    return merged.at("accelerator").text, merged.at("image", "arch").text


def _list(path: Path, layers: Inherited, site: Site) -> str:
    on_path = any(path.is_relative_to(directory) for directory in site.robot_paths)
    name = shlex.quote(path.name if on_path else str(path))
    lines = []
    for variant in layers.variants:
        accelerator, arch = _target(layers, variant)
        lines.append(f"  {variant} (accelerator {accelerator}, {arch}): sifmod install {name} --variant {variant}")
    return "\n".join(lines)
