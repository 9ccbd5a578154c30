"""The catalogue in Markdown, for a site's own MkDocs: a list of names, and a page for each name."""

import re
from collections.abc import Iterable, Iterator
from html import escape

from sifmod.actions.catalogue.entry import AboutSite, Changes, Entry, Named
from sifmod.actions.catalogue.facts import ACCELERATORS, contact_address, facts, more, status, summary, web_address
from sifmod.module.plan import File
from sifmod.system import escape_controls, one_line

PAGES = "pages"
_MARKS = re.compile(r"[\\`*_{}\[\]|#~$^=:]|^[^\w&]|^[0-9](?=[0-9]*[.)]\s)")  # also at the start of a list


def markdown_pages(title: str, site: AboutSite, names: Iterable[Named]) -> Iterator[File]:
    """The Markdown pages; texts are escaped, so that none acts as Markdown, HTML or a template."""
    rows = []
    for named in names:
        those = (*named.newest, *named.older)
        kinds = sorted({ACCELERATORS.get(one.accelerator, one.accelerator) for one in those})
        newest = those[0]
        cells = (_text(newest.module.version), _text(", ".join(kinds)), str(len(those)), _text(summary(newest)))
        rows.append(f"| [{_text(named.name)}]({named.name}/index.md) | {' | '.join(cells)} |\n")
        yield File(page_of(named.name), _page(named))
    contact = [f"Contact: {_link(site.contact, contact_address(site.contact))}"] if site.contact else []
    head = "| name | newest | for | modules | description |\n|---|---|---|---|---|\n"
    parts = [f"# {_text(title)}", *map(_text, site.paragraphs), *contact, f"{head}{''.join(rows)}"]
    yield File(f"{PAGES}/index.md", "\n\n".join(parts))


def page_of(name: str) -> str:
    """The path of a name's page."""
    return f"{PAGES}/{name}/index.md"


def _link(text: str, address: str) -> str:
    return f"<{address}>" if address == text else f"[{_text(text)}]({address})" if address else _text(text)


def _page(named: Named) -> str:
    first = (*named.newest, *named.older)[0]
    parts = [f"# {_text(named.name)}", *map(_text, first.description.split("\n\n"))]
    for entry in named.newest:
        parts += _module(entry, entry.description if entry.description != first.description else "")
    if named.older:
        parts += ["## Older", *map(_folded, named.older)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _module(entry: Entry, description: str) -> list[str]:
    about = entry.about
    parts = [f"## {_text(str(entry.module))}", *map(_text, description.split("\n\n"))]
    if entry.ends:
        parts.append(f"**{_text(_ending(entry))}**")
    if entry.install:
        parts += ["It is not installed. To install it:", _code(entry.install)]
    if entry.load:
        parts += ["### Load it", _code("\n".join(entry.load))]
    if entry.job_script:
        parts += ["### A job script", _code(entry.job_script)]
    if entry.add:
        parts += ["### Add packages", _code(entry.add)]
    if about.contents:
        parts += ["### Contents", _table("package", about.contents)]
    if entry.changes:
        parts += [f"### New since {_text(str(entry.changes.since))}", _changes(entry.changes)]
    parts += ["### Facts", _table("", tuple(facts(entry)))]
    if entry.packages:
        lines = "\n".join(f"{name} {version}" for name, version in entry.packages)
        head = f"<details><summary>All {len(entry.packages)} packages</summary>"
        parts.append(f"{head}{_code(lines)}</details>")
    return parts


def _folded(entry: Entry) -> str:
    """An older module, in HTML: Markdown in an element would need an extension."""
    said = [f"<p><strong>{_text(_ending(entry))}</strong></p>"] if entry.ends else []
    said += [_code("\n".join(filter(None, (entry.install, *entry.load))))] if entry.install or entry.load else []
    rows = (*entry.about.contents, *facts(entry))
    said += ["<ul>", *(f"<li>{_text(name)}: {_text(text)}</li>" for name, text in rows), "</ul>"]
    return f"<details><summary>{_text(str(entry.module))}</summary>{''.join(said)}</details>"


def _ending(entry: Entry) -> str:
    return " ".join(filter(None, (f"{status(entry)}.", entry.message)))


def _changes(changes: Changes) -> str:
    rows = (f"| {_text(one.name)} | {_text(one.was)} | {_text(one.now)} |" for one in changes.differences)
    table = "\n".join(("| package | was | now |", "|---|---|---|", *rows)) if changes.differences else ""
    return "\n\n".join(filter(None, (table, more(changes))))


def _table(what: str, rows: Iterable[tuple[str, str]]) -> str:
    head = f"| {what} | {'version' if what else ''} |\n|---|---|\n"
    shown = ((name, f"<{url}>" if (url := web_address(text)) else _text(text)) for name, text in rows)
    return head + "\n".join(f"| {_text(name)} | {text} |" for name, text in shown)


def _text(text: str) -> str:
    """The text on one line, with every special character escaped."""
    plain = escape(one_line(" ".join(text.split())), quote=False)
    return _MARKS.sub(lambda sign: f"&#{ord(sign[0])};", plain)


def _code(text: str) -> str:
    """Literal text as HTML, with escaped braces: MkDocs would expand templates even between fences."""
    inside = escape(escape_controls(text.rstrip("\n")), quote=False)
    return f"<pre><code>{re.sub('[{}]', lambda sign: f'&#{ord(sign[0])};', inside)}</code></pre>"
