"""`sifmod install --module-only` without easyconfigs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO

import click

from sifmod.actions.batch import Ended, Failed, Succeeded, worst
from sifmod.actions.start import layout_for
from sifmod.cli.batch import FailureReporter, Reported, summary
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import ask, counted, echo, print_json, quiet, say, show_error
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError, as_result

with later():
    from sifmod.actions.install import reapply, row
    from sifmod.cli import install
    from sifmod.config import option


def rerender_command(given: "install.InstallCommand") -> int:
    """Show as a diff what a changed site, preset or quirk changes in the modules; apply it unless -D or denied."""
    with TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as diffs:
        return _rerender(given, diffs)


def _rerender(given: "install.InstallCommand", diffs: IO[str]) -> int:
    _refuse_others(given)
    asked = reapply.RerenderContext(
        layout_for(given.prefix), option.in_full(given.settings), sanity=not given.skip_sanity_check
    )
    speak, as_json = quiet if given.quiet else say, given.as_json
    asks = sys.stdin.isatty() and not (given.yes or as_json or given.only_shows)
    shown: list[reapply.Rerendered] = []
    ended: dict[ModuleName, Ended[Reported]] = {}
    tell, refusal = FailureReporter(), False
    first = asks or given.only_shows or given.fail_fast

    def show(one: "reapply.Rerendered") -> None:
        if as_json:
            shown.append(one)
        elif one.diff and first:  # until all are counted; on disk, as there may be thousands
            diffs.write(f"{one.diff}\n")
        elif one.diff:
            echo(one.diff)

    def done(module: ModuleName, end: "Ended[reapply.Generation]") -> None:
        tell(end)
        if isinstance(end, Failed):
            ended[module] = end
        elif end.result:
            generation, changed = end.result
            state = f"{'installed' if changed else 'another run changed it meanwhile'}, generation {generation}"
            speak(f"{module}: {state}")
            ended[module] = Succeeded(Reported(state))

    def agree(found: "reapply.Found") -> bool:
        nonlocal refusal
        if not as_json:
            _show_all(found, diffs, speak)
        _summarise(found, speak)
        changes = any(one.changes for one in found)
        refusal = asks and changes and not _agreed()
        if refusal:
            speak("nothing was changed, as you chose")
        return not refusal

    run = reapply.ReapplyRun(asked, show, done, agree if first else None, given.only_shows, given.fail_fast)
    found = reapply.reapply_all(run, reporter(speak))
    if not first:
        _summarise(found, speak)
    failed = worst([*ended.values()])
    if failed:
        for line in summary([*ended.items()]):
            speak(line)
    if as_json:
        print_json([_row(one, ended) for one in shown])
    for message, hint in _errors(found):
        show_error(message, hint)
    return max((int(refusal), failed, *(one.error.exit_code for one in found if one.error)))


def _agreed() -> bool:
    """Ask whether to apply the changes. Raises OptionError without an answer."""
    agreed = ask("", "Apply the changes", default=True)
    if agreed is None:
        raise OptionError("nobody answered; nothing was changed", "`--yes` applies the changes, `-D` only shows them")
    return agreed


def _show_all(found: "reapply.Found", diffs: IO[str], speak: Callable[[str], None]) -> None:
    """Print the diffs; if several modules differ, first a line with the counts."""
    differing = [one.counts for one in found if any(one.counts)]
    if len(differing) > 1:
        files, added, removed = map(sum, zip(*differing, strict=True))
        modules = counted(len(differing), "module")
        speak(f"{modules} differ: {counted(files, 'file')}, {added} lines added, {removed} removed")
    diffs.seek(0)
    while text := diffs.read(1 << 20):
        echo(text, nl=False)


def _refuse_others(given: "install.InstallCommand") -> None:
    """Raise UsageError for options that only an install of easyconfigs has."""
    others = (
        *(("--variant", given.variants), ("--source", given.source), ("--rebuild", given.rebuild)),
        *(("--force", given.force), ("--fetch", given.fetch), ("--keep-blobs", given.keep_blobs)),
        *(("--compression", given.compression), ("--processors", given.processors)),
    )
    if refused := [name for name, value in others if value]:
        raise click.UsageError(f"{', '.join(refused)}: cannot be used with --module-only without easyconfigs")


def _summarise(found: "reapply.Found", speak: Callable[[str], None]) -> None:
    for text, modules in _together((one.note, one.module) for one in found):
        speak(f"{modules}: {text}")
    undecided = sum(one.error is not None for one in found)
    more = f", {undecided} could not be decided" if undecided else ""
    speak(f"{sum(one.changes for one in found)} of {len(found)} installed modules change{more}")


def _errors(found: "Sequence[reapply.Rerendered]") -> list[tuple[str, str]]:
    """Each distinct error as text, with its modules, and its hint."""
    hints = {one.error.message: one.error.hint for one in found if one.error}
    errors = _together((one.error.message, one.module) for one in found if one.error)
    return [(message if modules in message else f"{modules}: {message}", hints[message]) for message, modules in errors]


def _together(about: "Iterable[tuple[str, ModuleName]]") -> list[tuple[str, str]]:
    """Each distinct non-empty text with its modules."""
    modules: dict[str, list[str]] = {}
    for text, module in about:
        if text:
            modules.setdefault(text, []).append(str(module))
    return [(text, ", ".join(names)) for text, names in modules.items()]


def _row(one: "reapply.Rerendered", ended: "Mapping[ModuleName, Ended[Reported]]") -> "row.ReappliedRow":
    failed = Failed(one.error) if one.error else ended.get(one.module)
    error = as_result(failed.error) if isinstance(failed, Failed) else None
    return row.ReappliedRow(one.module, one.diff, (one.note,) if one.note else (), error)
