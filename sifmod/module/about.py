"""What a module says about itself, for programs: kept in each generation with the facts of its job."""

import json
from dataclasses import fields

from sifmod.module.plan import Help

_PAIRS = ("contents", "quirks", "extensions")
_TEXTS = ("docurls", "whatis")


def from_json(text: bytes) -> Help:
    """What `job.to_json` was given. Raises ValueError, KeyError or TypeError for anything else: others may write it."""
    found = json.loads(text)["about"]
    values: dict[str, object] = {}
    for name in (field.name for field in fields(Help)):
        value = found[name]
        if value is None and name == "extensions":
            values[name] = None
        elif name in _PAIRS:
            values[name] = tuple((_text(first), _text(second)) for first, second in value)
        else:
            values[name] = tuple(map(_text, value)) if name in _TEXTS else _text(value)
    return Help(**values)  # type: ignore[arg-type]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
