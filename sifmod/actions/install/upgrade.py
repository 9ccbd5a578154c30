"""upgrade: install what is newer than installed modules, each with the options of its install."""

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
    """What an installed module is upgraded by."""

    module: ModuleName
    target: Target
    installer: Installer

    def __str__(self) -> str:
        """The module that is upgraded, and by what."""
        return f"{self.module}: {self.target}"


def upgrades(
    installations: Sequence[Installation],
    newer: Sequence[Newer],
    site: LoadedSite,
    given: Mapping[str, str],
    options: InstallOptions,
) -> Iterator[Upgrade]:
    """One for each module that has something newer: its latest easyconfig, else the image that its tag names now.

    The options of its earlier install apply (`--site`), unless `given` overrides them. If several modules have the same
    later version, it is installed once.
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
