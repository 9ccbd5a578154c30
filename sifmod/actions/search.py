"""search: what the easyconfigs found can install."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sifmod.config.load import all_variants
from sifmod.config.settings import LoadedSite
from sifmod.errors import ConfigError, Problem


@dataclass(frozen=True)
class Offered:
    """One variant of an easyconfig; `variant` is None where the easyconfig has none."""

    variant: str | None
    module: str
    accelerator: str


@dataclass(frozen=True)
class Found:
    """An easyconfig and its variants, whether they fit the site or not; none where the file has problems."""

    path: Path
    variants: tuple[Offered, ...]
    problems: tuple[Problem, ...] = ()


def describe(path: Path, site: LoadedSite, environ: Mapping[str, str]) -> Found:
    """What one easyconfig offers; a file that cannot be used is told by its problems, not raised."""
    try:
        loaded = all_variants(path, site, environ)
    except ConfigError as error:
        return Found(path, (), error.problems)
    return Found(
        path,
        tuple(Offered(each.variant, str(each.easyconfig.module), each.easyconfig.accelerator) for each in loaded),
    )
