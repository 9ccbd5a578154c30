"""`sifmod install`."""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import click

from sifmod.actions.start import site_in_force
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import choose, counted, echo, print_json, quiet, say
from sifmod.cli.shared_options import ConversionOptions, SiteOptions
from sifmod.config.find import is_bare
from sifmod.config.redact import shown
from sifmod.errors import SifmodError
from sifmod.system import one_line

with later():
    from sifmod.actions import batch as batches
    from sifmod.actions import list as listing
    from sifmod.actions.install import current, decision, how_to_load, install_easyconfigs, newest, row
    from sifmod.actions.layer import places
    from sifmod.cli import batch, life, progress, reapply
    from sifmod.cli import search as searching
    from sifmod.tree import provenance, receipt

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
    search: bool = False
    missing_modules: bool = False
    sanity_check_only: bool = False
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
        """Whether the options only show something: a dry run, or the missing modules."""
        return self.dry_run_short or self.dry_run or self.extended_dry_run or self.missing_modules


@command("install", InstallCommand, lambda: list[row.Row] | list[row.ReappliedRow])
def install_command(given: InstallCommand) -> int:
    """Install the modules of one or more easyconfigs.

    FILE is a path; a NAME such as PyTorch-2.2.0 is looked up in the directories of --robot-paths, and one without a
    version (pytorch) means the newest that fits this machine and whose image is available. Unchanged modules are not
    installed again. The commands that load the module go to standard output, messages to standard error. If one of
    several easyconfigs fails, the others are still installed; a summary lists the results. `--module-only` without a
    FILE applies a changed site, preset or quirk to all installed modules.
    """
    if given.installed and (given.easyconfigs or not given.module_only):
        raise click.UsageError("--installed needs --module-only and takes no easyconfigs")
    if given.search:
        return _search(given)
    if given.module_only and not given.easyconfigs:
        return reapply.rerender_command(given)
    if not given.easyconfigs:
        raise click.UsageError("missing argument: FILE or NAME of an easyconfig")
    installer = install_easyconfigs.Installer(given.settings, _options(given), locked=given.locked)
    do = dry_run if given.only_shows else _fetch if given.fetch else _check if given.sanity_check_only else install
    asked = [one for name in given.easyconfigs for one in _asked(installer, name, given)]

    def each(one: "_Asked") -> "batch.Reported":
        if one.problem:
            raise one.problem
        return do(installer, one.target, given)

    ended = batch.reported_batch(asked, each, fail_fast=given.fail_fast)
    code = batches.worst([one for _, one in ended])
    if given.missing_modules:
        gone = sum(isinstance(one, batches.Succeeded) and one.result.missing for _, one in ended)
        say(f"missing: {gone} of {counted(len(ended), 'module')}")
    elif len(ended) > 1 and (code or not (given.only_shows or given.quiet)):
        for line in batch.summary(ended):
            say(line)
    if given.as_json:
        print_json([row_of(one.target, end) for one, end in ended])
    return code


def row_of(target: "install_easyconfigs.Target", ended: "batches.Ended[batch.Reported]") -> "row.Row":
    """An easyconfig with its outcome, for JSON."""
    return row.Row(shown(target.easyconfig), target.variant, batch.result_of(ended))


class _Asked(NamedTuple):
    """An easyconfig to install, or why the typed name is not one."""

    target: "install_easyconfigs.Target"
    problem: SifmodError | None = None

    def __str__(self) -> str:
        return str(self.target)


def _asked(installer: "install_easyconfigs.Installer", name: str, given: InstallCommand) -> "Iterator[_Asked]":
    """The easyconfigs that a typed word means (for a program's name alone, its newest release), or one problem."""
    try:
        words = _newest(name, given) if is_bare(name) else None
    except SifmodError as problem:
        yield _Asked(install_easyconfigs.Target(name), problem)
        return
    easyconfig, *variant = words or (name,)
    yield from map(_Asked, installer.targets(easyconfig, given.variants or tuple(variant[1:])))


def _newest(name: str, given: InstallCommand) -> tuple[str, ...] | None:
    """The easyconfig (and variant) of the newest release of a program; None if `name` is an easyconfig's or unknown."""
    site = site_in_force(given.settings)
    found = newest.newest(name, site, given.variants)
    if isinstance(found, newest.Undecided):
        if given.as_json or not (
            chosen := choose(f"{name} is for", "Which accelerator will it use", tuple(found.newest))
        ):
            raise found.error()
        found = newest.newest(name, site, given.variants, chosen)
    if found is None or isinstance(found, newest.Undecided):
        return None
    if not given.quiet:
        say(f"{name}: the newest for this machine is {found.release.offer.module}: {found.command}")
        if others := newest.others_in_words(found):
            say(f"{name}: there are also {others}; `sifmod search {name}` lists all")
    return found.words


def _search(given: InstallCommand) -> int:
    """Search, as EasyBuild's `-S` does."""
    shared = {name: value for name, value in vars(given).items() if name in vars(SiteOptions())}
    searching.list_found(searching.SearchOptions(words=given.easyconfigs, **shared))
    return 0


def _check(
    installer: "install_easyconfigs.Installer", target: "install_easyconfigs.Target", given: InstallCommand
) -> "batch.Reported":
    """Run the sanity check of an installed module again."""
    installation = installer.check_again(target, reporter(quiet if given.quiet else say))
    reported = f"{installation.module}: the sanity check found nothing wrong in generation {installation.generation}"
    if given.as_json:
        return batch.Reported(reported, _done(installation, changed=False))
    if not given.quiet:
        say(reported)
    return batch.Reported(reported)


def _options(given: InstallCommand) -> "install_easyconfigs.InstallOptions":
    # --compression, --processors and the options of a site travel in the site
    return install_easyconfigs.InstallOptions(
        source=given.source,
        rebuild=given.rebuild or given.force or given.module_only,
        force=given.force,
        checked_since=time.time() if given.rebuild or given.force else 0.0,
        module_only=given.module_only,
        offline=given.offline,
        keep_blobs=given.keep_blobs,
        into_home=given.yes,
        asked=provenance.CommandLine(checked=not given.skip_sanity_check),
    )


def _fetch(
    installer: "install_easyconfigs.Installer", target: "install_easyconfigs.Target", given: InstallCommand
) -> "batch.Reported":
    """Fetch the image of an easyconfig into the store, and print its path."""
    speak = quiet if given.quiet else say
    with progress.progress(not given.quiet) as update:
        module, artifact = installer.fetch(target, reporter(speak, update))
    state = "was fetched" if update.used else "was there already"
    if not given.as_json:
        speak(f"{module}: the image {state}; its source is {artifact.source}")
        if given.keep_blobs and not update.used:
            speak(progress.NOTHING_KEPT)
        echo(artifact.path)
    return batch.Reported(f"{module}: the image {state}", row.FetchedFor(module, artifact.path, artifact.sha256))


def install(
    installer: "install_easyconfigs.Installer", target: "install_easyconfigs.Target", given: InstallCommand
) -> "batch.Reported":
    """Install an easyconfig, or find it installed and unchanged, and print the commands that load its module."""
    found = installer.unchanged(target)
    installation, state, layers = (found, "unchanged", ()) if found else _installed(installer, target, given)
    words = _STATES[state].format(installation.generation)
    reported = f"{installation.module} {words}"
    if given.as_json:
        return batch.Reported(reported, _done(installation, state != "unchanged", layers))
    _report(installation, words, layers, quiet=given.quiet)
    return batch.Reported(reported)


def _done(
    installation: "receipt.Installation", changed: bool, layers: "tuple[places.OutgoingLayer, ...]" = ()
) -> "row.InstallDone":
    return row.InstallDone(**vars(listing.installed_data(installation)), changed=changed, outgoing_layers=layers)


def _installed(
    installer: "install_easyconfigs.Installer", target: "install_easyconfigs.Target", given: InstallCommand
) -> "install_easyconfigs.InstallOutcome":
    speak = quiet if given.quiet else say

    def begin(decision: "decision.Decision") -> None:
        for note in decision.notes:
            speak(note)
        variant = f", variant {decision.loaded.variant}" if decision.loaded.variant else ""
        speak(f"{decision.plan.module}: installing from {decision.loaded.path}{variant}")
        if given.prefix is None:
            for place in places.also_in(decision.plan.module, decision.site.site):
                speak(f"{decision.plan.module}: {place} has this module too; `sifmod init` puts your tree first")

    with progress.progress(not given.quiet) as update:
        outcome = installer.install(target, reporter(speak, update), begin)
    if given.keep_blobs and not update.used:
        speak(progress.NOTHING_KEPT)
    return outcome


def _report(
    installation: "receipt.Installation", state: str, layers: "tuple[places.OutgoingLayer, ...]", quiet: bool
) -> None:
    if not quiet:
        say(f"{installation.module}: {state}{', nothing to do' if state == _STATES['unchanged'] else ''}")
        if reason := how_to_load.stale_spider_cache(installation, os.environ):
            say(reason)
        if unseen := how_to_load.unseen_warning(installation, os.environ):
            say(unseen)
        life.say_life(installation)
        for layer in layers:
            say(f"the layer {layer.layer} is for the earlier image: `{layer.command}` rebuilds it for the new one")
    for line in how_to_load.commands_to_load(installation, os.environ):
        echo(line)


def dry_run(
    installer: "install_easyconfigs.Installer", target: "install_easyconfigs.Target", given: InstallCommand
) -> "batch.Reported":
    """Show what an install would do."""
    quick = (given.dry_run_short or given.missing_modules) and not given.extended_dry_run
    found = installer.preview(target, quick=quick)
    reported = batch.Reported(f"{found.module} [{found.mark}]", missing=found.missing)
    if given.missing_modules and not found.missing and not given.as_json:
        return reported
    if given.as_json:
        return reported._replace(result=row.DryRun(found.easyconfig, found.module, found.mark, found.outgoing))
    echo(one_line(f" * [{found.mark}] {found.easyconfig} (module: {found.module})"))
    if found.decision is None:
        return reported
    for line in () if given.dry_run_short or quick else current.overview(found.decision):
        echo(one_line(f"       {line}"))
    for path, text in current.texts(found.decision) if given.extended_dry_run else ():
        echo(f"\n--- {path}\n{text}")
    return reported
