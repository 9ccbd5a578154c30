"""The releases of a name that easyconfigs can install, newest first, and which of them fit a machine."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.search import Found
from sifmod.config.find import name_of
from sifmod.config.index import IndexEntry
from sifmod.config.site import Site
from sifmod.config.version import release_key, version_key
from sifmod.errors import FetchError
from sifmod.module.quote import shell


class Release(NamedTuple):
    """A module that can be installed: an easyconfig, or one of its variants."""

    path: Path
    offer: IndexEntry

    def words(self, robot_paths: tuple[Path, ...]) -> tuple[str, ...]:
        """What is typed after `sifmod install` for exactly this release."""
        variant = ("--variant", self.offer.variant) if self.offer.variant else ()
        return (name_of(self.path, robot_paths), *variant)

    def command(self, robot_paths: tuple[Path, ...]) -> str:
        """The command that installs exactly this release."""
        return " ".join(("sifmod", "install", *map(shell, self.words(robot_paths))))


def releases(found: Iterable[Found], name: str) -> tuple[Release, ...]:
    """The releases of a name, in upper or lower case, newest first; of one version the shortest file name first."""
    wanted = name.casefold()
    those = [Release(one.path, offer) for one in found for offer in one.variants if offer.name.casefold() == wanted]
    return tuple(sorted(those, key=_newest_first, reverse=True))


def _newest_first(one: Release) -> tuple[object, ...]:
    version, suffix = one.offer.version, one.offer.versionsuffix
    return release_key(version), -len(one.path.stem), version_key(suffix)


def available(those: Sequence[Release], site: Site) -> tuple[Release, ...]:
    """The releases for this architecture whose image is public or a file here, and views.

    Releases that the site's driver does not run are left out. So are those whose image is built from a Dockerfile or a
    definition: a builder may be missing, and a build takes long.
    """
    fit = (one for one in those if one.offer.arch in ("", site.arch) and not one.offer.not_run_by(site.driver_runs))
    return tuple(one for one in fit if _can_be_had(one.offer, site))


def _can_be_had(offer: IndexEntry, site: Site) -> bool:
    if not offer.sources or offer.public:
        return True
    from sifmod.image.sources.source_kinds import parse

    for source in (each for each in offer.sources if not each.startswith("build:")):
        try:
            reference = parse(source)
            if any(Path(place).exists() for place in reference.kind.watched(reference, site.image_dirs)):
                return True
        except (FetchError, OSError):
            continue
    return False
