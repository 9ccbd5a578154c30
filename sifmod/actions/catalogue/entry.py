"""An Entry: the catalogue's data for one module, and the changes since its previous version."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

from sifmod.config.name import ModuleName
from sifmod.config.version import release_key, version_key
from sifmod.module.plan import Help
from sifmod.result import Arch, Described, Internal, ModuleText, OrNull, Sha256, Size, Source, Time

Pairs = tuple[tuple[str, str], ...]
Status = Literal["current", "deprecated", "retired", "not installed"]


class LastTest(NamedTuple):
    """The last `sifmod test` of the live generation."""

    time: Time
    host: str
    passed: bool


class Change(NamedTuple):
    """A package that has different versions in two modules, or is in only one of them."""

    name: str
    was: Annotated[str, Described("version in the earlier module; empty: it was added")]
    now: Annotated[str, Described("version in this module; empty: it was removed")]


class Changes(NamedTuple):
    """The differences from an earlier version for the same accelerator."""

    since: Annotated[ModuleName, Described("the earlier module")]
    differences: Annotated[tuple[Change, ...], Described("changes of packages that the easyconfigs name")]
    others: Annotated[int, Described("number of further known packages that differ")]


@dataclass(frozen=True)
class Entry:
    """A module, with the facts by which users choose one; "" is unknown or missing."""

    module: ModuleName
    version: Annotated[str, Described("version of the easyconfig, without its versionsuffix")]
    accelerator: str
    arch: Arch
    site: Annotated[OrNull[str], Described("site that the module was installed for")]
    about: Internal[Help]
    source: Source  # of the image, for people
    load: Annotated[tuple[str, ...], Described("commands that load the module")]
    install: Annotated[OrNull[str], Described("command that installs the module, if it is not installed")] = ""
    add: Annotated[OrNull[str], Described("the command that adds packages, if supported")] = ""
    job_script: OrNull[str] = ""
    sha256: Annotated[OrNull[Sha256], Described("SHA-256 of the SIF, if it is installed")] = ""
    size: OrNull[Size] = 0
    installed_at: Annotated[OrNull[Time], Described("time when its generation was published")] = ""
    last_test: LastTest | None = None
    packages: Internal[Pairs] = ()  # all that is known to be in the image
    status: Status = "current"
    default: Annotated[bool, Described("whether a load without a version means this module")] = False
    until: Annotated[OrNull[str], Described("the last day on which the module loads, 2027-03-31")] = ""
    since: Annotated[OrNull[str], Described("first day of deprecation or retirement, 2026-11-01")] = ""
    message: Annotated[str, Described("notice about the deprecation or retirement")] = ""
    successor: Annotated[OrNull[ModuleText], Described("the module to use instead")] = ""
    labels: Pairs = ()
    changes: Annotated[Changes | None, Described("changes since the version before; null if none is known")] = None

    @property
    def ends(self) -> bool:
        return self.status in ("deprecated", "retired")

    @property
    def description(self) -> Annotated[str, Described("what the module is for")]:
        return self.about.description.strip()

    @property
    def homepage(self) -> Annotated[OrNull[str], Described("home page of the software")]:
        return self.about.homepage

    @property
    def docurls(self) -> Annotated[tuple[str, ...], Described("URLs of the documentation")]:
        return self.about.docurls

    @property
    def contents(self) -> Annotated[Pairs, Described("packages in the image, with versions; the author's choice")]:
        return self.about.contents

    @property
    def driver(self) -> Annotated[OrNull[str], Described("why the driver of the site's GPUs does not run the image")]:
        return self.about.driver

    @property
    def license(self) -> Annotated[OrNull[str], Described("licence of the software in the image")]:
        return self._said("License")

    @property
    def keywords(self) -> Annotated[tuple[str, ...], Described("keywords of the easyconfig")]:
        return tuple(word for text in self._said("Keywords").split(",") if (word := text.strip()))

    def _said(self, key: str) -> str:
        start = f"{key}:"
        return next((line.removeprefix(start).strip() for line in self.about.whatis if line.startswith(start)), "")


class AboutSite(NamedTuple):
    """What the site says of itself to users; "" is missing."""

    text: Annotated[OrNull[str], Described("the site's text for its users")] = ""
    contact: Annotated[OrNull[str], Described("the site's contact: mail or web address, or words")] = ""
    home: Annotated[OrNull[str], Described("the site's web page")] = ""
    logo: Internal[str] = ""  # as a data: address

    @property
    def paragraphs(self) -> tuple[str, ...]:
        return tuple(filter(None, (" ".join(text.split()) for text in self.text.split("\n\n"))))


def compared(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries by name, newest version first, each with the changes since the version before."""
    found: list[Entry] = []
    for _, group in groupby(sorted(entries, key=_order), key=lambda one: one.module.name.casefold()):
        before: dict[str, list[Entry]] = {}
        for entry in group:
            same = before.setdefault(entry.accelerator, [])
            older = next((one for one in reversed(same) if one.version != entry.version), None)
            same.append(entry)
            found.append(replace(entry, changes=_changes(older, entry) if older else None))
    return tuple(sorted(sorted(found, key=_order, reverse=True), key=lambda one: one.module.name.casefold()))


class Named(NamedTuple):
    """The modules of one name, newest first."""

    name: str
    newest: tuple[Entry, ...]  # the newest for each accelerator, and the default
    older: tuple[Entry, ...]  # also deprecated and retired ones


def by_name(entries: Iterable[Entry]) -> tuple[Named, ...]:
    """Group the entries that `compared` returns by name.

    A module that is not installed counts as newest only if no installed one for its accelerator is newer. A default is
    always among the newest, a deprecated or retired module only if it is the default.
    """
    found = []
    for _, group in groupby(entries, key=lambda one: one.module.name.casefold()):
        newest: list[Entry] = []
        older: list[Entry] = []
        seen: dict[str, bool] = {}  # accelerator → whether an installed one was seen
        for entry in group:
            installed = entry.status != "not installed"
            known = seen.get(entry.accelerator)
            if entry.default or not (entry.ends or known or known == installed):
                newest.append(entry)
                seen[entry.accelerator] = known or installed
            else:
                older.append(entry)
        found.append(Named((newest or older)[0].module.name, tuple(newest), tuple(older)))
    return tuple(found)


def _order(entry: Entry) -> tuple[object, ...]:
    return entry.module.name.casefold(), release_key(entry.version), version_key(entry.module.version)


def _changes(older: Entry, newer: Entry) -> Changes | None:
    """The changes from the older entry; None if the two have no package in common to compare.

    Two images differ in hundreds of packages: the author's selection is listed, the others are counted.
    """
    was, now = dict(older.contents), dict(newer.contents)
    if not was.keys() & now.keys():
        return None
    if older.packages and newer.packages:
        was, now = dict(older.packages) | was, dict(newer.packages) | now
    changed = [name for name in sorted({*was, *now}, key=str.casefold) if was.get(name) != now.get(name)]
    chosen = dict((*older.contents, *newer.contents))
    listed = tuple(Change(name, was.get(name, ""), now.get(name, "")) for name in changed if name in chosen)
    return Changes(older.module, listed, len(changed) - len(listed))
