"""`sifmod install --module-only` without easyconfigs."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sifmod.actions.install.reapply import Reapplication
    from sifmod.actions.reporter import Reporter
    from sifmod.config.name import ModuleName

Given = dict[str, str | bool | None]
# the options of a site that decide about a module whose image is there
DECIDING = ("site", "prefix", "robot_paths", "image_dirs", "accelerator", "runtime", "module_syntax", "link")
# those of other installs, which would fetch or choose
REFUSED = ("variant", "source", "rebuild", "force", "fetch", "keep_blobs", "compression", "processors")


def reapply(given: Given) -> int:
    """Print what a changed site, preset or quirk changes in the installed modules, as a diff, then change it."""
    from sifmod.actions.install.reapply import reapplications
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import layout_for, typed
    from sifmod.cli.main import show_error
    from sifmod.cli.options import SITE_KEYS, in_full
    from sifmod.cli.output import echo, print_json, quiet, say

    if refused := [f"--{name.replace('_', '-')}" for name in REFUSED if given[name]]:
        raise click.UsageError(f"{', '.join(refused)}: not with --module-only without easyconfigs")
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    options = {SITE_KEYS[name]: in_full(name, value) for name, value in texts.items() if name in DECIDING}
    found = reapplications(layout_for(texts.get("prefix")), options, sanity=not given["skip_sanity_check"])
    changing = [one for one in found if one.changes]
    if not given["as_json"]:
        for one in changing:
            echo(one.diff, nl=bool(one.diff))
    speak = quiet if given["quiet"] else say
    for text, modules in _together((one.note, one.module) for one in found):
        speak(f"{modules}: {text}")
    undecided = sum(one.error is not None for one in found)
    more = f", {undecided} could not be decided" if undecided else ""
    speak(f"{len(changing)} of {len(found)} installed modules change{more}")
    only_shown = any(given[name] for name in ("dry_run_short", "dry_run", "extended_dry_run"))
    refusal = bool(changing) and not only_shown and not _agreed(given)
    if refusal:
        speak("nothing was changed, as you chose")
    elif not only_shown:
        reporter = Reporter(speak, command=typed())
        found = tuple(_applied(one, reporter) if one.changes else one for one in found)
    if given["as_json"]:
        print_json([_row(one) for one in found])
    errors = [one.error for one in found if one.error]
    for message, hint in _told(found):
        show_error(message, hint)
    return max((int(refusal), *(error.exit_code for error in errors)))


def _told(found: "tuple[Reapplication, ...]") -> list[tuple[str, str]]:
    """What went wrong, each once and with the modules that it is about."""
    hints = {one.error.message: one.error.hint for one in found if one.error}
    told = _together((one.error.message, one.module) for one in found if one.error)
    return [(message if modules in message else f"{modules}: {message}", hints[message]) for message, modules in told]


def _together(about: "Iterable[tuple[str, ModuleName]]") -> list[tuple[str, str]]:
    """Each text once, without empty ones, and the modules that it is about."""
    modules: dict[str, list[str]] = {}
    for text, module in about:
        if text:
            modules.setdefault(text, []).append(str(module))
    return [(text, ", ".join(names)) for text, names in modules.items()]


def _row(one: "Reapplication") -> dict[str, object]:
    from sifmod.cli.output import error_data

    row: dict[str, object] = {"module": str(one.module), "diff": one.diff, "notes": [one.note] if one.note else []}
    return {**row, **error_data(one.error)} if one.error else row


def _agreed(given: Given) -> bool:
    """Ask on a terminal, where the diff has just been read; a program that reads JSON is not asked."""
    if given["yes"] or given["as_json"] or not sys.stdin.isatty():
        return True
    return click.confirm("Change them", default=True, err=True)


def _applied(one: "Reapplication", reporter: "Reporter") -> "Reapplication":
    """Install it again; what goes wrong is kept, so that the others have their turn."""
    from sifmod.actions.install.install import install
    from sifmod.errors import SifmodError

    if one.request is None:
        return one
    try:
        installation, changed = install(one.request, reporter)
    except SifmodError as error:
        return replace(one, error=error)
    state = "installed" if changed else "another run has changed it meanwhile"
    reporter.say(f"{installation.module}: {state}, generation {installation.generation}")
    return one
