"""install NAME and upgrade: the newest release of a name that fits this machine, and what is newer than a module."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.install.install_easyconfigs import Installer, InstallOptions, Target
from sifmod.actions.outdated import Newer
from sifmod.actions.releases import Release, available, releases
from sifmod.actions.search import find_all
from sifmod.config.find import find_easyconfig, name_of
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.option import KEYS
from sifmod.errors import EasyconfigNotFoundError, OptionError, VariantError
from sifmod.tree.receipt import Installation

_SHOWN = 5  # versions that are named


class Newest(NamedTuple):
    """The release to install, and the others that fit, newest first."""

    release: Release
    words: tuple[str, ...]  # what is typed after `sifmod install` for it
    command: str
    others: tuple[Release, ...]


class Undecided(NamedTuple):
    """The newest release for each accelerator, where neither the site nor this machine selects one."""

    name: str
    newest: Mapping[str, Release]  # by accelerator
    commands: Mapping[str, str]

    def error(self) -> OptionError:
        """The error, which lists what to type for each accelerator."""
        lines = [f"  {one}  {self.newest[one].offer.module}: {self.commands[one]}" for one in self.commands]
        return OptionError(
            f"{self.name} has variants for several accelerators, and neither the site nor this machine selects one\n"
            + "\n".join(lines),
            "type one of these, or set the accelerator once for all: `accelerator` in ~/.config/sifmod/config.yaml, or "
            "SIFMOD_ACCELERATOR=cuda, rocm or none",
        )


def newest(
    name: str, site: LoadedSite, variants: tuple[str, ...] = (), accelerator: str | None = None
) -> Newest | Undecided | None:
    """The newest release of `name` for this machine, or for `accelerator`, whose image is available here.

    None if an easyconfig file has exactly this name, or if no release has it. With `variants` the release is one of
    these variants, whatever its accelerator. Raises VariantError if no release fits.
    """
    paths = site.site.robot_paths
    try:
        find_easyconfig(name, paths)
        return None
    except EasyconfigNotFoundError:
        every = releases(find_all(paths, lambda: site, os.environ), name)
    if not every:
        return None
    there = available(every, site.site)
    if wanted := set(variants) - {"all"}:
        fit = tuple(one for one in there if one.offer.variant in wanted)
        why = f"a variant {' or '.join(sorted(wanted))}"
    else:
        kinds = {one.offer.accelerator: one for one in reversed(there)}
        if accelerator is None and len(kinds) > 1 and not site.says_accelerator:
            return Undecided(name, kinds, {kind: one.command(paths) for kind, one in sorted(kinds.items())})
        known = accelerator or (
            site.site.accelerator if site.says_accelerator or len(kinds) != 1 else next(iter(kinds))
        )
        fit = tuple(one for one in there if one.offer.accelerator == known)
        why = f"accelerator {known} and architecture {site.site.arch}"
    if not fit:
        raise VariantError(
            f"no {every[0].offer.name} with {why} has an image that is available here",
            f"`sifmod search {name}` lists all variants ({len(every)})",
        )
    chosen = fit[0]
    return Newest(chosen, chosen.words(paths), chosen.command(paths), fit[1:])


def others_in_words(found: Newest) -> str:
    """The newest of the other versions that fit, and the number of the rest, in one line; "" without any."""
    versions = dict.fromkeys(one.offer.version for one in found.others)
    versions.pop(found.release.offer.version, None)
    more = f" and {len(versions) - _SHOWN} more" if len(versions) > _SHOWN else ""
    return ", ".join([*versions][:_SHOWN]) + more


class Upgrade(NamedTuple):
    """The upgrade of an installed module: what to install, and the installer with the options for it."""

    module: ModuleName
    target: Target
    installer: Installer

    def __str__(self) -> str:
        """The module that is upgraded, and the easyconfig that upgrades it."""
        return f"{self.module}: {self.target}"


def upgrades(
    installations: Sequence[Installation],
    newer: Sequence[Newer],
    site: LoadedSite,
    given: Mapping[str, str],
    options: InstallOptions,
) -> Iterator[Upgrade]:
    """An upgrade for each module with something newer: its latest easyconfig, else the image that its tag names now.

    The site's options of its earlier install apply, such as `--site`, unless `given` overrides them. An easyconfig that
    upgrades several modules is installed once. Raises PermissionsError as `check_not_planted`.
    """
    from sifmod.actions.install.reapply import check_not_planted

    made = {one.module: one for one in installations}
    found = {one.module: one for one in sorted(newer, key=lambda one: one.what == "easyconfig")}
    seen = set()
    for module, one in found.items():
        installed = made[module].provenance
        recorded = {name[2:].replace("-", "_"): value for name, value in installed.asked.options}
        of_site = {key: text for key, text in recorded.items() if key in KEYS}
        if one.what == "easyconfig":
            target, own = Target(name_of(Path(one.now), site.site.robot_paths), one.variant), options
        else:
            check_not_planted(made[module], Path(installed.easyconfig), site.site.robot_paths)
            target = Target(installed.easyconfig, installed.variant)
            own = replace(options, source=recorded.get("source"), rebuild=True, force=True, moved_to=one.now)
        if (target, own.force) not in seen:
            seen.add((target, own.force))
            yield Upgrade(module, target, Installer({**of_site, **given}, own))
