"""What the user sees: messages on standard error, data on standard output."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import click

from sifmod.errors import ConfigError, InstallError, PermissionsError, SifmodError
from sifmod.system import FILE_LIMIT, harmless, meaning, one_line, reason

if TYPE_CHECKING:
    from sifmod.actions.layer.outgoing import OutgoingLayer
    from sifmod.cli.outputs.installed import Installed
    from sifmod.cli.outputs.use import OutgoingLayerData
    from sifmod.cli.outputs.words import Error
    from sifmod.cli.outputs.words import Problem as ProblemData
    from sifmod.config.origin import Origin
    from sifmod.errors import Problem
    from sifmod.tree.receipt import FileRecord, Installation, LinkRecord

Shape = TypeVar("Shape")

_below: list[Callable[[], AbstractContextManager[None]]] = []
LONG = 60  # letters of a value that has its line for itself
_lost: list[OSError] = []  # why standard output takes nothing any more


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
    write(harmless(str(text)), nl=nl, err=err)


def write(text: str, *, nl: bool = True, err: bool = False, color: bool | None = None) -> None:
    """Write as it is. What cannot be written stops nothing that a verb does.

    What comes after a failed write is dropped. `lost_output` tells at the end that standard output failed.
    """
    with ExitStack() as stack:
        for line in _below:
            stack.enter_context(line())
        try:
            click.echo(text, nl=nl, err=err, color=color)
        except OSError as error:
            with open(os.devnull, "wb") as null:  # noqa: PTH123 (pathlib would be imported for it)
                os.dup2(null.fileno(), (sys.stderr if err else sys.stdout).fileno())
            if not err:
                _lost.append(error)


def lost_output() -> SifmodError | None:
    """Why a part of the output is missing; None where nothing is, and where its reader wanted no more (`| head`)."""
    lost = [error for error in _lost if not isinstance(error, BrokenPipeError)]
    _lost.clear()
    if not lost:
        return None
    hint = "what was done is done, and `sifmod log` shows it"
    return SifmodError(f"the output cannot be written: {reason(lost[0])}", hint)


def say(text: str) -> None:
    """A line of what is being done, in EasyBuild's form, on standard error."""
    echo(f"== {one_line(text)}", err=True)


def quiet(text: str) -> None:
    """Say nothing: `--quiet`."""


def ask(about: str, question: str) -> bool | None:
    """Say what it is about, and ask; None where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        return None
    say(about)
    try:
        return click.confirm(question, err=True)
    except OSError:  # nobody sees the question
        return None


def print_json(data: object) -> None:
    """The answer for a program, on standard output: the only one, for an error is told there only without it."""
    click.get_current_context().obj.answered = True  # a part of it may be there where it cannot be written
    write(json_text(data))


def json_text(data: object) -> str:
    """The data as JSON, in the form that every verb prints."""
    import json

    return json.dumps(data, indent=2, sort_keys=True)


def shaped(shape: type[Shape], value: object, /, **more: object) -> Shape:
    """The keys of a TypedDict from the attributes of `value` that are called so, or from `more`.

    What is in a value is shaped too, but for a dict, which is as it is to be. Names, paths and days become texts, and
    pairs a map where the shape has one; an empty text is null where the shape allows null. A key that need not be there
    is left out where neither has it.
    """
    found: Any = {}
    for key, convert, required in _fields(shape):  # type: ignore[arg-type]
        if key in more:
            found[key] = convert(more[key])
        elif required or hasattr(value, key):
            found[key] = convert(getattr(value, key))
    return found  # type: ignore[no-any-return]


@cache
def _fields(shape: Any) -> tuple[tuple[str, Callable[[Any], object], bool], ...]:
    """Each key of a TypedDict, what turns a value into that of the key, and whether the key has to be there."""
    kinds = get_type_hints(shape).items()
    return tuple((key, _converter(kind), key in shape.__required_keys__) for key, kind in kinds)


def _converter(kind: Any) -> Callable[[Any], object]:
    choices = get_args(kind)
    if NoneType in choices:
        known = _converter(choices[0])
        return lambda value: None if value is None or value == "" else known(value)
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        return lambda value: value if isinstance(value, dict) else shaped(kind, value)
    if get_origin(kind) is list:
        one = _converter(choices[0])
        return lambda value: [one(item) for item in value]
    if get_origin(kind) is dict:
        return dict
    return str if kind is str else lambda value: value


def outgoing_data(layer: "OutgoingLayer") -> "OutgoingLayerData":
    """A layer that goes out of use, as `--json` prints it."""
    from sifmod.cli.outputs.use import OutgoingLayerData

    return shaped(OutgoingLayerData, layer)


def receipt_data(installation: "Installation") -> "Installed":
    """An installation as `--json` prints it: its receipt, with absolute paths, without what only sifmod can use."""
    from sifmod.cli.outputs.installed import Image, Installed, Provenance
    from sifmod.tree.layout import Layout

    made, image, root = installation.provenance, installation.image, installation.root
    inputs = [seen for seen in made.inputs if seen.path.startswith("/") and not seen.path.endswith("/")]
    mpi = made.image.mpi.told if made.image.mpi else ""
    return shaped(
        Installed,
        installation,
        path=root,
        provenance=shaped(
            Provenance, made, mpi=mpi, options=made.asked.options, checked=made.asked.checked, inputs=inputs
        ),
        image=image and shaped(Image, image, made_from=image.origin),
        loads=installation.modules,
        files=_absolute(root, installation.files),
        links=_absolute(root, installation.links),
        modulefiles=_absolute(Layout(installation.prefix).modules, installation.stubs),
    )


def _absolute(directory: object, records: "Iterable[FileRecord | LinkRecord]") -> list[dict[str, object]]:
    return [record._asdict() | {"path": f"{directory}/{record.path}"} for record in records]


def error_data(error: SifmodError) -> "Error":
    """What went wrong, as `--json` prints it; file, line and column of the first problem, null where unknown."""
    problems = problems_data(error.problems) if isinstance(error, ConfigError) else []
    first = problems[0] if problems else None
    return {
        "error": error.message,
        "hint": error.hint or None,
        "exit_code": error.exit_code,
        "file": first and first["file"],
        "line": first and first["line"],
        "column": first and first["column"],
        "problems": problems,
    }


def problems_data(problems: "Iterable[Problem]") -> "list[ProblemData]":
    """What is wrong, or odd, in files, as `--json` prints it."""
    from sifmod.cli.outputs.words import Problem

    return [shaped(Problem, one, line=one.line or None, column=one.column or None) for one in problems]


def explained(error: OSError) -> SifmodError | None:
    """What the operating system refused, with what to do about it; None where that cannot be said: a bug."""
    from sifmod.tree.durable import LinkInPrefixError

    place = f"{one_line(str(error.filename))}: " if error.filename else ""
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
    if isinstance(error, LinkInPrefixError):
        return InstallError(str(error), "remove the link, then run the command again")
    return InstallError(f"{place}{reason(error)}", "fix this, then run the command again") if error.filename else None


def with_code(message: str, hint: str, exit_code: int) -> SifmodError:
    """An error of no family, with its exit code."""
    error = SifmodError(message, hint)
    error.exit_code = exit_code
    return error


def show_error(message: str, hint: str = "") -> None:
    """Print a message, and after a blank line its hint, to standard error; coloured on a terminal (NO_COLOR: not)."""
    color = False if os.environ.get("NO_COLOR") else None
    write(f"{click.style('error:', fg='red', bold=True)} {harmless(message)}", err=True, color=color)
    if hint:
        write(f"\n{click.style('hint:', fg='cyan')} {harmless(hint)}", err=True, color=color)


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Columns of text on standard output, as wide as their widest cell; no trailing blanks. A row is a line."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_origins(origins: "Iterable[Origin]") -> None:
    """Keys, values and where they came from; the origin of a long value stands below it, and the value is whole."""
    rows = [(one_line(key), one_line(value), one_line(origin)) for key, value, origin in origins]
    keys = max((len(key) for key, _, _ in rows), default=0)
    values = max((len(value) for _, value, _ in rows if len(value) <= LONG), default=0)
    for key, value, origin in rows:
        start = f"{key.ljust(keys)}  =  "
        if len(value) <= LONG:
            echo(f"{start}{value.ljust(values)}  ({origin})")
        else:
            echo(start + value)
            echo(f"{' ' * len(start)}({origin})")


def counted(number: int, noun: str) -> str:
    """1 image, 2 images."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
