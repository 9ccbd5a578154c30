"""Content: an untrusted JSON object, limited in size, with values that are accessed by their type."""

import json
from collections.abc import Iterator, Mapping

from sifmod.errors import ImageError
from sifmod.secret import cut

LARGEST = 4 << 20  # bytes of a manifest, an index or a config; registries refuse larger ones too


class Content:
    """A JSON object called `name` in messages. A value of another type than the requested one raises ImageError."""

    def __init__(self, name: str, content: Mapping[str, object]) -> None:
        self.name = name
        self._content = content

    def __contains__(self, key: str) -> bool:
        return self._content.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def text(self, key: str) -> str:
        """The string at `key`; "" if missing. A lone surrogate is replaced by U+FFFD, as in Go."""
        return self._text(key, self._content.get(key))

    def number(self, key: str) -> int:
        """The integer at `key`; -1 if missing."""
        value = self._content.get(key)
        if value is None:
            return -1
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key, "a whole number")
        return value

    def child(self, key: str) -> "Content":
        """The object at `key`; empty if missing."""
        return self._object(key, self._content.get(key))

    def children(self, key: str) -> tuple["Content", ...]:
        return tuple(self._object(f"{key}[{at}]", value) for at, value in enumerate(self._list(key)))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._text(f"{key}[{at}]", value) for at, value in enumerate(self._list(key)))

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """The items of the object of strings at `key`, sorted; empty if missing."""
        found = self.child(key)
        return tuple(sorted((_clean(name), found.text(name)) for name in found))

    def wrong(self, key: str, expected: str) -> ImageError:
        """The error for a value at `key` that is not `expected`."""
        return ImageError(f"{self.name}: {plain(key)} is not {expected}")

    def _list(self, key: str) -> list[object]:
        value = self._content.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value or []

    def _object(self, key: str, value: object) -> "Content":
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Content(f"{self.name}: {plain(key)}", value or {})

    def _text(self, key: str, value: object) -> str:
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a string")
        return _clean(value or "")


def read_content(raw: bytes, name: str) -> Content:
    """The JSON object in `raw`. Raises ImageError for anything else, and for more than LARGEST bytes."""
    if len(raw) > LARGEST:
        raise ImageError(f"{name} has more than {LARGEST} bytes, the limit for a manifest or config")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise ImageError(f"{name} is not JSON: {_start(raw)}") from None
    if not isinstance(content, dict):
        raise ImageError(f"{name} is not a JSON object: {_start(raw)}")
    return Content(name, content)


def any_object(raw: bytes) -> dict[str, object]:
    """The JSON object in `raw`; an empty one for anything else."""
    try:
        content = json.loads(raw.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def child(content: Mapping[str, object], key: str) -> dict[str, object]:
    """The object at a key of an object; an empty one for anything else."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


_LONGEST = 1 << 14  # characters of a text that are looked at


def plain(text: str) -> str:
    """One line of at most 200 printable characters, so that untrusted text cannot control a terminal.

    Without secrets, which nobody finds in a text that ends within one.
    """
    line = "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST])
    return cut(" ".join(line.split()), 200)


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _start(raw: bytes) -> str:
    return f"it starts with {cut(raw[:_LONGEST].decode('utf-8', 'replace'), 40)!r}" if raw else "it is empty"
