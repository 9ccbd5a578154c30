"""`sifmod install --module-only` without easyconfigs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import click

from sifmod.cli.batch import Done, Ended, Failed, run_batch, summary, worst
from sifmod.cli.context import layout_for, reporter
from sifmod.cli.options import Given
from sifmod.cli.output import echo, print_json, quiet, say, show_error
from sifmod.config.name import ModuleName
from sifmod.errors import SifmodError

if TYPE_CHECKING:
    from sifmod.actions.install.reapply import Reapplication, Reapplying
    from sifmod.actions.reporter import Reporter

Result = TypeVar("Result")
# the options of a site that decide about a module whose image is there
DECIDING = ("site", "prefix", "robot_paths", "image_dirs", "accelerator", "runtime", "module_syntax", "link")
# those of other installs, which would fetch or choose
REFUSED = ("variant", "source", "rebuild", "force", "fetch", "keep_blobs", "compression", "processors")


def reapply(given: Given) -> int:
    """Print what a changed site, preset or quirk changes in the installed modules, as a diff, then change it."""
    from sifmod.actions.install.reapply import Reapplication, Reapplying, reapplications
    from sifmod.config.prefix import in_full

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
        ended = _decide_and_apply(asked, show, telling)
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
        ended = _apply(changing, asked, telling, fail_fast=fail_fast)
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


def _row(one: "Reapplication", ended: "Mapping[ModuleName, Ended]") -> dict[str, object]:
    failed = Failed(one.error) if one.error else ended.get(one.module)
    problem = failed.data if isinstance(failed, Failed) else {}
    return {"module": str(one.module), "diff": one.diff, "notes": [one.note] if one.note else [], **problem}


def _apply(
    changing: "Sequence[Reapplication]", asked: "Reapplying", reporter: "Reporter", *, fail_fast: bool
) -> "list[tuple[ModuleName, Ended]]":
    """What became of each, told in their order."""
    from sifmod.actions.install.reapply import reapply

    def install(number: int, in_worker: "Reporter") -> tuple[int, bool]:
        return reapply(changing[number], asked, in_worker)

    def done(number: int, became: tuple[int, bool]) -> Done:
        return _done(changing[number].module, became, reporter)

    ended = _in_workers(install, done, len(changing), asked, reporter, fail_fast=fail_fast)
    return [(changing[number].module, end) for number, end in ended.items()]


def _decide_and_apply(
    asked: "Reapplying", show: "Callable[[Reapplication], None]", reporter: "Reporter"
) -> "list[tuple[ModuleName, Ended]]":
    """The same without a question: each module is decided and installed in one go, then shown and told in order."""
    from sifmod.actions.install.reapply import reapplications, reapply_at_once
    from sifmod.tree.receipt import live_modules

    modules = live_modules(asked.layout)
    next(reapplications(asked), None)  # what is read for all is read before the workers begin

    def install(number: int, in_worker: "Reporter") -> "tuple[Reapplication, tuple[int, bool] | SifmodError | None]":
        return reapply_at_once(*modules[number], asked, in_worker)

    def done(_: int, became: "tuple[Reapplication, tuple[int, bool] | SifmodError | None]") -> Done:
        one, outcome = became
        show(one)
        if outcome is None:
            return Done("", {})  # no line of the summary
        if isinstance(outcome, SifmodError):
            raise outcome
        return _done(one.module, outcome, reporter)

    ended = _in_workers(install, done, len(modules), asked, reporter, fail_fast=False)
    return [(modules[number][0], end) for number, end in ended.items() if end.state]


def _done(module: "ModuleName", became: tuple[int, bool], reporter: "Reporter") -> Done:
    generation, changed = became
    state = f"{'installed' if changed else 'another run has changed it meanwhile'}, generation {generation}"
    reporter.say(f"{module}: {state}")
    return Done(state, {})


def _in_workers(
    do: "Callable[[int, Reporter], Result]",
    done: "Callable[[int, Result], Done]",
    count: int,
    asked: "Reapplying",
    reporter: "Reporter",
    *,
    fail_fast: bool,
) -> dict[int, Ended]:
    """What became of each; with `fail_fast` none is begun before the one before it is done."""
    from sifmod.actions.workers import Ahead, Tell, reporter_in_worker

    warned: set[str] = set()  # what holds for all is told once by each worker

    def in_worker(number: int, tell: Tell) -> "Result":
        return do(number, replace(reporter_in_worker(number, tell, reporter.command), warned=warned))

    def ended(number: int) -> Done:
        return done(number, ahead.result(number, reporter.say))

    jobs = 1 if fail_fast else 2 * asked.processors  # each waits for the disk much of its time
    with closing(Ahead(in_worker, count, jobs)) as ahead:
        found = dict(run_batch(range(count), ended, fail_fast=fail_fast))
    # after an interruption: others than the one that was waited for
    found.update(run_batch(sorted(ahead.finished), ended))
    return found
