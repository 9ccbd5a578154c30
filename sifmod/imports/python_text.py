"""The text methods and formats that constants use; none of them can create a huge text."""

import re
import string
from collections.abc import Callable, Mapping
from typing import Any

Scalar = str | int | float | None
Python = Scalar | tuple["Python", ...] | dict[Scalar, "Python"]
Spend = Callable[[int], None]

MAX_NUMBER = 2**63
ITEM = 8  # letters that looking at one item of a list counts for
_SPEC = re.compile(r"[<>^]?[ 0+-]?[0-9]{0,3}(?:\.[0-9]{1,2})?[sdfgx]?")
_PERCENT = re.compile(r"%(?:\([A-Za-z_][A-Za-z0-9_]*\))?[ 0+-]?[0-9]{0,3}(?:\.[0-9]{1,2})?[sdrfgx]|%%")
_PADDED = 1100  # letters that a width and a precision can add


class UnknownError(Exception):
    """A value is unknown without running the file; the message is the reason."""


def scalar(value: "Python") -> Scalar:
    """A text, a number of ordinary size, True, False or None; raises UnknownError for anything else."""
    if isinstance(value, tuple | dict):
        raise UnknownError("a list or a map where a text or a number is needed is not evaluated")
    if isinstance(value, int | float) and not -MAX_NUMBER < value < MAX_NUMBER:
        raise UnknownError("a number this large is not evaluated")
    return value


def formatted(value: Scalar, spec: str, conversion: str) -> str:
    """The text of `{value!conversion:spec}`; raises UnknownError for a format that is not supported."""
    if not _SPEC.fullmatch(spec) or conversion not in ("", "s", "r"):
        raise UnknownError(f"the format '{conversion and f'!{conversion}'}:{spec[:40]}' is not evaluated")
    return format(repr(value) if conversion == "r" else str(value) if conversion == "s" else value, spec)


def percent(text: str, value: "Python", spend: Spend) -> str:
    """The text of `text % value`, whose length `spend` counts; raises UnknownError for an unsupported format."""
    marks = _PERCENT.findall(text)
    if "%" in _PERCENT.sub("", text):
        raise UnknownError("this % format is not evaluated")
    given: Any = value
    spend(ITEM * len(value) if isinstance(value, dict | tuple) else 0)
    if isinstance(value, dict):
        given = {key: scalar(inner) for key, inner in value.items()}
        longest = max((len(str(inner)) for inner in given.values()), default=0)
    else:
        given = tuple(map(scalar, value if isinstance(value, tuple) else (value,)))
        longest = max((len(str(inner)) for inner in given), default=0)
    spend(len(text) + len(marks) * (longest + _PADDED if marks else 0))
    return str(text % given)


def _replace(spend: Spend, text: str, old: str, new: str) -> str:
    spend(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new)


def _join(spend: Spend, text: str, parts: tuple[str, ...]) -> str:
    if not isinstance(parts, tuple):
        raise UnknownError("join of anything but a list is not evaluated")
    spend(len(parts) * (len(text) + ITEM))
    spend(sum(map(len, parts)))
    return text.join(parts)


def _format(spend: Spend, text: str, *given: "Python", named: Mapping[str, Scalar]) -> str:
    done: list[str] = []
    counted = 0
    for literal, name, spec, conversion in string.Formatter().parse(text):
        done.append(literal)
        if name is None:
            continue
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*|[0-9]{0,3}", name):
            raise UnknownError(f"the field {{{name[:40]}}} is not evaluated")
        if not name:
            name, counted = str(counted), counted + 1
        value = given[int(name)] if name.isdecimal() else named[name]
        done.append(formatted(scalar(value), spec or "", conversion or ""))
        spend(len(done[-1]) + _PADDED)
    spend(sum(map(len, done)))
    return "".join(done)


def _simple(name: str) -> Callable[..., "Python"]:
    method: Callable[..., Any] = getattr(str, name)

    def run(spend: Spend, text: str, *given: "Python") -> "Python":
        spend(len(text))
        result: Any = method(text, *given)
        return tuple(result) if isinstance(result, list) else result

    return run


METHODS: Mapping[str, Callable[..., "Python"]] = {
    "replace": _replace,
    "join": _join,
    "format": _format,
    **{
        name: _simple(name)
        for name in (
            *("split", "rsplit", "splitlines", "partition", "rpartition", "strip", "lstrip", "rstrip"),
            *("lower", "upper", "title", "capitalize", "removeprefix", "removesuffix"),
            *("startswith", "endswith", "count", "find"),
        )
    },
}
