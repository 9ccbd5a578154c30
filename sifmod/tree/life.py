"""Lifecycle of modules: the default version, and hidden, deprecated and retired ones.

It is kept in one file per name, outside of the generations, so that it applies to every generation of a module.
Everything else is derived from it: the modulerc files, and the notices that a modulefile reads at load.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, NamedTuple

from sifmod.config.name import ModuleName, is_part
from sifmod.errors import InstallError
from sifmod.result import Beside, Described, OrNull
from sifmod.secret import cut
from sifmod.tree.durable import is_refused, names, read
from sifmod.tree.layout import Layout

_LONGEST = 500  # characters in a message
_UNREAD = "make it a regular file that you can read, or move it away"


def today() -> date:
    """The day, in UTC like all days here, because staff and users may be in different time zones."""
    return datetime.now(UTC).date()


def begins(day: date) -> int:
    """The start of a day in seconds since 1970, which Tcl compares a thousand times faster than it formats a date."""
    return int(datetime.combine(day, time(), UTC).timestamp())


class Deprecated(NamedTuple):
    """A module that will go: a load on a terminal says so from `since` on, and after `until` it does not load."""

    since: date
    until: Annotated[date | None, Described("the last day on which the module loads")] = None
    message: str = ""


class Retired(NamedTuple):
    """A module that is hidden at once, and from `since` on does not load."""

    since: date
    successor: Annotated[OrNull[str], Described("the module to use instead, with or without a version")] = ""
    message: str = ""


class Life(NamedTuple):
    """The decisions of staff about one module."""

    hidden: bool = False
    deprecated: Deprecated | None = None
    retired: Retired | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def refused_from(self) -> date | None:
        """The first day on which the module does not load, or None."""
        days = [self.retired.since] if self.retired else []
        if self.deprecated and self.deprecated.until and self.deprecated.until < date.max:
            days.append(self.deprecated.until + timedelta(days=1))
        return min(days, default=None)


class ModuleLife(NamedTuple):
    """What is decided about a module, whichever of its generations is live."""

    life: Beside[Life]
    default: bool


class NameLife(NamedTuple):
    """The decisions about all modules of one name, by version; a missing version has no decisions."""

    default: str | None = None
    versions: Mapping[str, Life] = {}

    def of(self, version: str) -> Life:
        return self.versions.get(version, Life())

    def of_module(self, version: str) -> ModuleLife:
        return ModuleLife(self.of(version), self.default == version)

    def with_life(self, version: str, life: Life) -> "NameLife":
        return NameLife(self.default, {**self.versions, version: life})

    def without(self, version: str) -> "NameLife":
        """The decisions without those about a version, which is no longer the default either."""
        rest = {other: life for other, life in self.versions.items() if other != version}
        return NameLife(None if self.default == version else self.default, rest)


def read_life(layout: Layout, name: str) -> NameLife:
    """The decisions about a name. Raises InstallError if the file is closed or invalid, OSError if the disk fails."""
    path = layout.life(name)
    try:
        return from_json(read(path, top=layout.prefix))
    except (FileNotFoundError, NotADirectoryError):
        return NameLife()
    except OSError as error:
        if is_refused(error):  # a link, a pipe
            raise InstallError(f"{path} cannot be read: {error.strerror or error}", _UNREAD) from error
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InstallError(
            f"{path} is invalid: {error}",
            "move it away, then set again what is the default, hidden, deprecated or retired",
        ) from error


def decided_names(layout: Layout) -> set[str]:
    """The names with decisions, none if they are closed to this user. Raises OSError if the disk fails."""
    try:
        return set(filter(is_part, names(layout.prefix / "life", layout.prefix)))
    except OSError as error:
        if is_refused(error):
            return set()
        raise


def notices(name: str, life: NameLife) -> Iterator[tuple[str, str]]:
    """Each version with notices, and the text of its notices, which its modulefile reads at load.

    A line is a time (seconds since 1970), the action from then on (`say` or `refuse`) and its text; the last one that
    applies counts.
    """
    for version, one in life.versions.items():
        module = ModuleName(name, version)
        lines = []
        if one.deprecated:
            lines.append(f"{begins(one.deprecated.since)} say {deprecation(module, one)}\n")
        if one.refused_from:
            lines.append(f"{begins(one.refused_from)} refuse {retirement(module, one)}\n")
        if lines:
            yield version, "".join(lines)


def deprecation(module: ModuleName, life: Life) -> str:
    said, until = life.deprecated, life.refused_from
    ends = f" and loads until {until - timedelta(days=1)}" if until else ""
    instead = said.message if said and said.message else _instead(life)
    return f"{module} is deprecated{ends}{f': {instead}' if instead else ''}"


def retirement(module: ModuleName, life: Life) -> str:
    """The message that replaces a load of a retired module."""
    said = (life.retired and life.retired.message) or (life.deprecated and life.deprecated.message) or ""
    reasons = [text for text in (_instead(life), said) if text]
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{module} was retired on {life.refused_from}{why}"


def notice(module: ModuleName, life: Life, on: date) -> str:
    """The notice or refusal at load on that day, or that the module is hidden; "" otherwise."""
    if life.refused_from and life.refused_from <= on:
        return retirement(module, life)
    if life.deprecated and life.deprecated.since <= on:
        return deprecation(module, life)
    return f"{module} is hidden" if life.hidden or life.retired else ""


def _instead(life: Life) -> str:
    return f"use {life.retired.successor}" if life.retired and life.retired.successor else ""


def format_life(version: str, life: NameLife, on: date) -> str:
    """What the decisions about one version mean on that day, for a row of `list`; "" for nothing."""
    one = life.of(version)
    found = ["default"] if life.default == version else []
    day = one.refused_from
    if day and day <= on:
        found.append(f"retired since {day}")
    else:
        if one.hidden or one.retired:
            found.append("hidden")
        if day:
            found.append(f"retires {day}")
        if one.deprecated and one.deprecated.since <= on:
            found.append("deprecated")
    if one.retired and one.retired.successor:
        found.append(f"use {one.retired.successor}")
    return ", ".join(found)


def to_json(life: NameLife) -> str:
    """The file's text; empty without decisions."""
    versions = {version: _decided(one) for version, one in sorted(life.versions.items()) if one != Life()}
    if not versions and life.default is None:
        return ""
    return json.dumps({"format": 1, "default": life.default, "versions": versions}, indent=1, default=str) + "\n"


def _decided(life: Life) -> dict[str, object]:
    """The decisions of `life`, without empty ones, as data for JSON."""
    texts = {key: one._asdict() for key, one in (("deprecated", life.deprecated), ("retired", life.retired)) if one}
    return {key: value for key, value in {**life._asdict(), **texts}.items() if value}


def from_json(data: bytes) -> NameLife:
    """Parse a file from any user. Raises ValueError, TypeError, KeyError, AttributeError or RecursionError."""
    found = json.loads(data)
    if found["format"] != 1:
        raise ValueError(f"its format is {found['format']!r}")
    versions = {_part(version): _life(**one) for version, one in found["versions"].items()}
    return NameLife(None if found["default"] is None else _part(found["default"]), versions)


def _life(*, hidden: object = False, deprecated: Any = None, retired: Any = None, labels: Any = ()) -> Life:
    if type(hidden) is not bool:
        raise TypeError("hidden is neither true nor false")
    return Life(
        hidden,
        deprecated and _deprecated(**deprecated),
        retired and _retired(**retired),
        tuple((checked_text(key), checked_text(value)) for key, value in labels),
    )


def _deprecated(*, since: str, until: str | None, message: str) -> Deprecated:
    return Deprecated(date.fromisoformat(since), until and date.fromisoformat(until), checked_text(message))  # type: ignore[arg-type]


def _retired(*, since: str, successor: str, message: str) -> Retired:
    if (first := date.fromisoformat(since)) == date.min:  # `refused_from`, the day before which is the last one
        raise ValueError(f"no day is before {first}")
    return Retired(first, checked_text(successor), checked_text(message))


def checked_text(text: str) -> str:
    """The text, unchanged. Raises ValueError unless it is one printable line of at most 500 characters."""
    if not isinstance(text, str) or not text.isprintable() or len(text) > _LONGEST:
        shown = cut(str(text), 60)
        raise ValueError(f"a text must be one line of at most {_LONGEST} printable characters, got {shown!r}")
    return text


def _part(text: str) -> str:
    if not isinstance(text, str) or not is_part(text):
        raise ValueError(f"{text!r} is not a version")
    return text
