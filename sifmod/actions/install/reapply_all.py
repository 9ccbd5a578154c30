"""install --module-only --installed, for a whole tree: show every module, and change those that differ."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from sifmod.actions.batch import Ended, run_batch
from sifmod.actions.install.reapply import RerenderContext, Rerendered, rerender, rerender_all
from sifmod.actions.reporter import Reporter
from sifmod.actions.workers import OrderedWorkers, SendEvent, reporter_in_worker
from sifmod.config.name import ModuleName
from sifmod.errors import SifmodError
from sifmod.tree.receipt import live_modules

Generation = tuple[int, bool] | None
"""The generation of a module, and whether it is new; None if there was nothing to do."""
Found = tuple[Rerendered, ...]


@dataclass(frozen=True)
class ReapplyRun:
    """The request, and the callbacks for each module: its preview, and its outcome."""

    asked: RerenderContext
    show: Callable[[Rerendered], None]
    ended: Callable[[ModuleName, Ended[Generation]], None]
    agree: Callable[[Found], bool] | None = None  # is asked before anything is changed
    only_shown: bool = False
    fail_fast: bool = False


def reapply_all(run: ReapplyRun, reporter: Reporter) -> Found:
    """Show the preview of every installed module, in order, and change those that differ unless `only_shown`.

    If confirmation is needed, or with `fail_fast`, which lists modules that are not tried, everything is shown before
    anything is changed. A module's failure is reported, and without `fail_fast` the others go on.
    """
    asked = run.asked
    found: list[Rerendered] = []

    def keep(one: Rerendered) -> None:
        run.show(one)
        found.append(one._replace(diff=""))  # the diffs of thousands of modules would not fit into memory

    if not (run.agree or run.only_shown or run.fail_fast):
        next(rerender_all(asked), None)  # read what all modules share before the workers are forked
        _apply([(*one, "") for one in live_modules(asked.layout)], run, keep, reporter)
        return tuple(found)
    for one in rerender_all(asked):
        keep(one)
    if (run.agree is None or run.agree(tuple(found))) and not run.only_shown:
        _apply([(one.module, one.number, one.decided) for one in found if one.changes], run, keep, reporter)
    return tuple(found)


def _apply(
    modules: Sequence[tuple[ModuleName, int, str]],
    run: ReapplyRun,
    keep: Callable[[Rerendered], None],
    reporter: Reporter,
) -> None:
    """Change modules, each given by its name, its generation and the digest of its preview ("" if it is shown now).

    All are reported in order. With `fail_fast` each one starts after the one before it has finished.
    """
    warned: set[str] = set()  # of one worker, which says a warning about all modules once

    def in_worker(number: int, tell: SendEvent) -> object:
        own_reporter = replace(reporter_in_worker(number, tell, reporter.command), warned=warned)
        return rerender(*modules[number], run.asked, own_reporter)

    def done(number: int) -> Generation:
        one: Rerendered | None
        result: Generation | SifmodError
        one, result = ahead.result(number, reporter.say)
        if one:
            keep(one)
        if isinstance(result, SifmodError):
            raise result
        return result

    jobs = 1 if run.fail_fast else 2 * run.asked.processors  # a worker waits for the disk much of its time
    with closing(OrderedWorkers(in_worker, len(modules), jobs)) as ahead:
        for number, end in run_batch(range(len(modules)), done, fail_fast=run.fail_fast):
            run.ended(modules[number][0], end)
    # after an interruption: modules that finished while another one was waited for
    for number, end in run_batch(sorted(ahead.finished), done):
        run.ended(modules[number][0], end)
