"""The catalogue as one page for a browser, which needs no server and asks for nothing from elsewhere."""

import base64
import hashlib
import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sifmod.actions.catalogue.entry import Entry, Pairs
from sifmod.actions.catalogue.markdown import ACCELERATORS, facts, more, status, summary, web_address
from sifmod.module.plan import File
from sifmod.system import harmless

INDEX = "index.html"
GENERATOR = "sifmod catalogue"
_TEMPLATES = Path(__file__).with_name("templates")


def page(title: str, entries: tuple[Entry, ...]) -> File:
    """The file. Texts of others are text in it: each is escaped, and only this page's own script may run."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=lambda value: harmless(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "facts": facts,
        "more": more,
        "status": status,
        "summary": summary,
        "web_address": web_address,
    }
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    packages = tuple(dict.fromkeys(entry.packages for entry in entries if entry.packages))
    text = environment.get_template("page.html.j2").render(
        title=title,
        generator=GENERATOR,
        entries=entries,
        accelerators=[(key, name) for key, name in ACCELERATORS.items() if key in {one.accelerator for one in entries}],
        names=ACCELERATORS,
        sites=sorted({entry.site for entry in entries if entry.site}),
        statuses=sorted({*(one.status for one in entries), *("default" for one in entries if one.default)}),
        sets={packages_of: number for number, packages_of in enumerate(packages)},
        packages=_data(packages),
        style=Markup(style),  # noqa: S704 (ours)
        script=Markup(script),  # noqa: S704 (ours)
        hashes={"style": _hash(style), "script": _hash(script)},
    )
    return File(INDEX, text)


def _data(packages: tuple[Pairs, ...]) -> Markup:
    """What images hold, once each: many modules share one. No `<`, so that it cannot end its element."""
    lines = [[harmless(f"{name} {version}".strip()) for name, version in one] for one in packages]
    text = json.dumps(lines, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(text)  # noqa: S704 (JSON without a `<`)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
