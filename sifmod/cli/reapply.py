"""`sifmod install --module-only` without easyconfigs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sifmod.cli.batch import Done, Ended, Failed, run_batch, summary, worst
from sifmod.cli.context import layout_for, reporter
from sifmod.cli.output import echo, print_json, quiet, say, show_error
from sifmod.cli.shared_options import Given
from sifmod.config.name import ModuleName
from sifmod.errors import SifmodError

if TYPE_CHECKING:
    from sifmod.actions.install.reapply import Reapplication, Reapplying
    from sifmod.actions.install.row import ReappliedRow
    from sifmod.actions.reporter import Reporter

# the options of a site that decide about a module whose image is there
DECIDING = ("site", "prefix", "robot_paths", "image_dirs", "accelerator", "runtime", "module_syntax", "link")
# those of other installs, which would fetch or choose
REFUSED = ("variant", "source", "rebuild", "force", "fetch", "keep_blobs", "compression", "processors")


def reapply(given: Given) -> int:
    """Print what a changed site, preset or quirk changes in the installed modules, as a diff, then change it."""
    from sifmod.actions.install.reapply import Reapplication, Reapplying, reapplications
    from sifmod.config.prefix import in_full
    from sifmod.tree.receipt import live_modules

    if refused := [f"--{name.replace('_', '-')}" for name in REFUSED if given[name]]:
        raise click.UsageError(f"{', '.join(refused)}: not with --module-only without easyconfigs")
    options = {name: in_full(name, given[name]) for name in DECIDING if given[name] is not None}
    asked = Reapplying(layout_for(given["prefix"]), options, sanity=not given["skip_sanity_check"])
    speak = quiet if given["quiet"] else say
    telling, fail_fast = reporter(speak), given["fail_fast"]
    only_shown = any(given[name] for name in ("dry_run_short", "dry_run", "extended_dry_run"))
    found: list[Reapplication] = []
    ended: list[tuple[ModuleName, Ended]] = []

    def show(one: Reapplication) -> None:
        if one.changes and not given["as_json"]:
            echo(one.diff, nl=bool(one.diff))
        found.append(one if given["as_json"] else one._replace(diff=""))

    asks = sys.stdin.isatty() and not (given["yes"] or given["as_json"])
    all_shown_first = asks or only_shown or fail_fast  # --fail-fast names those that are not tried
    if all_shown_first:
        for one in reapplications(asked):
            show(one)
    else:
        next(reapplications(asked), None)  # what is read for all is read before the workers begin
        ended = _apply([(*one, "") for one in live_modules(asked.layout)], asked, show, telling, fail_fast=False)
    changing = [one for one in found if one.changes]
    for text, modules in _together((one.note, one.module) for one in found):
        speak(f"{modules}: {text}")
    undecided = sum(one.error is not None for one in found)
    more = f", {undecided} could not be decided" if undecided else ""
    speak(f"{len(changing)} of {len(found)} installed modules change{more}")
    # the diff has just been read
    refusal = bool(changing) and asks and not only_shown and not click.confirm("Change them", default=True, err=True)
    if refusal:
        speak("nothing was changed, as you chose")
    elif all_shown_first and not only_shown:
        again = [(one.module, one.number, one.decided) for one in changing]
        ended = _apply(again, asked, show, telling, fail_fast=fail_fast)
    failed = worst([end for _, end in ended])
    if failed:
        for line in summary(ended):
            speak(line)
    if given["as_json"]:
        print_json([_row(one, dict(ended)) for one in found])
    for message, hint in _told(found):
        show_error(message, hint)
    return max((int(refusal), failed, *(one.error.exit_code for one in found if one.error)))


def _told(found: "Sequence[Reapplication]") -> list[tuple[str, str]]:
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


def _row(one: "Reapplication", ended: "Mapping[ModuleName, Ended]") -> "ReappliedRow":
    from sifmod.actions.install.row import ReappliedRow

    failed = Failed(one.error) if one.error else ended.get(one.module)
    error = failed.result if isinstance(failed, Failed) else None
    return ReappliedRow(one.module, one.diff, (one.note,) if one.note else (), error)


def _apply(
    modules: "Sequence[tuple[ModuleName, int, str]]",
    asked: "Reapplying",
    show: "Callable[[Reapplication], None]",
    reporter: "Reporter",
    *,
    fail_fast: bool,
) -> "list[tuple[ModuleName, Ended]]":
    """What became of each: module, generation, and the digest of what was shown of it, "" where it is shown now.

    All is told in their order. With `fail_fast` none is begun before the one before it is done.
    """
    from sifmod.actions.install.reapply import reapply
    from sifmod.actions.workers import Ahead, Tell, reporter_in_worker

    warned: set[str] = set()  # what holds for all is told once by each worker

    def in_worker(number: int, tell: Tell) -> object:
        return reapply(
            *modules[number], asked, replace(reporter_in_worker(number, tell, reporter.command), warned=warned)
        )

    def done(number: int) -> Done:
        one, became = ahead.result(number, reporter.say)
        if one:
            show(one)
        if became is None:
            return Done("")  # no line of the summary
        if isinstance(became, SifmodError):
            raise became
        generation, changed = became
        state = f"{'installed' if changed else 'another run has changed it meanwhile'}, generation {generation}"
        reporter.say(f"{modules[number][0]}: {state}")
        return Done(state)

    jobs = 1 if fail_fast else 2 * asked.processors  # each waits for the disk much of its time
    with closing(Ahead(in_worker, len(modules), jobs)) as ahead:
        ended = dict(run_batch(range(len(modules)), done, fail_fast=fail_fast))
    # after an interruption: others than the one that was waited for
    ended.update(run_batch(sorted(ahead.finished), done))
    return [(modules[number][0], end) for number, end in ended.items() if end.state]
