"""A command: a function of one frozen value, whose fields are its arguments and options."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, FrozenInstanceError
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, TypeVar, dataclass_transform

import click

from sifmod.cli.command_help import Command, CommandGroup
from sifmod.cli.output import Words
from sifmod.config.option import ONE_OR_MORE, TABLE, Option, Word, option_of
from sifmod.secret import secret_parts

if TYPE_CHECKING:
    from datetime import date

Given = TypeVar("Given", bound="Options")


class _OwnPath(click.Path):
    """A path of this machine, not a URL and not an empty text, which would be the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; expected a path", param, ctx)
        if secret_parts((str(value),)):
            self.fail(f"expected a path, not a URL, got {value}", param, ctx)
        return super().convert(value, param, ctx)


class _Text(click.types.StringParamType):
    """A text that is not empty: `-o "$unset"` is a mistake, and not a command without `-o`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; expected a value", param, ctx)
        return super().convert(value, param, ctx)


_PATH, _TEXT = _OwnPath(path_type=Path), _Text()


class Argument:
    """A positional argument."""

    def __init__(self, default: object, **attributes: Any) -> None:
        self.default, self.attributes = default, attributes


def argument(metavar: str | None = None, kind: Any = str, *, default: Any = MISSING, many: bool = False) -> Any:
    """A field that is an argument, required without a `default`. With `many` it takes any number of words."""
    return Argument(default, metavar=metavar, type={Path: _PATH, str: _TEXT}.get(kind, kind), nargs=-1 if many else 1)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(argument,))
class Options:
    """The arguments and options of a command.

    For mypy its subclasses are frozen dataclasses. `dataclasses` would compile methods for each, which delays TAB and
    `list`.
    """

    def __init__(self, **given: object) -> None:
        values = {name: one.default if isinstance(one, Argument) else one for name, one in fields(type(self)).items()}
        if wrong := given.keys() - values.keys() or {name for name in values if (values | given)[name] is MISSING}:
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(wrong))}")
        vars(self).update(values | given)

    def __setattr__(self, name: str, value: object) -> Never:
        raise FrozenInstanceError(name)


def fields(given: type[Options]) -> dict[str, object]:
    """The fields of options, those of its bases first, with their defaults, the value of `argument`, or MISSING."""
    bases = [vars(base) for base in reversed(given.__mro__) if issubclass(base, Options)]
    return {name: base.get(name, MISSING) for base in bases for name in base.get("__annotations__", ())}


def command(
    words: str, given: type[Given], prints: Callable[[], object] | None = None
) -> Callable[[Callable[[Given], int | None]], Command]:
    """Make a function the command of these words, which `prints` a result of this type with `--json` if it succeeds.

    The function takes an instance of `given`. Each field of `given` is an argument if `argument` made it, else the
    option with its name in config/option.py. A field with a default is optional.
    """

    def made(function: Callable[[Given], int | None]) -> Command:
        def run(**typed: Any) -> int | None:
            return function(given(**{name: value for name, value in typed.items() if value is not None}))

        found = Command(words.split()[-1], callback=run, params=parameters(words, given), help=function.__doc__)
        found.prints = prints
        return found

    return made


def group(name: str, text: str, *commands: click.Command) -> CommandGroup:
    """A command that stands before others, as `site` before `show`."""
    return CommandGroup(name, help=text, commands=commands)


def parameters(words: str, given: type[Options]) -> list[click.Parameter]:
    """The parameters for click: the arguments, then the options in the order of the table."""
    arguments = {name: one for name, one in fields(given).items() if isinstance(one, Argument)}
    options = {option_of(words, name): one for name, one in fields(given).items() if name not in arguments}
    ordered = sorted(options, key=TABLE.index)
    return [*starmap(_argument, arguments.items()), *(_option(one, options[one]) for one in ordered)]


def typed_again(words: str, given: Options) -> tuple[str, ...]:
    """The given options for the same command in its job: without those that submit, and with absolute paths."""
    found: list[str] = []
    for name, value in vars(given).items():
        if isinstance(fields(type(given))[name], Argument) or (option := option_of(words, name)).submits:
            continue
        spelled = option.spellings[-1]
        if option.type == "flag":
            found += [spelled] if value else []
        else:
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            texts = (each.absolute() if isinstance(each, Path) else option.in_full(str(each)) for each in values)
            found += [f"{spelled}={text}" for text in texts]
    return tuple(found)


def _argument(name: str, one: Argument) -> click.Argument:
    return click.Argument([name], required=one.default is MISSING, **one.attributes, **_default(one.default))


def _option(option: Option, default: object) -> click.Option:
    optional_value = {"is_flag": False, "flag_value": ""} if option.type == "text or nothing" else {}
    return click.Option(
        [*option.spellings, option.name],
        type=_type(option),
        required=default is MISSING,
        multiple=option.many,
        metavar=option.metavar,
        help=option.help,
        hidden=not option.help,
        **_default(default),
        **({"is_flag": True} if option.type == "flag" else optional_value),
    )


def _default(value: object) -> dict[str, Any]:
    return {} if value in (MISSING, None, False, (), "") else {"default": value}


def _type(option: Option) -> Any:
    match option.type:
        case tuple() as words:
            return Words(words)
        case range() as numbers:
            return click.IntRange(numbers.start, None if numbers is ONE_OR_MORE else numbers.stop - 1)
        case word:
            return _TYPES[word]


def _day(text: str) -> "date":
    from sifmod.config.stack import day

    return day(text)


def _read(pattern: str, expected: str, read: Callable[[str], object] = str) -> "click.ParamType[object]":
    def convert(text: object) -> object:
        with suppress(ValueError):
            if re.fullmatch(pattern, str(text)):
                return read(str(text))
        raise click.BadParameter(f"expected {expected}, got {text!r}")

    return click.types.FuncParamType(convert)


_WALLTIME = r"[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){1,2})?|(?i:UNLIMITED|INFINITE)"
_TYPES: dict[Word, Any] = {
    **dict.fromkeys(("text", "number", "place", "places", "site", "reference"), _TEXT),
    "text or nothing": click.STRING,
    "flag": click.BOOL,
    "whole": click.INT,
    "file": _PATH,
    "amount": _read(r"[0-9]+(\.[0-9]*)?", "a number such as 14 or 2.5", float),
    "day": _read("[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day of 2000 to 2999, such as 2027-03-31", _day),
    "walltime": _read(_WALLTIME, "a time such as 02:00:00"),
    "name": _read(r"[A-Za-z0-9][A-Za-z0-9._,+@-]*", "a name such as project_1"),
}
