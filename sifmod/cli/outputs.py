"""The results of each command with `--json`, and their JSON Schema."""

from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin

import click
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from sifmod.actions.hooks import FetchHook, InstallHook, RetireHook
from sifmod.cli.command_help import Command, CommandGroup
from sifmod.cli.commands import COMMANDS
from sifmod.cli.main import cli
from sifmod.errors import Error
from sifmod.result import BESIDE, IF_ANY, OR_NULL, Described, fields, has_fields, key_of, marks, pairs, text_of


@cache
def outputs() -> dict[str, Any]:
    """The type of what each command prints with `--json` if it succeeds; if it fails as a whole, it prints an Error."""
    found: dict[str, Any] = {}
    for name in COMMANDS:
        top = cli.get_command(click.Context(cli), name)
        below = top.commands.items() if isinstance(top, CommandGroup) else ()
        for words, each in ((name, top), *((f"{name} {verb}", one) for verb, one in below)):
            if isinstance(each, Command) and each.prints:
                found[words] = each.prints()
    return found


def output_schema(verb: str) -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) of a command's `--json` output; raises KeyError for a command without."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sifmod {verb} --json",
        **TypeAdapter(_shape(outputs()[verb] | Error)).json_schema(),
    }


def hook_schema() -> dict[str, Any]:
    """The schema of a hook's standard input."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "the standard input of a hook",
        **TypeAdapter(InstallHook | FetchHook | RetireHook).json_schema(),
    }


def _shape(kind: Any) -> Any:
    """The type, for pydantic, of what values of `kind` are in JSON."""
    choices = get_args(kind)
    if text := text_of(kind):
        return text
    match get_origin(kind):
        case origin if origin is Annotated:
            return reduce(_marked, choices[1:], _shape(choices[0]))
        case origin if origin in (Union, UnionType):
            return reduce(or_, map(_shape, choices))
        case origin if origin is tuple and pairs(kind):
            return dict[str, str]
        case origin if origin in (tuple, list):
            return list[_shape(choices[0])]  # type: ignore[misc]
    return _object(kind) if has_fields(kind) else kind


def _marked(kind: Any, mark: object) -> Any:
    if mark == OR_NULL:
        return kind | None
    return Annotated[kind, mark] if isinstance(mark, Described) else kind


@cache
def _object(kind: Any) -> Any:
    """The type of an object in JSON: a TypedDict, or a union of one for each form."""
    made = []
    for name, form in _forms(kind):
        one: Any = TypedDict(f"{kind.__name__}{name}", form)  # type: ignore[misc]
        one.__doc__ = kind.__doc__
        made.append(one)
    return reduce(or_, made)


def _forms(kind: Any) -> list[tuple[str, dict[str, Any]]]:
    """The forms of an object in JSON, each with a name and its fields: one for each alternative in a `Beside` field."""
    forms: list[tuple[str, dict[str, Any]]] = [("", {})]
    for name, one in fields(kind).items():
        if BESIDE in marks(one):
            forms = [(of + more, known | beside) for of, known in forms for more, beside in _beside(get_args(one)[0])]
        else:
            forms = [(of, {**known, key_of(name, one): _field(one)}) for of, known in forms]
    return forms


def _beside(kind: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    several = get_args(kind)
    for choice in several or (kind,):
        if choice is NoneType:
            yield "", {}
        else:
            yield from ((f"{choice.__name__ if several else ''}{more}", form) for more, form in _forms(choice))


def _field(kind: Any) -> Any:
    if IF_ANY not in marks(kind):
        return _shape(kind)
    value, *more = get_args(kind)
    known = reduce(or_, (_shape(one) for one in get_args(value) if one is not NoneType))
    return NotRequired[reduce(_marked, more, known)]
