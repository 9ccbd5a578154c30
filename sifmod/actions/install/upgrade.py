"""upgrade: install what is newer than installed modules, each with the site options of its install."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.install.install_easyconfigs import Installer, Target
from sifmod.actions.install.options import InstallOptions
from sifmod.actions.outdated import Newer
from sifmod.config.find import name_of
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.option import KEYS
from sifmod.tree.receipt import Installation


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
    upgrades several modules is installed once.
    """
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
            target = Target(installed.easyconfig, installed.variant)
            own = replace(options, source=recorded.get("source"), rebuild=True, force=True)
        if (target, own.force) not in seen:
            seen.add((target, own.force))
            yield Upgrade(module, target, Installer({**of_site, **given}, own))
