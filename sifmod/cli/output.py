"""What the user sees: messages on standard error, data on standard output."""

import errno
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from sifmod.errors import ConfigError, InstallError, PermissionsError, SifmodError
from sifmod.system import FILE_LIMIT, meaning, reason

if TYPE_CHECKING:
    from sifmod.tree.receipt import Installation

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with every character that could steer a terminal spelled out: others may have written it."""
    return _STEERING.sub(lambda found: repr(found[0])[1:-1], text)


_below: list[Callable[[], AbstractContextManager[None]]] = []


@contextmanager
def texts_go_above(line: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Write each text inside a `line()`, which takes a line that is being drawn away, and keeps it away meanwhile."""
    _below.append(line)
    try:
        yield
    finally:
        _below.remove(line)


def echo(text: object, *, nl: bool = True, err: bool = False) -> None:
    """A text on standard output, or on standard error, harmless."""
    with ExitStack() as stack:
        for line in _below:
            stack.enter_context(line())
        click.echo(harmless(str(text)), nl=nl, err=err)


def say(text: str) -> None:
    """A line of what is being done, in EasyBuild's form, on standard error."""
    echo(f"== {text}", err=True)


def quiet(text: str) -> None:
    """Say nothing: `--quiet`."""


def ask(about: str, question: str) -> bool | None:
    """Say what it is about, and ask; None where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        return None
    say(about)
    return click.confirm(question, default=False, err=True)


def print_json(data: object) -> None:
    """Data for a program, on standard output."""
    click.echo(json.dumps(data, indent=2, sort_keys=True))


def receipt_data(installation: "Installation") -> dict[str, object]:
    """An installation as `--json` prints it: its receipt, and where it is."""
    from sifmod.tree.receipt import as_data

    return {"module": str(installation.module), **as_data(installation)}


def error_data(error: SifmodError) -> dict[str, object]:
    """What went wrong, as `--json` prints it; file, line and column of the first problem, null where unknown."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    places = [{"file": one.file, "line": one.line, "column": one.column} for one in problems]
    return {
        "error": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
        **(places[0] if places else {"file": None, "line": None, "column": None}),
        "problems": [
            {**place, "key": one.key, "message": one.message} for place, one in zip(places, problems, strict=True)
        ],
    }


def explained(error: OSError) -> SifmodError | None:
    """What the operating system refused, with what to do about it; None where that cannot be said: a bug."""
    place = f"{error.filename}: " if error.filename else ""
    match meaning(error):
        case "denied":
            hint = "choose a place of your own with --prefix or SIFMOD_PREFIX"
            return PermissionsError(f"{place}{reason(error)}", hint)
        case "full":
            hint = "free space or choose another place with --prefix or SIFMOD_PREFIX; `sifmod gc` shows what can go"
            return InstallError(f"{place}{reason(error)}, nothing was published", hint)
        case "too many files":
            return InstallError(reason(error), FILE_LIMIT)
    if error.errno == errno.ENOENT and not error.filename:  # what os.getcwd says
        return SifmodError("the current directory has been removed", "go to another one and repeat the command")
    return InstallError(f"{place}{reason(error)}", "fix this, then run the command again") if error.filename else None


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Columns of text on standard output, as wide as their widest cell; no trailing blanks."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counted(number: int, noun: str) -> str:
    """1 image, 2 images."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
