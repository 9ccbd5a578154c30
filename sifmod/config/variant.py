"""Which variant of an easyconfig is for this machine."""

import shlex
from pathlib import Path

from sifmod.config.layers import Layers
from sifmod.config.site import Site
from sifmod.config.yaml.check import did_you_mean
from sifmod.config.yaml.merge import merge
from sifmod.config.yaml.node import Mark
from sifmod.errors import VariantError


def choose_variant(path: Path, layers: Layers, site: Site, wanted: str | None) -> str | None:
    """The variant called `wanted`, else the first that fits the site; None for an easyconfig without variants.

    A variant fits when its accelerator and its image's architecture are the site's.
    Raises VariantError, which lists the variants, each with its command.
    """
    if wanted is not None and not layers.variants:
        raise VariantError(f"{path.name} has no variants, so none is called {wanted!r}", "leave out --variant")
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
        "`sifmod config show` says where the site's values come from, --site names another site",
    )


def _target(layers: Layers, variant: str) -> tuple[str, str]:
    merged = merge(layers.of(variant), Mark("", 0, 0)).entries
    accelerator, arch = merged.get("accelerator"), merged["image"].entries.get("arch")
    return accelerator.text if accelerator else "", arch.text if arch else ""


def _list(path: Path, layers: Layers, site: Site) -> str:
    on_path = any(path.is_relative_to(directory) for directory in site.robot_paths)
    name = shlex.quote(path.name if on_path else str(path))
    lines = []
    for variant in layers.variants:
        accelerator, arch = _target(layers, variant)
        lines.append(f"  {variant} (accelerator {accelerator}, {arch}): sifmod install {name} --variant {variant}")
    return "\n".join(lines)
