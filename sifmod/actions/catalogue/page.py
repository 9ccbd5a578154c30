"""The catalogue as one web page that loads nothing from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sifmod.actions.catalogue.entry import AboutSite, Entry, Named, Pairs
from sifmod.actions.catalogue.facts import (
    ACCELERATORS,
    contact_address,
    facts,
    more,
    rest,
    status,
    summary,
    web_address,
)
from sifmod.module.plan import File
from sifmod.system import escape_controls

INDEX = "index.html"
FEED = "feed.xml"
GENERATOR = "sifmod stack catalogue"
_TEMPLATES = Path(__file__).with_name("templates")


def web_page(title: str, site: AboutSite, names: tuple[Named, ...]) -> File:
    """The web page. Texts are escaped, and only the page's own script may run."""
    entries = tuple(entry for named in names for entry in (*named.newest, *named.older))
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        one.__name__: one
        for one in (contact_address, facts, labels, more, rest, status, statuses, summary, web_address)
    }
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    choices = (
        ("site", "Site", _values(((entry.site,) for entry in entries), least=2)),
        ("status", "Status", _values(map(statuses, entries), least=2)),
        ("label", "Label", _values(map(labels, entries))),
    )
    packages = tuple(dict.fromkeys(entry.packages for entry in entries if entry.packages))
    text = environment.get_template("page.html.j2").render(
        title=title,
        generator=GENERATOR,
        site=site,
        feed=FEED,
        named=names,
        entries=entries,
        accelerators=[(key, name) for key, name in ACCELERATORS.items() if key in {one.accelerator for one in entries}],
        names=ACCELERATORS,
        choices=[(key, label, values) for key, label, values in choices if values],
        has_statuses=any(key == "status" and values for key, _, values in choices),
        sets={packages_of: number for number, packages_of in enumerate(packages)},
        packages=_data(packages),
        style=Markup(style),  # noqa: S704 (ours)
        script=Markup(script),  # noqa: S704 (ours)
        hashes={"style": _hash(style), "script": _hash(script)},
    )
    return File(INDEX, text)


def statuses(entry: Entry) -> tuple[str, ...]:
    return (entry.status, "default") if entry.default else (entry.status,)


def labels(entry: Entry) -> tuple[str, ...]:
    return tuple(f"{name}: {value}" for name, value in entry.labels)


def _values(texts: Iterable[tuple[str, ...]], least: int = 1) -> list[str]:
    """The choices of a filter, sorted; empty if there are fewer than `least`."""
    found = sorted({text for several in texts for text in several if text})
    return found if len(found) >= least else []


def _data(packages: tuple[Pairs, ...]) -> Markup:
    """The package lists of the images, once each, since modules share images.

    No `<`, so that it cannot end its element.
    """
    lines = [[escape_controls(f"{name} {version}".strip()) for name, version in one] for one in packages]
    text = json.dumps(lines, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(text)  # noqa: S704 (JSON without a `<`)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
