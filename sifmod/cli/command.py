"""A command: a function of one frozen value, whose fields are what can be typed after it."""

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import click

from sifmod.cli.verb import Verb, VerbGroup
from sifmod.config.option import TABLE, Matching, Option, Whole, option_of

if TYPE_CHECKING:
    from datetime import date

Given = TypeVar("Given", bound="Options")
_PATH = click.Path(path_type=Path)


def argument(metavar: str | None = None, kind: Any = str, *, default: Any = MISSING, many: bool = False) -> Any:
    """A field that is typed without an option before it: a type of click, or Path; `many`: any number of words."""
    kind = _PATH if kind is Path else kind
    return field(default=default, metadata={"metavar": metavar, "type": kind, "nargs": -1 if many else 1})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(argument,))
class Options:
    """The options of a command: each class of them is a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def command(words: str, given: type[Given]) -> Callable[[Callable[[Given], int | None]], Verb]:
    """Make a function the command of these words.

    A field of `given`, which the function takes, is an argument where `argument` made it, else the option that
    config/option.py has under its name. What has a default need not be typed.
    """

    def made(function: Callable[[Given], int | None]) -> Verb:
        def run(**typed: Any) -> int | None:
            return function(given(**typed))

        return Verb(words.split()[-1], callback=run, params=parameters(words, given), help=function.__doc__)

    return made


def group(name: str, text: str, *commands: click.Command) -> VerbGroup:
    """A verb of several words."""
    return VerbGroup(name, help=text, commands=commands)


def parameters(words: str, given: type[Options]) -> list[click.Parameter]:
    """What click is to take from the command line: the arguments, then the options in the order of the table."""
    arguments = [one for one in fields(given) if one.metadata]
    options = {option_of(words, one.name): one for one in fields(given) if not one.metadata}
    ordered = sorted(options, key=TABLE.index)
    return [*map(_argument, arguments), *(_option(one, options[one]) for one in ordered)]


def typed_again(words: str, given: Options) -> tuple[str, ...]:
    """The options of a command as each element of its job has them, with paths that mean the same anywhere."""
    found: list[str] = []
    for one in fields(given):
        if one.metadata or (option := option_of(words, one.name)).submits:
            continue
        value, spelled = getattr(given, one.name), option.spellings[-1]
        if option.type == "flag":
            found += [spelled] if value else []
        else:
            values = value if isinstance(value, tuple) else (value,)
            texts = (each.absolute() if isinstance(each, Path) else option.in_full(str(each)) for each in values)
            found += [f"{spelled}={text}" for each, text in zip(values, texts, strict=True) if each is not None]
    return tuple(found)


def _argument(one: "Field[Any]") -> click.Argument:
    required = one.default is MISSING
    return click.Argument([one.name], required=required, **_default(one), **one.metadata)


def _option(option: Option, one: "Field[Any]") -> click.Option:
    optional_value = {"is_flag": False, "flag_value": ""} if option.type == "text or nothing" else {}
    return click.Option(
        [*option.spellings, one.name],
        type=_type(option),
        required=one.default is MISSING,
        multiple=option.many,
        metavar=option.metavar,
        help=option.help,
        hidden=not option.help,
        **_default(one),
        **({"is_flag": True} if option.type == "flag" else optional_value),
    )


def _default(one: "Field[Any]") -> dict[str, Any]:
    return {} if one.default in (MISSING, None, False, ()) else {"default": one.default}


def _type(option: Option) -> Any:
    match option.type:
        case Whole(None, None):
            return click.INT
        case Whole(least, most):
            return click.IntRange(least, most)
        case Matching(pattern, example):
            return _read(lambda text: _matching(text, pattern), f"a value such as {example}")
        case "amount":
            return _read(_amount, "0 or more")
        case "day":
            return _read(_day, "a day such as 2027-03-31")
        case "flag":
            return click.BOOL
        case "file":
            return _PATH
    return click.Choice(option.type) if isinstance(option.type, tuple) else click.STRING


def _read(read: Callable[[str], object], expected: str) -> "click.ParamType[object]":
    def convert(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(f"expected {expected}, got {text!r}") from error

    return click.types.FuncParamType(convert)


def _matching(text: str, pattern: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError
    return text


def _amount(text: str) -> float:
    if not (value := float(text)) >= 0:  # nan is not
        raise ValueError
    return value


def _day(text: str) -> "date":
    from datetime import date

    return date.fromisoformat(_matching(text, "[0-9]{4}-[0-9]{2}-[0-9]{2}"))
