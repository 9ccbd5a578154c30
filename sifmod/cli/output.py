"""What the user sees: messages on standard error, data on standard output, progress for a terminal or a log."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sifmod.tree.receipt import Installation

Progress = Callable[[str, int, int | None], None]


def say(text: str) -> None:
    """A line of what is being done, in EasyBuild's form, on standard error."""
    click.echo(f"== {text}", err=True)


def waiting(what: object) -> Callable[[str], None]:
    """Says who works on `what` while a lock is waited for."""
    return lambda who: say(f"waiting for {what}, which {who} is working on")


def quiet(text: str) -> None:
    """Say nothing: `--quiet`."""


def print_json(data: object) -> None:
    """Data for a program, on standard output."""
    click.echo(json.dumps(data, indent=2, sort_keys=True))


def receipt_data(installation: "Installation") -> dict[str, object]:
    """An installation as `--json` prints it: its receipt."""
    from sifmod.tree.receipt import to_json

    data: dict[str, object] = json.loads(to_json(installation))
    return {"module": str(installation.module), **data}


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Columns of text on standard output, as wide as their widest cell; no trailing blanks."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def human_size(size: int) -> str:
    """Bytes as people read them: 1.1 GB."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


@contextmanager
def progress(enabled: bool) -> Iterator[Progress]:
    """A progress bar on a terminal, a line per 10 % in a log, nothing when not enabled."""
    if not enabled:
        yield lambda what, done, total: None  # noqa: ARG005
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bars() as update:
            yield update
    else:
        yield _log_lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import (
        Progress as Bars,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield update


def _log_lines(interval: float = 60.0) -> Progress:
    """A line whenever another tenth is done, and every `interval` seconds where the size is not known."""
    last: dict[str, tuple[int, float]] = {}

    def update(what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        tenth = 10 * done // total if total else 0
        if what not in last and not total:
            say(what)
        shown, when = last.setdefault(what, (0, now))
        if (total and tenth > shown) or (not total and now - when >= interval):
            share = f"{10 * tenth} % of {human_size(total)}" if total else human_size(done)
            say(f"{what}: {share}")
            last[what] = (tenth, now)

    return update
