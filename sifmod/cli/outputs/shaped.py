"""A value in the shape that a verb prints."""

from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

Shape = TypeVar("Shape")


def shaped(shape: type[Shape], value: object, /, **more: object) -> Shape:
    """The keys of a TypedDict from the attributes of `value` that are called so, or from `more`.

    What is in a value is shaped too. Names, paths and days become texts, and pairs a map where the shape has one; an
    empty text is null where the shape allows null. A key that need not be there is left out where neither has it.
    """
    found: Any = {}
    for key, kind in _kinds(shape).items():  # type: ignore[arg-type]
        if key in more:
            found[key] = _plain(kind, more[key])
        elif key in shape.__required_keys__ or hasattr(value, key):  # type: ignore[attr-defined]
            found[key] = _plain(kind, getattr(value, key))
    return found  # type: ignore[no-any-return]


@cache
def _kinds(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


def _plain(kind: Any, value: Any) -> Any:
    choices = get_args(kind)
    if NoneType in choices:
        return None if value is None or value == "" else _plain(choices[0], value)
    if is_typeddict(kind):
        return value if isinstance(value, dict) else shaped(kind, value)
    if get_origin(kind) is list:
        return [_plain(choices[0], one) for one in value]
    if get_origin(kind) is dict:
        return dict(value)
    return str(value) if kind is str else value
