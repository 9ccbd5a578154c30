"""`sifmod install`."""

import os
import time
from typing import TYPE_CHECKING

import click

from sifmod.actions.batch import worst
from sifmod.cli.batch import Told, result_of, summary, told_batch
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.output import echo, print_json, quiet, say
from sifmod.cli.shared_options import ConversionOptions
from sifmod.config.shown import shown
from sifmod.system import one_line

if TYPE_CHECKING:
    from sifmod.actions.install.decision import Decision
    from sifmod.actions.install.install_easyconfigs import Installer, InstallOutcome, Target
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.layer.outgoing import OutgoingLayer
    from sifmod.tree.receipt import Installation

_STATES = {
    "unchanged": "already installed",
    "restored": "restored, generation {}",
    "installed": "installed, generation {}",
}


class InstallCommand(ConversionOptions):
    easyconfigs: tuple[str, ...] = argument("FILE|NAME...", default=(), many=True)
    dry_run_short: bool = False
    dry_run: bool = False
    extended_dry_run: bool = False
    robot: bool = False
    rebuild: bool = False
    force: bool = False
    module_only: bool = False
    installed: bool = False
    fetch: bool = False
    variants: tuple[str, ...] = ()
    source: str | None = None
    link: str | None = None
    skip_sanity_check: bool = False
    locked: bool = False
    fail_fast: bool = False
    keep_blobs: bool = False

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be changed."""
        return self.dry_run_short or self.dry_run or self.extended_dry_run


@command("install", InstallCommand)
def install_command(given: InstallCommand) -> int:
    """Install the modules of one or more easyconfigs.

    FILE is a path; a NAME such as PyTorch-2.2.0 is searched on the easyconfig path. Unchanged modules are not installed
    again. The commands to type next go to standard output, everything else to standard error. If one of several
    easyconfigs fails, the others are still installed; a summary lists the results. `--module-only` without a FILE
    applies a changed site, preset or quirk to everything that is installed.
    """
    if given.installed and (given.easyconfigs or not given.module_only):
        raise click.UsageError("--installed needs --module-only and takes no easyconfigs")
    if given.module_only and not given.easyconfigs:
        from sifmod.cli.reapply import reapply

        return reapply(given)
    if not given.easyconfigs:
        raise click.UsageError("missing argument: FILE or NAME of an easyconfig")
    from sifmod.actions.install.install_easyconfigs import Installer

    installer = Installer(given.settings, _options(given), locked=given.locked)
    do = _dry_run if given.only_shows else _fetch if given.fetch else _install
    targets = [one for name in given.easyconfigs for one in installer.targets(name, given.variants)]
    ended = told_batch(targets, lambda target: do(installer, target, given), fail_fast=given.fail_fast)
    code = worst([one for _, one in ended])
    if len(ended) > 1 and (code or not (given.only_shows or given.quiet)):
        for line in summary(ended):
            say(line)
    if given.as_json:
        from sifmod.actions.install.row import Row

        print_json([Row(shown(one.easyconfig), one.variant, result_of(end)) for one, end in ended])
    return code


def _options(given: InstallCommand) -> "InstallOptions":
    from sifmod.actions.install.options import InstallOptions
    from sifmod.tree.provenance import CommandLine

    # --compression, --processors and the options of a site travel in the site
    return InstallOptions(
        source=given.source,
        rebuild=given.rebuild or given.force or given.module_only,
        force=given.force,
        checked_since=time.time() if given.rebuild or given.force else 0.0,
        module_only=given.module_only,
        offline=given.offline,
        keep_blobs=given.keep_blobs,
        into_home=given.yes,
        asked=CommandLine(checked=not given.skip_sanity_check),
    )


def _fetch(installer: "Installer", target: "Target", given: InstallCommand) -> Told:
    """Fetch the image of an easyconfig into the store, and print its path."""
    from sifmod.actions.install.row import FetchedFor
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given.quiet else say
    with progress(not given.quiet) as update:
        module, artifact = installer.fetch(target, reporter(speak, update))
    state = "is in the store" if update.used else "is already in the store"
    if not given.as_json:
        speak(f"{module}: the image {state}, {artifact.source}")
        if given.keep_blobs and not update.used:
            speak(NOTHING_KEPT)
        echo(artifact.path)
    return Told(f"{module}: the image {state}", FetchedFor(module, artifact.path, artifact.sha256))


def _install(installer: "Installer", target: "Target", given: InstallCommand) -> Told:
    """Install an easyconfig, or find it installed and unchanged, and print the commands that load its module."""
    found = installer.unchanged(target)
    installation, state, layers = (found, "unchanged", ()) if found else _installed(installer, target, given)
    words = _STATES[state].format(installation.generation)
    told = f"{installation.module} {words}"
    if given.as_json:
        from sifmod.actions.install.row import InstallDone
        from sifmod.actions.installed import installed_from

        fields = vars(installed_from(installation))
        return Told(told, InstallDone(**fields, changed=state != "unchanged", outgoing_layers=layers))
    _report(installation, words, layers, quiet=given.quiet)
    return Told(told)


def _installed(installer: "Installer", target: "Target", given: InstallCommand) -> "InstallOutcome":
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given.quiet else say

    def begin(decision: "Decision") -> None:
        for note in decision.notes:
            speak(note)
        speak(f"{decision.plan.module}: installing from {decision.loaded.path}")

    with progress(not given.quiet) as update:
        outcome = installer.install(target, reporter(speak, update), begin)
    if given.keep_blobs and not update.used:
        speak(NOTHING_KEPT)
    return outcome


def _report(installation: "Installation", state: str, layers: "tuple[OutgoingLayer, ...]", quiet: bool) -> None:
    from sifmod.actions.install.how_to_load import commands_to_load, hidden_by, unseen_by
    from sifmod.cli.life import say_life

    if not quiet:
        say(f"{installation.module}: {state}{', nothing to do' if state == _STATES['unchanged'] else ''}")
        if reason := hidden_by(installation, os.environ):
            say(reason)
        if unseen := unseen_by(installation, os.environ):
            say(unseen)
        say_life(installation)
        for layer in layers:
            say(f"the layer {layer.layer} is for the earlier image: `{layer.command}` rebuilds it for this one")
    for line in commands_to_load(installation, os.environ):
        echo(line)


def _dry_run(installer: "Installer", target: "Target", given: InstallCommand) -> Told:
    """Show what an install would do."""
    found = installer.preview(target, quick=given.dry_run_short and not given.extended_dry_run)
    told = Told(f"{found.module} [{found.mark}]")
    if given.as_json:
        from sifmod.actions.install.row import DryRun

        return told._replace(result=DryRun(found.easyconfig, found.module, found.mark, found.outgoing))
    echo(one_line(f" * [{found.mark}] {found.easyconfig} (module: {found.module})"))
    if found.decision is None:
        return told
    from sifmod.actions.install.current import overview, texts

    for line in () if given.dry_run_short else overview(found.decision):
        echo(one_line(f"       {line}"))
    for path, text in texts(found.decision) if given.extended_dry_run else ():
        echo(f"\n--- {path}\n{text}")
    return told
