"""search: what the easyconfigs on the easyconfig path can install."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.config.find import easyconfigs
from sifmod.config.offered import Offered, read_index
from sifmod.errors import ConfigError, Problem

if TYPE_CHECKING:
    from sifmod.config.load_easyconfig import LoadedEasyconfig
    from sifmod.config.load_site import LoadedSite


@dataclass(frozen=True)
class Found:
    """An easyconfig and its variants, whether they fit the site or not; none where the file has problems."""

    path: Path
    variants: tuple[Offered, ...]
    problems: tuple[Problem, ...] = ()


def find_all(
    robot_paths: tuple[Path, ...], load_site: Callable[[], "LoadedSite"], environ: Mapping[str, str]
) -> tuple[Found, ...]:
    """Every easyconfig on the easyconfig path; `load_site` is called for each that is not in the index.

    Raises what `load_site` raises.
    """
    index = read_index(robot_paths, environ)
    return tuple(
        Found(path, index[path]) if path in index else describe(path, load_site(), environ)
        for path in easyconfigs(robot_paths)
    )


def describe(path: Path, site: "LoadedSite", environ: Mapping[str, str]) -> Found:
    """What one easyconfig offers; a file that `check` refuses is told by its problems, not raised."""
    from sifmod.actions.sources import check_sources
    from sifmod.config.load_easyconfig import all_variants

    try:
        loaded = all_variants(path, site, environ)
        for each in loaded:
            check_sources(each)
        return Found(path, tuple(map(offered, loaded)))
    except ConfigError as error:
        return Found(path, (), error.problems)


def offered(loaded: "LoadedEasyconfig") -> Offered:
    """What a search asks of an easyconfig that is loaded."""
    from sifmod.config.shown import shown

    made, layers = loaded.easyconfig, loaded.layers
    variant = layers.variants[loaded.variant].presets if loaded.variant is not None else ()
    presets = [Path(node.mark.file).stem for node in (*layers.presets, *variant)]
    image, written = made.image, loaded.tree.entries.get("image")
    sources = image.sources if image else ()
    if image and image.build is not None:
        sources = (f"build:{image.build.from_ or image.build.definition or image.build.dockerfile}",)
    return Offered(
        variant=loaded.variant,
        name=made.name,
        version=made.version,
        versionsuffix=made.versionsuffix,
        accelerator=made.accelerator,
        description=" ".join(made.description.split()),
        keywords=(*made.whatis, *dict.fromkeys(presets)),
        contents=dict(made.contents),
        sources=tuple(map(shown, sources)),
        available=image.available.strip() if image else f"loads {', '.join(made.modules)}",
        arch=image.arch if image and written and written.entries["arch"].mark.line else "",
    )
