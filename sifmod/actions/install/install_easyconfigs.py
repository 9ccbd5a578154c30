"""install: each given easyconfig is found unchanged, or decided and installed; or a preview of that.

An up-to-date installation is recognised by comparing its receipt with the disk, without parsing YAML or planning.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sifmod import __version__
from sifmod.actions.start import layout_for, site_in_force
from sifmod.config.find import is_path, ours, own_path
from sifmod.config.input import HostFacts
from sifmod.config.name import ModuleName
from sifmod.config.option import deciding
from sifmod.config.redact import shown, without_query
from sifmod.errors import HeldError, ModuleError, SifmodError
from sifmod.system import scratch_directory
from sifmod.tree.durable import read
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.provenance import CommandLine, has_state
from sifmod.tree.receipt import Installation, live, live_modules
from sifmod.tree.state import edited, edited_stubs, missing

if TYPE_CHECKING:
    from sifmod.actions.install.decision import Decision
    from sifmod.actions.layer.places import OutgoingLayer
    from sifmod.actions.reporter import Reporter
    from sifmod.image.artifact import Artifact
    from sifmod.image.settings import SharedBlobs

# finds the path without parsing thousands of receipts
_EASYCONFIG = re.compile(rb'"easyconfig":("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class InstallOptions:
    """The options of an install; `decide` adds the name that the easyconfig was requested by."""

    variant: str | None = None
    source: str | None = None
    rebuild: bool = False  # a new generation even if nothing changed
    if_different: int | None = None  # with rebuild: keep a later generation than this one if it has the same files
    force: bool = False  # like rebuild, which is set too, and fetch the image again
    moved_to: str = ""  # with force: the digest of the index or manifest that the tag names now, if known
    module_only: bool = False  # render again with the installed image
    offline: bool = False
    keep_blobs: bool = False
    into_home: bool = False  # a large image may go to the home directory without a question
    despite_hold: bool = False  # install held content too, which ends the hold
    stores: tuple[Path, ...] = ()  # prefixes whose stores are searched too
    shared: "SharedBlobs | None" = None  # layers that other modules of this run need too
    checked_since: float = 0.0  # a time: results of earlier sanity checks do not count
    beside: tuple[str, ...] = ()  # commands and paths that other modules of this run check in the same image
    asked: CommandLine = field(default_factory=CommandLine)  # the command line, for the receipt


class Target(NamedTuple):
    """An easyconfig as it was typed, and which variant of it."""

    easyconfig: str
    variant: str | None = None

    def __str__(self) -> str:
        """The easyconfig as typed, without secrets in a URL, and its variant."""
        return f"{shown(self.easyconfig)} --variant {self.variant}" if self.variant else shown(self.easyconfig)


class InstallOutcome(NamedTuple):
    """The installation that is live after an install, and what the install did."""

    installation: Installation
    state: Literal["unchanged", "restored", "installed"]
    outgoing: "tuple[OutgoingLayer, ...]" = ()  # this user's layers, which do not fit the new image

    @property
    def changed(self) -> bool:
        return self.state != "unchanged"


class InstallPreview(NamedTuple):
    """A preview of an install."""

    easyconfig: str  # its path
    module: ModuleName
    mark: Literal[" ", "x", "R", "F", "H"]  # new, installed already, would be rebuilt, is forced, held
    outgoing: "tuple[OutgoingLayer, ...]" = ()
    decision: "Decision | None" = None  # None if the receipt alone shows that it is unchanged
    missing: bool = False  # no generation is live


@dataclass
class Installer:
    """Installs easyconfigs for one command. Facts of the host are read once, and again after an install."""

    site: Mapping[str, str] = field(default_factory=dict)  # keys of the site, as the command line sets them
    options: InstallOptions = field(default_factory=InstallOptions)  # without the variant
    locked: bool = False  # install exactly what the lock beside each easyconfig says, or fail
    _around: HostFacts | None = None

    def __post_init__(self) -> None:
        """Refuse an unusable prefix before the first install. Raises OptionError, PermissionsError."""
        self._layout = layout_for(self.site.get("prefix"))

    def targets(self, easyconfig: str, variants: tuple[str, ...] = ()) -> Iterator[Target]:
        """Each requested variant of an easyconfig; if `all` cannot be resolved, the install reports why."""
        easyconfig = ours(easyconfig)
        names: tuple[str | None, ...] = tuple(dict.fromkeys(variants)) or (None,)
        if "all" in names:
            from sifmod.actions.install.decision import variants_here

            with suppress(SifmodError):
                here = variants_here(easyconfig, site_in_force(self.site))
                names = tuple(dict.fromkeys((*here, *(one for one in names if one != "all"))))
        return (Target(easyconfig, variant) for variant in names)

    def unchanged(self, target: Target) -> Installation | None:
        """The installation if an install would change nothing; else, and if `locked`, None. Parses no YAML."""
        if self.locked:
            return None
        self._around = self._around or HostFacts(os.environ)
        found = find_unchanged(self._layout, target.easyconfig, self._options(target), self._around)
        if found and found.image and found.image.link == "reference":
            from sifmod.actions.image_marks import renew

            renew(self._layout, found)
        return found

    def install(
        self, target: Target, reporter: "Reporter", begin: "Callable[[Decision], None]" = lambda _: None
    ) -> InstallOutcome:
        """Decide and install the target; `begin` is called with the decision before anything is done.

        Asks whether to install held content. Raises the errors of `decide` and `install_with_layers`.
        """
        from sifmod.actions.install.install import install_with_layers

        self._around = None  # facts of the host may change during an install
        decision = self.decide(target)
        begin(decision)
        tree = reporter.tree(decision.site.site)
        try:
            return install_with_layers(decision, tree, reporter)
        except HeldError as held:
            if not reporter.confirm(held.message, "Install it all the same, and end the hold?"):
                raise
            decision = replace(decision, options=replace(decision.options, despite_hold=True))
            return install_with_layers(decision, tree, reporter)

    def check_again(self, target: Target, reporter: "Reporter") -> Installation:
        """Check the installed module of an easyconfig as an install does, and change nothing.

        Raises the errors of `decide`, ModuleError if the module is not installed, SanityCheckError.
        """
        from sifmod.actions.install.reapply import planned
        from sifmod.actions.install.sanity_check import sanity_check

        module, prefix = (decided := self.decide(target).plan).module, Path(decided.prefix)
        installation = live(Layout(prefix), module)
        if installation is None:
            raise ModuleError(f"{module} is not installed in {prefix}", "leave --sanity-check-only out to install it")
        if installation.image:
            with scratch_directory() as workspace:
                sanity_check(installation, planned(installation)[0], workspace, reporter.say)
        return installation

    def fetch(self, target: Target, reporter: "Reporter") -> "tuple[ModuleName, Artifact]":
        """Fetch the image of the target's module into the store, and install nothing."""
        decision = self.decide(target)
        from sifmod.actions.install.choose_image import fetch_only

        return decision.plan.module, fetch_only(decision, reporter.tree(decision.site.site), reporter)

    def preview(self, target: Target, *, quick: bool = False) -> InstallPreview:
        """A preview of an install; changes nothing. With `quick` nothing is decided if the receipt shows no change."""
        if quick:
            self._around = self._around or HostFacts(os.environ)
            options = self._options(target)
            if found := find_unchanged(self._layout, target.easyconfig, options, self._around):
                there = Path(target.easyconfig).exists()
                path = target.easyconfig if there else found.provenance.easyconfig
                return InstallPreview(path, found.module, "x")
        from sifmod.actions.install.current import compare, outgoing_layers
        from sifmod.actions.install.hold import check_hold
        from sifmod.tree.history import read_past

        decision = self.decide(target)
        layout, module = Layout(Path(decision.plan.prefix)), decision.plan.module
        compared = compare(layout, decision)
        before, forced = compared.before, decision.options.force
        mark: Literal[" ", "x", "R", "F", "H"] = "F" if forced else "x" if compared.complete else "R" if before else " "
        try:
            if mark != "x":
                check_hold(read_past(layout, module), decision)
        except HeldError:
            mark = "H"
        layers = outgoing_layers(before, decision) if mark not in ("x", "H") else ()
        return InstallPreview(str(decision.loaded.path), module, mark, layers, decision, before is None)

    def decide(self, target: Target) -> "Decision":
        """The decision for the target. Raises the errors of `decide`; if `locked`, of `read_lock` and `pin_to_lock`."""
        from sifmod.config.word import resolve_easyconfig

        site = site_in_force(self.site)
        resolve_easyconfig(target.easyconfig, site.site)  # report a wrong name before importing what an install needs
        from sifmod.actions.install.decision import decide, pin_to_lock, variants_here
        from sifmod.actions.lock import lock_path, read_lock

        if target.variant == "all":  # `targets` could not resolve it: raise the error
            variants_here(target.easyconfig, site)
        decision = decide(target.easyconfig, site, self._options(target))
        return pin_to_lock(decision, read_lock(lock_path(target.easyconfig))) if self.locked else decision

    def _options(self, target: Target) -> InstallOptions:
        given = {**self.site, "source": self.options.source, "variant": target.variant}
        asked = self.options.asked._replace(options=deciding(given))
        return replace(self.options, variant=target.variant, asked=asked)


def find_unchanged(
    layout: Layout, easyconfig: str, options: InstallOptions, surroundings: HostFacts
) -> Installation | None:
    """The live installation of this easyconfig if it is complete and none of its inputs has changed.

    None with `options.rebuild`, which --force and --module-only set too, and for a source with a query: no receipt says
    which query it was.
    """
    if options.rebuild or without_query(options.source or "") != (options.source or ""):
        return None
    for installation in installed_by(layout, easyconfig):
        made = installation.provenance
        if made.asked.options != options.asked.options or made.image.kept:
            continue
        if (
            made.sifmod == __version__
            and made.facts == surroundings.facts
            and surroundings.unchanged(made.inputs)
            and all(map(has_state, made.image.states))
            and not missing(layout, installation)
            and not edited(installation)
            and not edited_stubs(layout, installation)
        ):
            return installation
    return None


def installed_by(layout: Layout, easyconfig: str) -> Iterator[Installation]:
    """The live installations made from this easyconfig, even if it has changed since.

    For a bare name, those that were found by that name: their inputs include the places searched first.
    """
    for one in _candidates(layout, easyconfig):
        made = one.provenance
        if made.easyconfig == own_path(easyconfig) if is_path(easyconfig) else made.asked.name == easyconfig:
            yield one


def _candidates(layout: Layout, easyconfig: str) -> Iterator[Installation]:
    """The live installations that this easyconfig may have made, those with similar names first."""
    file_name, seen = Path(easyconfig).name.removesuffix(".yaml"), set()
    try:
        for name in os.listdir(layout.software):  # noqa: PTH208 (plain names)
            if not file_name.startswith(f"{name}-"):
                continue
            versions = os.listdir(f"{layout.software}/{name}")  # noqa: PTH208 (plain names)
            for version in sorted(versions, key=lambda version: version != file_name[len(name) + 1 :]):
                module = ModuleName(name, version)
                if not version.startswith(".") and (found := live(layout, module)):
                    seen.add(module)
                    yield found
    except OSError:
        return
    file_name = Path(easyconfig).name
    for module in {name: None for end in ("", ".yaml") for name in _by_file_name(layout).get(f"{file_name}{end}", ())}:
        if module not in seen and (found := live(layout, module)):
            yield found


@cache
def _by_file_name(layout: Layout) -> Mapping[str, list[ModuleName]]:
    """The modules by their easyconfigs' file names, cached for this process; no receipt is parsed."""
    found: dict[str, list[ModuleName]] = {}
    for module, number in live_modules(layout):
        with suppress(OSError, ValueError):
            if path := _EASYCONFIG.search(read(f"{layout.generation(module, number)}/{RECEIPT}")):
                found.setdefault(json.loads(path[1]).rpartition("/")[2], []).append(module)
    return found
