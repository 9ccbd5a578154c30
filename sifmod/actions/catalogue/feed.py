"""What changed lately, as an Atom feed (RFC 4287)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sifmod.actions.catalogue.entry import AboutSite, Entry
from sifmod.actions.catalogue.facts import status, summary
from sifmod.actions.catalogue.page import FEED, INDEX
from sifmod.module.plan import File
from sifmod.system import escape_controls
from sifmod.tree.life import today

_LATEST = 50


class _Event(NamedTuple):
    time: str  # in UTC
    entry: Entry
    what: str


def feed(title: str, site: AboutSite, entries: Iterable[Entry]) -> File:
    """The feed of the latest changes, the last one first. Links are relative, as the catalogue's address is unknown."""
    events = sorted((one for entry in entries for one in _events(entry)), key=lambda one: str(one.entry.module))
    latest = sorted(events, key=lambda one: one.time, reverse=True)[:_LATEST]
    itself = uuid5(NAMESPACE_URL, f"{site.home} {title}")
    root = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _put(root, "id", itself.urn)
    _put(root, "title", title)
    _put(root, "updated", latest[0].time if latest else "1970-01-01T00:00:00Z")
    _put(SubElement(root, "author"), "name", title)
    SubElement(root, "link", href=INDEX)
    SubElement(root, "link", rel="self", href=FEED)
    for event in latest:
        _entry(root, itself, event)
    indent(root, " ")
    return File(FEED, tostring(root, "utf-8", xml_declaration=True).decode() + "\n")


def _events(entry: Entry) -> Iterator[_Event]:
    if entry.installed_at:
        yield _Event(entry.installed_at, entry, "installed")
    if entry.since and entry.since <= str(today()):
        yield _Event(f"{entry.since}T00:00:00Z", entry, status(entry))


def _entry(root: Element, itself: UUID, event: _Event) -> None:
    module, entry = str(event.entry.module), event.entry
    element = SubElement(root, "entry")
    _put(element, "id", uuid5(itself, f"{module} {event.what} {event.time}").urn)
    _put(element, "title", f"{module}: {event.what}")
    _put(element, "updated", event.time)
    SubElement(element, "link", href=f"{INDEX}#{module}")
    said = entry.message
    if event.what == "installed":
        changes = entry.changes.differences if entry.changes else ()
        said = ", ".join(f"{one.name} {one.now}" for one in changes if one.now)
    _put(element, "summary", " ".join(filter(None, (summary(entry), said))))


def _put(parent: Element, name: str, text: str) -> None:
    SubElement(parent, name).text = escape_controls(text)
