"""What a module says about itself, for programs. Each generation has its own, as it has its job's facts."""

import json
from dataclasses import asdict, fields

from sifmod.module.plan import Help

ABOUT = "share/about.json"
_PAIRS = ("contents", "quirks")
_TEXTS = ("docurls", "whatis")


def to_json(about: Help) -> str:
    """The text of the file `ABOUT` of a generation."""
    return json.dumps(asdict(about), indent=1, sort_keys=True) + "\n"


def from_json(text: bytes) -> Help:
    """What `to_json` gave. Raises ValueError, KeyError or TypeError for anything else: others may have written it."""
    found = json.loads(text)
    values: dict[str, object] = {}
    for name in (field.name for field in fields(Help)):
        value = found[name]
        if name in _PAIRS:
            values[name] = tuple((_text(first), _text(second)) for first, second in value)
        else:
            values[name] = tuple(map(_text, value)) if name in _TEXTS else _text(value)
    return Help(**values)  # type: ignore[arg-type]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
