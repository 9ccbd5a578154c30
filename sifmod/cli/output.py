"""Output: messages on standard error, data on standard output; questions, and words to choose from."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from sifmod.config.kinds import accelerator_of
from sifmod.errors import SifmodError
from sifmod.result import in_json
from sifmod.secret import secret_parts, without_secrets
from sifmod.system import escape_controls, one_line, reason


class Words(click.Choice[str]):
    """One of these words. The accelerator `none` may be typed as `cpu`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, as in the choices. Raises click.BadParameter if it is none of them."""
        word = value if value in self.choices else accelerator_of(value)
        return super().convert(word, param, ctx)


if TYPE_CHECKING:
    from sifmod.config.origin import Origin

_below: list[Callable[[], AbstractContextManager[None]]] = []
Answer = TypeVar("Answer")
_FIRST = 16  # characters of a first column
LONG = 60  # characters; longer values get their own line
_PLAIN = str.maketrans({"…": "...", "→": "->", "·": "*", "⁹": "9", "–": "-", "—": "-", "’": "'"})  # noqa: RUF001
_lost: list[OSError] = []  # why standard output can no longer be written
_typed: dict[str, str] = {}  # what is secret in the command line, in the forms that messages give it


def hide_typed(words: Iterable[str]) -> None:
    """From now on leave logins, queries and fragments in these words and in variables out of messages and JSON."""
    _typed.clear()
    variables = (text for name, text in os.environ.items() if "://" in text or name.startswith("SIFMOD_"))
    for text, instead in secret_parts((*words, *variables)).items():
        forms = (text, repr(text)[1:-1], text.replace("'", "'\"'\"'"), json_text(text)[1:-1])
        _typed.update(
            dict.fromkeys((form.lower() for each in forms for form in (each, escape_controls(each))), instead)
        )


def without_typed(text: str) -> str:
    """The text without what `hide_typed` named."""
    if not _typed:
        return text
    import re

    pattern = "|".join(re.escape(each) for each in sorted(_typed, key=len, reverse=True))
    return re.sub(pattern, lambda found: _typed.get(found[0].lower(), "..."), text, flags=re.IGNORECASE)


@contextmanager
def texts_go_above(line: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """In this context, write each text inside a `line()`, which hides the progress bar meanwhile."""
    _below.append(line)
    try:
        yield
    finally:
        _below.remove(line)


def plain_signs() -> bool:
    """Whether the user asks for ASCII, by the locale C; Python itself writes UTF-8 then."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return locale in ("C", "POSIX")


def in_locale(text: str, *, err: bool) -> str:
    """The text; in the locale C with ASCII for the signs in _PLAIN, unless standard output is a file or pipe."""
    return text.translate(_PLAIN) if plain_signs() and (err or sys.stdout.isatty()) else text


def echo(text: object, *, nl: bool = True, err: bool = False) -> None:
    """Print a text on standard output or standard error, with control characters escaped."""
    write(in_locale(escape_controls(str(text)), err=err), nl=nl, err=err)


def write(text: str, *, nl: bool = True, err: bool = False, color: bool | None = None) -> None:
    """Write a text, to standard error without secrets. Write errors do not stop a command.

    Output after a failed write is dropped. `lost_output` reports at the end that standard output failed.
    """
    with ExitStack() as stack:
        for line in _below:
            stack.enter_context(line())
        try:
            click.echo(without_secrets(without_typed(text)) if err else text, nl=nl, err=err, color=color)
        except OSError as error:
            with open(os.devnull, "wb") as null:  # noqa: PTH123 (pathlib would be imported for it)
                os.dup2(null.fileno(), (sys.stderr if err else sys.stdout).fileno())
            if not err:
                _lost.append(error)


def lost_output() -> SifmodError | None:
    """The error if standard output is incomplete; None if it is complete, or the reader closed the pipe (`| head`)."""
    lost = [error for error in _lost if not isinstance(error, BrokenPipeError)]
    _lost.clear()
    if not lost:
        return None
    hint = "what the command has changed stays changed; `sifmod log` shows every change"
    return SifmodError(f"the output cannot be written: {reason(lost[0])}", hint)


def say(text: str) -> None:
    """Print a message on one line on standard error, in EasyBuild's style (`== …`)."""
    echo(f"== {one_line(text)}", err=True)


def quiet(text: str) -> None:
    """Print nothing, for `--quiet`."""


def ask(about: str, question: str, *, default: bool = False) -> bool | None:
    """Print a text and ask a question; whether the answer is yes, or None without a terminal or an answer."""
    return _answer(about, lambda: click.confirm(question, default=default, err=True))


def choose(about: str, question: str, choices: Sequence[str]) -> str | None:
    """Print a text with the choices and ask which; None without a terminal or an answer."""
    return _answer(f"{about} {', '.join(choices)}", lambda: click.prompt(question, type=Words(choices), err=True))


def _answer(about: str, prompt: Callable[[], Answer]) -> Answer | None:
    if not sys.stdin.isatty():
        return None
    if about:
        say(about)
    try:
        return prompt()
    except click.Abort as end:
        if not isinstance(end.__context__, EOFError):
            raise KeyboardInterrupt from None
        write("", err=True)  # the error begins a line
        return None
    except OSError:  # the question would not be visible
        return None


def print_json(data: object) -> None:
    """Print a result as JSON on standard output; a later error is then not printed there."""
    click.get_current_context().obj.answered = True  # before the output, of which a part may be written
    write(without_typed(json_text(data)))


def json_text(data: object) -> str:
    """A result, or several, as JSON in the form of all commands."""
    import json

    return json.dumps(in_json(data), indent=2, sort_keys=True)


def show_error(message: str, hint: str = "") -> None:
    """Print a message and, after a blank line, its hint to standard error; coloured on a terminal without NO_COLOR."""
    color = False if os.environ.get("NO_COLOR") else None
    text = in_locale(escape_controls(message), err=True)
    write(f"{click.style('error:', fg='red', bold=True)} {text}", err=True, color=color)
    if hint:
        write(
            f"\n{click.style('hint:', fg='cyan')} {in_locale(escape_controls(hint), err=True)}", err=True, color=color
        )


def print_rows(rows: Sequence[Sequence[str]], header: Sequence[str] = (), most: int = 0, width: int = 0) -> None:
    """Print rows as aligned columns on standard output, without trailing blanks, below the `header`.

    Lines longer than `most` are cut. If the columns are wider than `width`, a long first cell, such as a module's name,
    is whole on a line of its own, above the rest of its row. 0 is no limit.
    """
    cells = [[one_line(cell) for cell in row] for row in ([header, *rows] if header and rows else rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    if width and sum(widths) + 2 * len(widths[1:]) > width:
        widths[0] = max(min(widths[0], _FIRST), width - sum(widths[1:]) - 2 * len(widths[1:]))
    for row in cells:
        if len(row[0]) > widths[0]:
            echo(row[0])
            row[0] = ""
        line = "  ".join(cell.ljust(column) for cell, column in zip(row, widths, strict=True)).rstrip()
        echo(f"{line[: most - 1]}…" if most and len(line) > most else line)


def terminal_width() -> int:
    """The width of the terminal; 0 if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return 0
    import shutil  # it takes long

    return shutil.get_terminal_size().columns


def hanging(start: str, text: str, width: int) -> list[str]:
    """The lines of a text behind `start`, at most `width` wide with words whole; 0 means one line."""
    if not width:
        return [start + one_line(text)]
    import textwrap

    below = " " * (len(start) if 2 * len(start) <= width else 5)
    wrapper = textwrap.TextWrapper(width, start, below, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(one_line(text))


def print_origins(origins: "Iterable[Origin]") -> None:
    """Print keys, values (- for none) and their origins; the origin of a long value is below the value, in full."""
    rows = [
        (one_line(key), "-" if value is None else one_line(value), one_line(origin)) for key, value, origin in origins
    ]
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
    """A number with its noun: 1 image, 2 images."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
