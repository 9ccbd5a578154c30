"""An Entry: what the catalogue says of one module, and what has changed since the version before."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple

from sifmod.config.name import ModuleName
from sifmod.config.version import version_key
from sifmod.module.plan import Help

Pairs = tuple[tuple[str, str], ...]
Status = Literal["current", "deprecated", "retired", "not installed"]


class LastTest(NamedTuple):
    time: str  # UTC, as ISO 8601 has it
    host: str
    passed: bool


class Change(NamedTuple):
    """A package that another version of the module has in another version; "": not at all."""

    name: str
    was: str
    now: str


class Changes(NamedTuple):
    """What is different from an earlier module of the same name for the same accelerator."""

    since: ModuleName
    packages: tuple[Change, ...]  # of those that the easyconfigs name
    others: int  # how many more are different, of those that are known


@dataclass(frozen=True)
class Entry:
    """One module, with the names that its data have in JSON; "" is what is not known, or not there."""

    module: ModuleName
    version: str  # of the easyconfig, without its versionsuffix
    accelerator: str
    arch: str
    site: str  # that it was installed for
    about: Help
    source: str  # of the image, for people
    load: tuple[str, ...]  # commands
    install: str = ""  # the command, where it is not installed
    add: str = ""  # the command that adds packages
    job_script: str = ""
    sha256: str = ""  # of the image, where it is installed
    size: int = 0  # of the image in bytes
    installed_at: str = ""  # when its generation became live; UTC, as ISO 8601 has it
    last_test: LastTest | None = None
    packages: Pairs = ()  # all that is known to be in the image; `about.contents` is the author's choice of them
    status: Status = "current"
    default: bool = False
    until: str = ""  # the last day of one that goes out of use, as ISO 8601 has it
    message: str = ""  # about its end
    successor: str = ""  # a module
    labels: Pairs = ()
    changes: Changes | None = None

    @property
    def ends(self) -> bool:
        return self.status in ("deprecated", "retired")

    @property
    def license(self) -> str:
        return self._said("License")

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(word for text in self._said("Keywords").split(",") if (word := text.strip()))

    def _said(self, key: str) -> str:
        start = f"{key}:"
        return next((line.removeprefix(start).strip() for line in self.about.whatis if line.startswith(start)), "")


def compared(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries by name, the newest version first, each with what is new in it."""
    found: list[Entry] = []
    for _, group in groupby(sorted(entries, key=_order), key=lambda one: one.module.name.casefold()):
        before: dict[str, list[Entry]] = {}
        for entry in group:
            same = before.setdefault(entry.accelerator, [])
            older = next((one for one in reversed(same) if one.version != entry.version), None)
            same.append(entry)
            found.append(replace(entry, changes=_changes(older, entry) if older else None))
    return tuple(sorted(sorted(found, key=_order, reverse=True), key=lambda one: one.module.name.casefold()))


def _order(entry: Entry) -> tuple[object, ...]:
    return entry.module.name.casefold(), version_key(entry.version), version_key(entry.module.version)


def _changes(older: Entry, newer: Entry) -> Changes | None:
    """None where they name no package that both have: then nothing can be compared.

    Two images differ in hundreds of packages: those that an author has chosen are listed, the others are counted.
    """
    was, now = dict(older.about.contents), dict(newer.about.contents)
    if not was.keys() & now.keys():
        return None
    if older.packages and newer.packages:
        was, now = dict(older.packages) | was, dict(newer.packages) | now
    changed = [name for name in sorted({*was, *now}, key=str.casefold) if was.get(name) != now.get(name)]
    chosen = dict((*older.about.contents, *newer.about.contents))
    listed = tuple(Change(name, was.get(name, ""), now.get(name, "")) for name in changed if name in chosen)
    return Changes(older.module, listed, len(changed) - len(listed))
