"""stack outdated: newer versions of the installed modules."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.search import Found, find_all
from sifmod.actions.stack.stack_options import StackOptions, read_stack
from sifmod.actions.stack.stack_plan import StackPlan, plan_stack
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.version import version_key
from sifmod.errors import SifmodError
from sifmod.image.sources.source_kinds import parse
from sifmod.result import Described, Internal, Notes
from sifmod.tree.receipt import Installation, live

_AT_ONCE = 8  # concurrent requests


class Newer(NamedTuple):
    """Something newer than an installed module."""

    module: ModuleName
    what: Literal["image", "easyconfig"]
    was: Annotated[str, Described("a digest, or a version")]
    now: Annotated[str, Described("a digest, or the path of an easyconfig")]
    note: Annotated[str, Described("for people")]


class Outdated(NamedTuple):
    """The newer versions, and the servers that could not be reached."""

    plan: Internal[StackPlan]
    newer: tuple[Newer, ...]
    notes: Notes


def outdated(file: Path, options: StackOptions) -> Outdated:
    """Tags of installed images that moved, and easyconfigs with later versions."""
    planned = read_stack(file, options)
    plan, site = plan_stack(planned), planned.site
    found_live = (live(plan.layout, step.module) for step in plan.steps if step.module and step.generation)
    there = tuple(installation for installation in found_live if installation)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        moved = tuple(threads.map(lambda one: _moved(one, site), there))
    found = find_all(site.site.robot_paths, lambda: site, os.environ)
    newer = [one for one in moved if isinstance(one, Newer)]
    newer += [one for installation in there for one in _later(installation, found)]
    return Outdated(plan, tuple(sorted(newer)), tuple(dict.fromkeys(one for one in moved if isinstance(one, str))))


def _moved(installation: Installation, site: LoadedSite) -> Newer | str | None:
    """The current image of its source, if it changed; a message if the server cannot be reached."""
    image = installation.image
    if image is None or image.source.startswith("build:"):  # images built here have no server
        return None
    was = image.origin.index or image.origin.manifest
    try:
        reference = parse(image.source)
        if reference.kind.location != "repository" or reference.digest or not was:
            return None
        now = reference.kind.describe(reference, image.arch, fetch_settings(site.site))
    except SifmodError as error:
        return f"cannot query {image.source}: {error.message}"
    if was in (now.index, now.manifest):
        return None
    digest = now.index or now.manifest
    return Newer(installation.module, "image", was, digest, f"{reference.shown} is {digest} now, and was {was}")


def _later(installation: Installation, found: Sequence[Found]) -> Iterator[Newer]:
    """The easyconfig with the latest version of the same module, if it is later."""
    module, made = installation.module, installation.provenance
    offers = [
        (version_key(one.version), one.version, each.path)
        for each in found
        for one in each.variants
        if one.name == module.name and one.accelerator == made.accelerator
    ]
    if offers and (latest := max(offers))[0] > version_key(made.version):
        note = f"{latest[2].name} has version {latest[1]}"
        yield Newer(module, "easyconfig", made.version, str(latest[2]), note)
