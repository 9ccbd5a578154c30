"""A result: a frozen value that a command returns. Each field has a description for `--json` and its schema.

One name has one meaning and one type in every command. Unknown values are null; an empty list is printed.
"""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints


class Described:
    """The description and limits of a value, with pydantic's names (`ge`, `pattern`), but without pydantic."""

    def __init__(self, description: str, **limits: object) -> None:
        """`description` says in a few words what the value is; `limits` are those of a text or a number."""
        self._description, self._limits = description, limits

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        schema = handler(source)
        (schema["schema"] if schema["type"] == "nullable" else schema).update(self._limits)
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return handler(schema) | {"description": self._description}


class Named(NamedTuple):
    """The name of a field in JSON, if it differs from the attribute's name."""

    name: str


INTERNAL, OR_NULL, IF_ANY = "not in JSON", "null if it is empty", "omitted if it is None"
BESIDE = "its fields are merged with the others; none if it is None"
Value = TypeVar("Value")
Internal = Annotated[Value, INTERNAL]
OrNull = Annotated[Value, OR_NULL]
IfAny = Annotated[Value | None, IF_ANY]
Beside = Annotated[Value, BESIDE]

ModuleText = Annotated[str, Described("name and version of a module, Name/Version", pattern="^[^/]+/[^/]+$")]
PathText = Annotated[str, Described("absolute path", pattern="^/")]
Sha256 = Annotated[str, Described("SHA-256, hexadecimal", pattern="^[0-9a-f]{64}$")]
Digest = Annotated[str, Described("digest as OCI writes it, sha256:…", pattern="^[a-z0-9]+:[0-9a-f]+$")]
Size = Annotated[int, Described("bytes", ge=0)]
Number = Annotated[int, Described("number of a generation", ge=0)]
Time = Annotated[
    str,
    Described("time in UTC, as ISO 8601 has it", pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"),
]
Day = Annotated[str, Described("day, as ISO 8601 has it", pattern=r"^\d{4}-\d\d-\d\d$")]
Arch = Annotated[str, Described("architecture: amd64, arm64, …")]
Source = Annotated[str, Described("a source as in an easyconfig, or a path")]
Easyconfig = Annotated[str, Described("the path of an easyconfig, or the name that was typed")]
Variant = Annotated[str, Described("variant of an easyconfig; null without one")]
Hint = Annotated[str, Described("the next step")]
Notes = Annotated[tuple[str, ...], Described("notes for the user")]

_TEXTS: Mapping[Any, Any] = {Path: PathText, date: Day}


def text_of(kind: Any) -> Any:
    """The annotated text that stands for a path, a day or a type with IN_JSON; None for any other `kind`."""
    return _TEXTS.get(kind) or getattr(kind, "IN_JSON", None)


def has_fields(kind: Any) -> bool:
    """Whether values of this type are objects in JSON."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


@cache
def fields(kind: Any) -> Mapping[str, Any]:
    """The type of each field in JSON by its attribute: fields, then Annotated properties, without internal ones."""
    found = {name: one for name, one in get_type_hints(kind, include_extras=True).items() if name != "IN_JSON"}
    for name, member in (one for base in reversed(kind.__mro__) for one in vars(base).items()):
        returned = member.fget.__annotations__.get("return") if isinstance(member, property) and member.fget else None
        if get_origin(returned) is Annotated:
            found[name] = returned
    return {name: one for name, one in found.items() if INTERNAL not in marks(one)}


def key_of(name: str, kind: Any) -> str:
    """The JSON name of a field with this name and type."""
    return next((mark.name for mark in marks(kind) if isinstance(mark, Named)), name)


def marks(kind: Any) -> tuple[object, ...]:
    """The metadata of an Annotated type; () for any other type."""
    return getattr(kind, "__metadata__", ())


def in_json(value: object) -> Any:
    """A result, or several of them, as data for JSON; anything else is unchanged."""
    if not has_fields(value):
        return [in_json(one) for one in value] if isinstance(value, list | tuple) else value
    found: dict[str, Any] = {}
    kind: Any = type(value)
    for name, key, convert, how in _converters(kind):
        one = convert(getattr(value, name))
        if BESIDE in how:
            found |= one or {}
        elif one is not None or IF_ANY not in how:
            found[key] = one
    return found


@cache
def _converters(kind: Any) -> tuple[tuple[str, str, Callable[[Any], Any], tuple[object, ...]], ...]:
    """For each field its key in JSON, the conversion of its value, and its marks."""
    return tuple((name, key_of(name, one), _converter(one), marks(one)) for name, one in fields(kind).items())


def _converter(kind: Any) -> Callable[[Any], Any]:
    choices = get_args(kind)
    match get_origin(kind):
        case origin if origin is Annotated:
            known = _converter(choices[0])
            return (lambda value: known(value) if value else None) if OR_NULL in choices[1:] else known
        case origin if origin in (Union, UnionType):
            several = [one for one in choices if one is not NoneType]
            known = _converter(several[0]) if len(several) == 1 else in_json
            return lambda value: None if value is None else known(value)
        case origin if origin is tuple and pairs(kind):
            return dict
        case origin if origin in (tuple, list):
            known = _converter(choices[0])
            return lambda values: [known(value) for value in values]
    if text_of(kind):
        return str
    return in_json if has_fields(kind) else lambda value: value


def pairs(kind: Any) -> bool:
    """Whether `kind` is a tuple of (name, text) pairs, which becomes an object in JSON."""
    return get_args(kind)[:1] == (tuple[str, str],)
