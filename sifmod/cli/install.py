"""`sifmod install`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import conversion_options, in_full, json_option, keep_blobs_option, site_options

if TYPE_CHECKING:
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.install.request import Request
    from sifmod.tree.receipt import Installation

Given = dict[str, str | bool | None]
# the options that decide what is installed, which the receipt keeps
DECIDING = (
    *("variant", "source", "link", "site", "prefix", "robot_paths", "image_dirs", "accelerator", "runtime"),
    "module_syntax",
)


@click.command("install")
@click.argument("easyconfigs", nargs=-1, metavar="FILE|NAME...")
@click.option("-D", "--dry-run-short", is_flag=True, help="Show what would be done, a line each: [ ] [x] [R] [F].")
@click.option("--dry-run", is_flag=True, help="Show what would be done, with every path.")
@click.option("-x", "--extended-dry-run", is_flag=True, help="Show every file that would be written, with its text.")
@click.option("-r", "--robot", is_flag=True, help="As with EasyBuild; easyconfigs are always searched for.")
@click.option("--rebuild", is_flag=True, help="Install again even where nothing has changed.")
@click.option("-f", "--force", is_flag=True, help="As --rebuild, and fetch the image again.")
@click.option("--module-only", is_flag=True, help="Render modulefile and scripts again, keep the installed image.")
@click.option(
    "--installed", is_flag=True, help="With --module-only, no FILE: says that all that is installed is meant."
)
@click.option("--fetch", is_flag=True, help="Only fetch the images into the store; install nothing.")
@click.option("--variant", metavar="NAME", help="Which variant (default: the one for this site's accelerator).")
@click.option("--source", metavar="REFERENCE", help="Take the image from here instead.")
@click.option("--link", type=click.Choice(["copy", "hardlink", "reference"]), help="How a local SIF is taken in.")
@click.option("--offline", is_flag=True, help="Use only what is on this machine.")
@click.option("--skip-sanity-check", is_flag=True, help="Do not look for commands in the image.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a large image goes to the home directory.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the commands to type next.")
@conversion_options
@keep_blobs_option
@site_options
@json_option
def command(easyconfigs: tuple[str, ...], **given: str | bool | None) -> int:
    """Install the modules of one or more easyconfigs.

    FILE is a path; a NAME such as PyTorch-2.2.0 is looked up on the easyconfig path. What is installed already and
    unchanged is left as it is. The commands to type next go to standard output, everything else to standard error.
    `--module-only` without a FILE applies a changed site, preset or quirk to everything that is installed.
    """
    if given["installed"] and (easyconfigs or not given["module_only"]):
        raise click.UsageError("--installed goes with --module-only, and without easyconfigs")
    if given["module_only"] and not easyconfigs:
        from sifmod.cli.reapply import reapply

        return reapply(given)
    if not easyconfigs:
        raise click.UsageError("missing argument: FILE or NAME of an easyconfig")
    if any(given[name] for name in ("dry_run_short", "dry_run", "extended_dry_run")):
        return _dry_runs(easyconfigs, given)
    if given["fetch"]:
        return _fetch_only(easyconfigs, given)
    from sifmod.actions.install.unchanged import find_unchanged
    from sifmod.cli.context import layout_for
    from sifmod.config.input import Surroundings

    options, layout = _options(given), layout_for(_text(given["prefix"]))
    results: list[tuple[Installation, bool]] = []
    try:
        surroundings = Surroundings(os.environ)
        for name in easyconfigs:
            found = find_unchanged(layout, name, options, surroundings)
            result = (found, False) if found else _install(name, given)
            surroundings = surroundings if found else Surroundings(os.environ)  # an install takes its time
            results.append(result)
            if not given["as_json"]:
                _report(*result, quiet=bool(given["quiet"]))
    finally:  # what was installed before an error is told too
        if given["as_json"]:
            from sifmod.cli.output import print_json, receipt_data

            print_json([{**receipt_data(installation), "changed": changed} for installation, changed in results])
    return 0


def _options(given: Given) -> "InstallOptions":
    from sifmod.actions.install.options import InstallOptions
    from sifmod.tree.provenance import Asked

    named = tuple(
        (f"--{name.replace('_', '-')}", in_full(name, str(given[name]))) for name in DECIDING if given[name] is not None
    )
    return InstallOptions(
        variant=_text(given["variant"]),
        source=_text(given["source"]),
        rebuild=bool(given["rebuild"] or given["force"] or given["module_only"]),
        force=bool(given["force"]),
        module_only=bool(given["module_only"]),
        offline=bool(given["offline"]),
        keep_blobs=bool(given["keep_blobs"]),
        into_home=bool(given["yes"]),
        asked=Asked(options=named, checked=not given["skip_sanity_check"]),
    )


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _request(name: str, given: Given) -> "Request":
    from sifmod.actions.install.request import decide
    from sifmod.cli.context import load_context

    # --compression, --processors and the options of a site travel in the site, the others in InstallOptions
    site = load_context({name: value for name, value in given.items() if isinstance(value, str)})
    return decide(name, site, _options(given))


def _fetch_only(easyconfigs: tuple[str, ...], given: Given) -> int:
    """Fetch the images of the easyconfigs into the store, and print their paths."""
    from sifmod.actions.install.image import fetch_only
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import typed
    from sifmod.cli.output import echo, print_json, quiet, say
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given["quiet"] else say
    rows = []
    for name in easyconfigs:
        request = _request(name, given)
        with progress(not given["quiet"]) as update:
            reporter = Reporter(speak, update, _confirm, typed())
            artifact = fetch_only(request, reporter)
        rows.append({"module": str(request.plan.module), "path": str(artifact.path), "sha256": artifact.sha256})
        if not given["as_json"]:
            state = "is in the store" if update.used else "is in the store already"
            speak(f"{request.plan.module}: the image {state}, {artifact.source}")
            if given["keep_blobs"] and not update.used:
                speak(NOTHING_KEPT)
            echo(artifact.path)
    if given["as_json"]:
        print_json(rows)
    return 0


def _install(name: str, given: Given) -> "tuple[Installation, bool]":
    from sifmod.actions.install.install import install
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import typed
    from sifmod.cli.output import quiet, say
    from sifmod.cli.progress import NOTHING_KEPT, progress

    request = _request(name, given)
    show = not given["quiet"]
    speak = say if show else quiet
    for note in request.notes:
        speak(note)
    speak(f"{request.plan.module}: installing from {request.loaded.path}")
    with progress(show) as update:
        reporter = Reporter(speak, update, _confirm, typed())
        installation, changed = install(request, reporter)
    if given["keep_blobs"] and not update.used:
        speak(NOTHING_KEPT)
    return installation, changed


def _confirm(about: str, question: str) -> bool | None:
    from sifmod.cli.output import echo

    if not sys.stdin.isatty():
        return None
    echo(f"== {about}", err=True)
    return click.confirm(question, default=False, err=True)


def _report(installation: "Installation", changed: bool, quiet: bool) -> None:
    """Say what is installed and print the commands that load it."""
    from sifmod.actions.install.how_to_load import commands_to_load, hidden_by
    from sifmod.cli.output import echo, say

    if not quiet:
        state = f"installed, generation {installation.generation}" if changed else "already installed, nothing to do"
        say(f"{installation.module}: {state}")
        if reason := hidden_by(installation, os.environ):
            say(reason)
    for line in commands_to_load(installation, os.environ):
        echo(line)


def _dry_runs(easyconfigs: tuple[str, ...], given: Given) -> int:
    """Show what an install would do; reads, changes nothing."""
    from sifmod.actions.install.unchanged import find_unchanged
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import echo, print_json
    from sifmod.config.input import Surroundings

    options, layout = _options(given), layout_for(_text(given["prefix"]))
    rows, surroundings = [], Surroundings(os.environ)
    for name in easyconfigs:
        if given["dry_run_short"] and (found := find_unchanged(layout, name, options, surroundings)):
            path = name if Path(name).exists() else found.provenance.easyconfig
            rows.append({"easyconfig": path, "module": str(found.module), "mark": "x"})
        else:
            from sifmod.actions.install.dry_run import mark, overview, texts

            request = _request(name, given)
            path, module = str(request.loaded.path), str(request.plan.module)
            rows.append({"easyconfig": path, "module": module, "mark": mark(request)})
        if given["as_json"]:
            continue
        echo(f" * [{rows[-1]['mark']}] {path} (module: {rows[-1]['module']})")
        if not given["dry_run_short"]:
            for line in overview(request):
                echo(f"       {line}")
        if given["extended_dry_run"]:
            for path, text in texts(request):
                echo(f"\n--- {path}\n{text}")
    if given["as_json"]:
        print_json(rows)
    return 0
