"""`sifmod install`."""

import os
import time
from typing import TYPE_CHECKING, Any

import click

from sifmod.actions.batch import worst
from sifmod.cli.batch import Told, data_of, summary, told_batch
from sifmod.cli.context import reporter, site_given
from sifmod.cli.output import echo, outgoing_data, print_json, quiet, receipt_data, say
from sifmod.cli.shared_options import (
    Given,
    conversion_options,
    json_option,
    keep_blobs_option,
    site_options,
    yes_option,
)
from sifmod.config.shown import shown
from sifmod.system import one_line

if TYPE_CHECKING:
    from sifmod.actions.install.install_easyconfigs import Installer, InstallOutcome, Target
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.install.request import InstallRequest
    from sifmod.actions.layer.outgoing import OutgoingLayer
    from sifmod.tree.receipt import Installation

_STATES = {
    "unchanged": "already installed",
    "restored": "restored, generation {}",
    "installed": "installed, generation {}",
}


@click.command("install")
@click.argument("easyconfigs", nargs=-1, metavar="FILE|NAME...")
@click.option("-D", "--dry-run-short", is_flag=True, help="Show what would be done, a line each: [ ] [x] [R] [F].")
@click.option("--dry-run", is_flag=True, help="Show what would be done, with every path.")
@click.option("-x", "--extended-dry-run", is_flag=True, help="Show every file that would be written, with its text.")
@click.option("-r", "--robot", is_flag=True, help="Accepted for EasyBuild's sake; it changes nothing.")
@click.option("--rebuild", is_flag=True, help="Install again, and check again, even where nothing has changed.")
@click.option("-f", "--force", is_flag=True, help="As --rebuild, and fetch the image again.")
@click.option("--module-only", is_flag=True, help="Render modulefile and scripts again, keep the installed image.")
@click.option("--installed", is_flag=True, help="With --module-only: all that is installed. No FILE means the same.")
@click.option("--fetch", is_flag=True, help="Only fetch the images into the store; install nothing.")
@click.option(
    "--variant",
    "variants",
    metavar="NAME|all",
    multiple=True,
    help="Which variant (default: the one for this site's accelerator); may be repeated; all: of this architecture.",
)
@click.option("--source", metavar="REFERENCE", help="Take the image from here instead.")
@click.option("--link", type=click.Choice(["copy", "hardlink", "reference"]), help="How a local SIF is taken in.")
@click.option("--offline", is_flag=True, help="Use only what is on this machine.")
@click.option("--skip-sanity-check", is_flag=True, help="Do not look for commands in the image.")
@click.option("--locked", is_flag=True, help="Exactly what the lock of the easyconfig says, or nothing.")
@click.option("--fail-fast", is_flag=True, help="Of several easyconfigs: leave the others after a failure.")
@yes_option
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the commands to type next.")
@conversion_options
@keep_blobs_option
@site_options
@json_option
def command(easyconfigs: tuple[str, ...], variants: tuple[str, ...], **given: Any) -> int:
    """Install the modules of one or more easyconfigs.

    FILE is a path; a NAME such as PyTorch-2.2.0 is looked up on the easyconfig path. What is installed already and
    unchanged is left as it is. The commands to type next go to standard output, everything else to standard error.
    Of several easyconfigs all are tried; a line for each says at the end what became of it.
    `--module-only` without a FILE applies a changed site, preset or quirk to everything that is installed.
    """
    if given["installed"] and (easyconfigs or not given["module_only"]):
        raise click.UsageError("--installed goes with --module-only, and without easyconfigs")
    if given["module_only"] and not easyconfigs:
        from sifmod.cli.reapply import reapply

        return reapply({**given, "variant": " ".join(variants)})
    if not easyconfigs:
        raise click.UsageError("missing argument: FILE or NAME of an easyconfig")
    from sifmod.actions.install.install_easyconfigs import Installer

    installer = Installer(site_given(given), _options(given), locked=given["locked"])
    dry = any(given[name] for name in ("dry_run_short", "dry_run", "extended_dry_run"))
    do = _dry_run if dry else _fetch if given["fetch"] else _install
    targets = [one for name in easyconfigs for one in installer.targets(name, variants)]
    ended = told_batch(targets, lambda target: do(installer, target, given), fail_fast=given["fail_fast"])
    code = worst([one for _, one in ended])
    if len(ended) > 1 and (code or not (dry or given["quiet"])):
        for line in summary(ended):
            say(line)
    if given["as_json"]:
        rows = [{"easyconfig": shown(one.easyconfig), "variant": one.variant, **data_of(end)} for one, end in ended]
        print_json(rows)
    return code


def _options(given: Given) -> "InstallOptions":
    from sifmod.actions.install.options import InstallOptions
    from sifmod.tree.provenance import CommandLine

    # --compression, --processors and the options of a site travel in the site
    return InstallOptions(
        source=given["source"],
        rebuild=given["rebuild"] or given["force"] or given["module_only"],
        force=given["force"],
        checked_since=time.time() if given["rebuild"] or given["force"] else 0.0,
        module_only=given["module_only"],
        offline=given["offline"],
        keep_blobs=given["keep_blobs"],
        into_home=given["yes"],
        asked=CommandLine(checked=not given["skip_sanity_check"]),
    )


def _fetch(installer: "Installer", target: "Target", given: Given) -> Told:
    """Fetch the image of an easyconfig into the store, and print its path."""
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given["quiet"] else say
    with progress(not given["quiet"]) as update:
        module, artifact = installer.fetch(target, reporter(speak, update))
    state = "is in the store" if update.used else "is in the store already"
    if not given["as_json"]:
        speak(f"{module}: the image {state}, {artifact.source}")
        if given["keep_blobs"] and not update.used:
            speak(NOTHING_KEPT)
        echo(artifact.path)
    row = {"module": str(module), "path": str(artifact.path), "sha256": artifact.sha256}
    return Told(f"{module}: the image {state}", row)


def _install(installer: "Installer", target: "Target", given: Given) -> Told:
    """Install an easyconfig, or find it installed and unchanged, and print the commands that load its module."""
    found = installer.unchanged(target)
    installation, state, layers = (found, "unchanged", ()) if found else _installed(installer, target, given)
    words = _STATES[state].format(installation.generation)
    told = f"{installation.module} {words}"
    if given["as_json"]:
        rows = [outgoing_data(one) for one in layers]
        return Told(told, {**receipt_data(installation), "changed": state != "unchanged", "outgoing_layers": rows})
    _report(installation, words, layers, quiet=given["quiet"])
    return Told(told, {})


def _installed(installer: "Installer", target: "Target", given: Given) -> "InstallOutcome":
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given["quiet"] else say

    def begin(request: "InstallRequest") -> None:
        for note in request.notes:
            speak(note)
        speak(f"{request.plan.module}: installing from {request.loaded.path}")

    with progress(not given["quiet"]) as update:
        outcome = installer.install(target, reporter(speak, update), begin)
    if given["keep_blobs"] and not update.used:
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
            say(f"the layer {layer.layer} is for the earlier image: `{layer.command}` makes it for this one")
    for line in commands_to_load(installation, os.environ):
        echo(line)


def _dry_run(installer: "Installer", target: "Target", given: Given) -> Told:
    """Show what an install would do."""
    found = installer.preview(target, quick=given["dry_run_short"] and not given["extended_dry_run"])
    row: dict[str, object] = {
        "easyconfig": found.easyconfig,
        "module": str(found.module),
        "mark": found.mark,
        "outgoing_layers": [outgoing_data(one) for one in found.outgoing],
    }
    told = Told(f"{found.module} [{found.mark}]", row)
    if given["as_json"]:
        return told
    echo(one_line(f" * [{found.mark}] {found.easyconfig} (module: {found.module})"))
    if found.request is None:
        return told
    from sifmod.actions.install.current import overview, texts

    for line in () if given["dry_run_short"] else overview(found.request):
        echo(one_line(f"       {line}"))
    for path, text in texts(found.request) if given["extended_dry_run"] else ():
        echo(f"\n--- {path}\n{text}")
    return told
