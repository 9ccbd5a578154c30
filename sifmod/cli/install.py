"""`sifmod install`."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.batch import Done, run_batch, summary, worst
from sifmod.cli.context import layout_for, load_context, reporter
from sifmod.cli.output import ask, echo, print_json, quiet, say
from sifmod.cli.shared_options import (
    Given,
    conversion_options,
    json_option,
    keep_blobs_option,
    site_options,
    yes_option,
)
from sifmod.config.shown import shown
from sifmod.errors import HeldError, SifmodError
from sifmod.system import one_line
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.install.request import InstallRequest
    from sifmod.actions.layer.outgoing import OutgoingLayer
    from sifmod.tree.receipt import Installation

_THERE = "already installed"


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
    dry = any(given[name] for name in ("dry_run_short", "dry_run", "extended_dry_run"))
    do = _dry_run(given) if dry else _fetch(given) if given["fetch"] else _install(given)
    targets = [one for name in easyconfigs for one in _targets(name, variants, given)]
    ended = list(run_batch(targets, do, fail_fast=given["fail_fast"]))
    code = worst([one for _, one in ended])
    if len(ended) > 1 and (code or not (dry or given["quiet"])):
        for line in summary(ended):
            say(line)
    if given["as_json"]:
        from sifmod.actions.install.row import Row

        print_json([Row(shown(one.easyconfig), one.variant, end.result) for one, end in ended])
    return code


@dataclass(frozen=True)
class Target:
    """An easyconfig as it was typed, and which variant of it."""

    easyconfig: str
    variant: str | None

    def __str__(self) -> str:
        """As it is typed."""
        return f"{shown(self.easyconfig)} --variant {self.variant}" if self.variant else shown(self.easyconfig)


def _targets(name: str, variants: tuple[str, ...], given: Given) -> Iterator[Target]:
    """Each variant of one easyconfig that is asked for; where `all` cannot be answered, installing it says why."""
    names: tuple[str | None, ...] = tuple(dict.fromkeys(variants)) or (None,)
    if "all" in names:
        from sifmod.actions.install.request import variants_here

        with suppress(SifmodError):
            here = variants_here(name, load_context(given))
            names = tuple(dict.fromkeys((*here, *(one for one in names if one != "all"))))
    for variant in names:
        yield Target(name, variant)


def _options(given: Given, variant: str | None) -> "InstallOptions":
    from sifmod.actions.install.options import InstallOptions, deciding
    from sifmod.tree.provenance import CommandLine

    # --compression, --processors and the options of a site travel in the site (see load_context)
    return InstallOptions(
        variant=variant,
        source=given["source"],
        rebuild=given["rebuild"] or given["force"] or given["module_only"],
        force=given["force"],
        checked_since=time.time() if given["rebuild"] or given["force"] else 0.0,
        module_only=given["module_only"],
        offline=given["offline"],
        keep_blobs=given["keep_blobs"],
        into_home=given["yes"],
        asked=CommandLine(options=deciding({**given, "variant": variant}), checked=not given["skip_sanity_check"]),
    )


def _request(target: Target, given: Given) -> "InstallRequest":
    from sifmod.config.word import wanted_easyconfig

    site = load_context(given)
    wanted_easyconfig(target.easyconfig, site.site)  # a slip is told before all that an install needs is imported
    from sifmod.actions.install.request import decide, held_to, variants_here
    from sifmod.actions.lock import lock_beside, read_lock

    if target.variant == "all":  # could not be answered before
        variants_here(target.easyconfig, site)
    request = decide(target.easyconfig, site, _options(given, target.variant))
    return held_to(request, read_lock(lock_beside(target.easyconfig).absolute())) if given["locked"] else request


def _fetch(given: Given) -> Callable[[Target], Done]:
    """Fetches the image of an easyconfig into the store, and prints its path."""
    from sifmod.actions.install.choose_image import fetch_only
    from sifmod.actions.install.row import FetchedFor
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given["quiet"] else say

    def fetch(target: Target) -> Done:
        request = _request(target, given)
        module = request.plan.module
        with progress(not given["quiet"]) as update:
            artifact = fetch_only(request, reporter(speak, update))
        state = "is in the store" if update.used else "is in the store already"
        if not given["as_json"]:
            speak(f"{module}: the image {state}, {artifact.source}")
            if given["keep_blobs"] and not update.used:
                speak(NOTHING_KEPT)
            echo(artifact.path)
        return Done(f"{module}: the image {state}", FetchedFor(module, artifact.path, artifact.sha256))

    return fetch


def _install(given: Given) -> Callable[[Target], Done]:
    """Installs an easyconfig, or finds it installed and unchanged, and prints the commands that load its module."""
    from sifmod.actions.install.unchanged import find_unchanged
    from sifmod.config.input import Surroundings

    layout, known = layout_for(given["prefix"]), None

    def install(target: Target) -> Done:
        nonlocal known
        known = surroundings = known or Surroundings(os.environ)
        options = _options(given, target.variant)
        found = None if given["locked"] else find_unchanged(layout, target.easyconfig, options, surroundings)
        if found is None:
            known = None  # an install takes its time
        elif found.image and found.image.link == "reference":
            from sifmod.actions.references import renew

            renew(layout, found)
        installation, state, layers = (found, _THERE, ()) if found else _installed(target, given)
        told = f"{installation.module} {state}"
        if given["as_json"]:
            from sifmod.actions.install.row import InstallDone
            from sifmod.actions.installed import installed_from

            fields = vars(installed_from(installation))
            return Done(told, InstallDone(**fields, changed=state != _THERE, outgoing_layers=layers))
        _report(installation, state, layers, quiet=given["quiet"])
        return Done(told)

    return install


def _installed(target: Target, given: Given) -> "tuple[Installation, str, tuple[OutgoingLayer, ...]]":
    """What is installed, what was done for it, and which layers fit its image no longer."""
    request = _request(target, given)
    from sifmod.actions.install.install import install_with_layers
    from sifmod.actions.layer.outgoing import outgoing
    from sifmod.cli.progress import NOTHING_KEPT, progress
    from sifmod.tree.receipt import live

    show = not given["quiet"]
    speak = say if show else quiet
    for note in request.notes:
        speak(note)
    speak(f"{request.plan.module}: installing from {request.loaded.path}")
    before = live(Layout(Path(request.plan.prefix)), request.plan.module)
    try:
        with progress(show) as update:
            installation, changed = install_with_layers(request, reporter(speak, update))
    except HeldError as held:
        if not ask(held.message, "Install it all the same, which ends the hold?"):
            raise
        request = replace(request, options=replace(request.options, despite_hold=True))
        with progress(show) as update:
            installation, changed = install_with_layers(request, reporter(speak, update))
    if given["keep_blobs"] and not update.used:
        speak(NOTHING_KEPT)
    done = "restored" if before and installation.generation == before.generation else "installed"
    layers = outgoing(before, installation.image_sha256, os.environ) if before and changed else ()
    return installation, f"{done}, generation {installation.generation}" if changed else _THERE, layers


def _report(installation: "Installation", state: str, layers: "tuple[OutgoingLayer, ...]", quiet: bool) -> None:
    from sifmod.actions.install.how_to_load import commands_to_load, hidden_by, unseen_by
    from sifmod.cli.life import say_life

    if not quiet:
        say(f"{installation.module}: {state}{', nothing to do' if state == _THERE else ''}")
        if reason := hidden_by(installation, os.environ):
            say(reason)
        if unseen := unseen_by(installation, os.environ):
            say(unseen)
        say_life(installation)
        for layer in layers:
            say(f"the layer {layer.layer} is for the earlier image: `{layer.command}` makes it for this one")
    for line in commands_to_load(installation, os.environ):
        echo(line)


def _dry_run(given: Given) -> Callable[[Target], Done]:
    """Shows what an install would do; reads, changes nothing."""
    from sifmod.actions.install.row import DryRun
    from sifmod.actions.install.unchanged import find_unchanged
    from sifmod.config.input import Surroundings

    layout, surroundings = layout_for(given["prefix"]), Surroundings(os.environ)

    def show(target: Target) -> Done:
        name, options = target.easyconfig, _options(given, target.variant)
        if given["dry_run_short"] and (found := find_unchanged(layout, name, options, surroundings)):
            path = name if Path(name).exists() else found.provenance.easyconfig
            row = DryRun(path, found.module, "x")
        else:
            from sifmod.actions.install.current import outgoing_layers, overview, status_sign, texts
            from sifmod.tree.receipt import live

            request = _request(target, given)
            mark, before = status_sign(request), live(layout, request.plan.module)
            going = tuple(outgoing_layers(before, request)) if mark != "x" else ()
            row = DryRun(str(request.loaded.path), request.plan.module, mark, going)
        done = Done(f"{row.module} [{row.mark}]", row)
        if given["as_json"]:
            return done
        echo(one_line(f" * [{row.mark}] {row.easyconfig} (module: {row.module})"))
        if not given["dry_run_short"]:
            for line in overview(request):
                echo(one_line(f"       {line}"))
        if given["extended_dry_run"]:
            for path, text in texts(request):
                echo(f"\n--- {path}\n{text}")
        return done

    return show
