"""outdated: what is newer than the installed modules: images that tags name now, and easyconfigs of later versions."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.releases import available, releases
from sifmod.actions.search import Found, find_all
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.version import version_key
from sifmod.errors import SifmodError
from sifmod.image.sources.source_kinds import parse
from sifmod.result import Described, Internal, Notes
from sifmod.tree.receipt import Installation

_AT_ONCE = 8  # concurrent requests


class Newer(NamedTuple):
    """Something newer than an installed module."""

    module: ModuleName
    what: Literal["image", "easyconfig"]
    was: Annotated[str, Described("the installed digest or version")]
    now: Annotated[str, Described("the newer digest, or the path of the newer easyconfig")]
    note: Annotated[str, Described("what is newer, in words")]
    variant: Internal[str | None] = None  # of the easyconfig


class Outdated(NamedTuple):
    """What is newer, and which servers could not be asked and easyconfigs not be read."""

    looked_at: Internal[int]  # installed modules
    newer: tuple[Newer, ...]
    notes: Notes


def outdated(installations: Sequence[Installation], site: LoadedSite, *, offline: bool = False) -> Outdated:
    """Tags of installed images that moved, and easyconfigs with later versions; `offline`: no server is asked."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        moved = tuple(threads.map(lambda one: _moved(one, site), () if offline else installations))
    found = find_all(site.site.robot_paths, lambda: site, os.environ)
    newer = [one for one in moved if isinstance(one, Newer)]
    there = {str(one.module) for one in installations}
    newer += [one for installation in installations for one in _later(installation, found, site, there)]
    ours = tuple({f"{one.module.name}-".casefold() for one in installations})  # what their files begin with
    broken = (one.path for one in found if one.problems and one.path.name.casefold().startswith(ours))
    notes = [one for one in moved if isinstance(one, str)]
    notes += [f"{path} has problems and was left out: `sifmod check` shows them" for path in broken]
    return Outdated(len(installations), tuple(sorted(newer, key=lambda one: one[:5])), tuple(dict.fromkeys(notes)))


def _moved(installation: Installation, site: LoadedSite) -> Newer | str | None:
    """The image that its source names now, if it changed; a message if the server cannot be asked; or None."""
    image = installation.image
    if image is None or image.source.startswith("build:"):  # images built here have no server
        return None
    was = image.origin.index or image.origin.manifest
    try:
        reference = parse(image.source)
        if reference.kind.location != "repository" or reference.digest or not was:
            return None
        try:
            own = Path(installation.root).stat().st_uid == os.geteuid()
        except OSError:  # it was removed meanwhile
            return None
        now = reference.kind.describe(reference, image.arch, replace(fetch_settings(site.site), named=own))
    except SifmodError as error:
        return f"{image.source} could not be asked: {error.message}"
    if was in (now.index, now.manifest):
        return None
    digest = now.index or now.manifest
    return Newer(installation.module, "image", was, digest, f"{reference.shown} is {digest} now, and was {was}")


def _later(installation: Installation, found: Sequence[Found], site: LoadedSite, there: set[str]) -> Iterator[Newer]:
    """The latest easyconfig of the same name for the same accelerator, if it is of a later version and not installed.

    Of several modules of that version it is the one with the same variant, if there is one.
    """
    module, made = installation.module, installation.provenance
    those = (one for one in releases(found, module.name) if one.offer.accelerator == made.accelerator)
    fit = available(tuple(those), site.site)
    if not fit or version_key(fit[0].offer.version) <= version_key(made.version):
        return
    same = (one for one in fit if (one.offer.version, one.offer.variant) == (fit[0].offer.version, made.variant))
    latest = next(same, fit[0])
    if latest.offer.module not in there:
        note = f"{latest.path.name} has version {latest.offer.version}"
        yield Newer(module, "easyconfig", made.version, str(latest.path), note, latest.offer.variant)
