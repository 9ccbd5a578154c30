"""`sifmod install`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import conversion_options, in_full, json_option, keep_blobs_option, site_options
from sifmod.errors import OptionError, SifmodError

if TYPE_CHECKING:
    from sifmod.actions.install.request import InstallOptions, Request
    from sifmod.config.input import Surroundings
    from sifmod.config.settings import LoadedSite
    from sifmod.module.plan import Plan
    from sifmod.tree.receipt import Installation

LARGE = 2 * 10**9  # bytes


@click.command("install")
@click.argument("easyconfigs", nargs=-1, metavar="FILE|NAME...")
@click.option("-D", "--dry-run-short", is_flag=True, help="Show what would be done, a line each: [ ] [x] [R] [F].")
@click.option("--dry-run", is_flag=True, help="Show what would be done, with every path.")
@click.option("-x", "--extended-dry-run", is_flag=True, help="Show every file that would be written, with its text.")
@click.option("-r", "--robot", is_flag=True, help="As with EasyBuild; easyconfigs are always searched for.")
@click.option("--rebuild", is_flag=True, help="Install again even where nothing has changed.")
@click.option("-f", "--force", is_flag=True, help="As --rebuild, and fetch the image again.")
@click.option("--module-only", is_flag=True, help="Render modulefile and scripts again, keep the installed image.")
@click.option("--installed", is_flag=True, help="With --module-only: everything that is installed; shows a diff first.")
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
    from sifmod.config.input import Surroundings

    results: list[tuple[Installation, bool]] = []
    try:
        surroundings = Surroundings(os.environ)
        for name in easyconfigs:
            found = _unchanged(name, given, surroundings)
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


def _recorded(given: dict[str, str | bool | None]) -> tuple[tuple[str, str], ...]:
    """The options that decide what is installed, as the receipt keeps them: true in every directory."""
    from sifmod.actions.install.unchanged import UNCHECKED

    deciding = ("variant", "source", "link", "site", "prefix", "robot_paths", "image_dirs", "accelerator", "runtime")
    named = (name for name in (*deciding, "module_syntax") if given[name] is not None)
    options = tuple((f"--{name.replace('_', '-')}", in_full(name, str(given[name]))) for name in named)
    return (*options, UNCHECKED) if given["skip_sanity_check"] else options


def _unchanged(name: str, given: dict[str, str | bool | None], surroundings: "Surroundings") -> "Installation | None":
    """The installation that needs nothing done, found without loading the site or the easyconfig where possible."""
    if given["rebuild"] or given["force"] or given["module_only"]:
        return None
    from sifmod.actions.install.unchanged import find_unchanged
    from sifmod.cli.context import layout_for

    return find_unchanged(layout_for(_text(given["prefix"])), name, _recorded(given), surroundings)


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _site(given: dict[str, str | bool | None]) -> "LoadedSite":
    from sifmod.cli.context import load_context

    return load_context({name: value for name, value in given.items() if value is None or isinstance(value, str)})


def _options(name: str, given: dict[str, str | bool | None]) -> "InstallOptions":
    from sifmod.actions.install.request import InstallOptions
    from sifmod.config.find import is_path

    return InstallOptions(
        variant=_text(given["variant"]),
        source=_text(given["source"]),
        rebuild=bool(given["rebuild"] or given["force"] or given["module_only"]),
        force=bool(given["force"]),
        module_only=bool(given["module_only"]),
        offline=bool(given["offline"]),
        sanity=not given["skip_sanity_check"],
        keep_blobs=bool(given["keep_blobs"]),
        asked="" if is_path(name) else name,
        recorded=_recorded(given),
    )


def _request(name: str, given: dict[str, str | bool | None]) -> "Request":
    from sifmod.actions.install.request import decide
    from sifmod.config.find import find_easyconfig

    site = _site(given)
    return decide(find_easyconfig(name, site.site.robot_paths), site, _options(name, given))


def _fetch_only(easyconfigs: tuple[str, ...], given: dict[str, str | bool | None]) -> int:
    """Fetch the images of the easyconfigs into the store, and print their paths."""
    from sifmod.actions.install.image import fetch_only
    from sifmod.actions.listener import Listener
    from sifmod.cli.context import typed
    from sifmod.cli.output import echo, print_json, quiet, say
    from sifmod.cli.progress import NOTHING_KEPT, progress

    speak = quiet if given["quiet"] else say
    rows = []
    for name in easyconfigs:
        request = _request(name, given)
        with progress(not given["quiet"]) as update:
            listener = Listener(speak, update, _asker(request, bool(given["yes"])), typed())
            artifact = fetch_only(request, listener)
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


def _install(name: str, given: dict[str, str | bool | None]) -> "tuple[Installation, bool]":
    from sifmod.actions.install.install import install
    from sifmod.actions.listener import Listener
    from sifmod.cli.context import typed
    from sifmod.cli.output import quiet, say
    from sifmod.cli.progress import NOTHING_KEPT, progress

    request = _request(name, given)
    show = not given["quiet"]
    speak = say if show else quiet
    for note in (*request.loaded.notes, *_warnings(request)):
        speak(note)
    speak(f"{request.plan.module}: installing from {request.loaded.path}")
    with progress(show) as update:
        listener = Listener(speak, update, _asker(request, bool(given["yes"])), typed())
        installation, changed = install(request, listener)
    if given["keep_blobs"] and not update.used:
        speak(NOTHING_KEPT)
    return installation, changed


def _warnings(request: "Request") -> tuple[str, ...]:
    """What is odd about the binds of the site and of the easyconfig."""
    from sifmod.config.lint import lint_binds

    problems = (*lint_binds(request.site.tree), *lint_binds(request.loaded.tree))
    return tuple(f"warning: {problem}" for problem in problems)


def _asker(request: "Request", yes: bool) -> "Callable[[Plan, Callable[[], int | None]], None]":
    """The question before a large image, or one of unknown size, goes to a home directory that nobody chose.

    Where nobody can be asked, an option has to answer: OptionError. A "no" is a SifmodError.
    """

    def may_fetch(plan: "Plan", how_large: "Callable[[], int | None]") -> None:
        from sifmod.cli.output import echo, human_size

        home = Path.home()
        if yes or not request.site.site.prefix_is_default or not Path(plan.prefix).is_relative_to(home):
            return
        size = how_large()
        if size is not None and size <= LARGE:
            return
        large = f"{human_size(size)} large" if size else "of unknown size (most are 2 to 20 GB)"
        question = f"the image of {plan.module} is {large} and would go to {plan.prefix}, in your home directory"
        choice = "choose a larger place with --prefix DIR or SIFMOD_PREFIX=DIR, or repeat the command with --yes"
        if not sys.stdin.isatty():
            raise OptionError(f"{question}, and there is no terminal to ask at; nothing was fetched", choice)
        echo(f"== {question}", err=True)
        if not click.confirm(f"Fetch it into {plan.prefix} all the same?", default=False, err=True):
            raise SifmodError("nothing was fetched, as you chose", choice)

    return may_fetch


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


def _dry_runs(easyconfigs: tuple[str, ...], given: dict[str, str | bool | None]) -> int:
    """Show what an install would do; reads, changes nothing."""
    from sifmod.actions.install.dry_run import mark, overview, texts
    from sifmod.cli.output import echo, print_json
    from sifmod.config.input import Surroundings

    rows, surroundings = [], Surroundings(os.environ)
    for name in easyconfigs:
        if given["dry_run_short"] and (found := _unchanged(name, given, surroundings)):
            path = name if Path(name).exists() else found.provenance.easyconfig
            rows.append({"easyconfig": path, "module": str(found.module), "mark": "x"})
        else:
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
