"""The catalogue as Markdown: an index, and a page for each module, for a site's own MkDocs."""

import re
from collections.abc import Iterable, Iterator
from html import escape

from sifmod.actions.catalogue.entry import Changes, Entry
from sifmod.module.plan import File
from sifmod.system import harmless, one_line, size_text

PAGES = "pages"
ACCELERATORS = {"cuda": "CUDA", "rocm": "ROCm", "none": "CPU"}
_MARKS = re.compile(r"[\\`*_{}\[\]|#~$^=:]|^[^\w&]|^[0-9](?=[0-9]*[.)]\s)")  # also where a list would begin
_LINK = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]+")


def pages(title: str, entries: tuple[Entry, ...]) -> Iterator[File]:
    """The files; whatever a text holds, it is shown and neither Markdown, HTML nor a template's."""
    rows = (
        f"| [{_text(str(one.module))}]({_path(one)}) | {ACCELERATORS.get(one.accelerator, one.accelerator)}"
        f" | {_text(status(one))} | {_text(summary(one))} |\n"
        for one in entries
    )
    head = "| module | for | status | what it is |\n|---|---|---|---|\n"
    yield File(f"{PAGES}/index.md", f"# {_text(title)}\n\n{head}{''.join(rows)}")
    for entry in entries:
        yield File(f"{PAGES}/{_path(entry)}", _page(entry))


def status(entry: Entry) -> str:
    until = f" until {entry.ending.until}" if entry.ending and entry.ending.until else ""
    return f"{entry.status}{until}{', the default' if entry.default else ''}"


def summary(entry: Entry) -> str:
    """The first paragraph of its description."""
    return " ".join(entry.about.description.strip().partition("\n\n")[0].split())


def rest(entry: Entry) -> tuple[str, ...]:
    """The other paragraphs of its description."""
    return tuple(" ".join(text.split()) for text in entry.about.description.strip().split("\n\n")[1:])


def web_address(text: str) -> str:
    """The text where it can be the target of a link; "" for anything else, `javascript:` say."""
    return text if _LINK.fullmatch(text) else ""


def _path(entry: Entry) -> str:
    return f"{entry.module}.md"


def _page(entry: Entry) -> str:
    about = entry.about
    parts = [f"# {_text(str(entry.module))}", *map(_text, about.description.strip().split("\n\n"))]
    if entry.ending:
        parts.append(f"**{_text(' '.join(filter(None, (f'{status(entry)}.', entry.ending.message))))}**")
    if entry.install:
        parts += ["It is not installed. This installs it:", _code(entry.install)]
    parts += ["## Load it", _code("\n".join(entry.load))]
    if entry.job:
        parts += ["## A job script", _code(entry.job)]
    if entry.add:
        parts += ["## Add packages", _code(entry.add)]
    if about.contents:
        parts += ["## What is in it", _table("package", about.contents)]
    if entry.changes:
        parts += [f"## New since {_text(str(entry.changes.since))}", _changes(entry.changes)]
    parts += ["## Facts", _table("", tuple(facts(entry)))]
    if entry.packages:
        lines = "\n".join(f"{name} {version}" for name, version in entry.packages)
        head = f"<details><summary>All {len(entry.packages)} packages</summary>"
        parts.append(f"{head}{_code(lines)}</details>")
    return "\n\n".join(filter(None, parts)) + "\n"


def facts(entry: Entry) -> Iterator[tuple[str, str]]:
    about, image, test = entry.about, entry.image, entry.test
    yield from entry.labels
    texts = (
        ("status", status(entry)),
        ("successor", entry.ending.successor if entry.ending else ""),
        ("accelerator", ACCELERATORS.get(entry.accelerator, entry.accelerator)),
        ("architecture", entry.arch),
        ("site", entry.site),
        ("licence", entry.license),
        ("keywords", ", ".join(entry.keywords)),
        ("MPI", about.mpi),
        *(("quirk", f"{what}: {why}") for what, why in about.quirks),
        ("home page", about.homepage),
        *(("documentation", url) for url in about.docurls),
        ("image", entry.source),
        ("SHA-256", image.sha256 if image else ""),
        ("size", size_text(image.size) if image else ""),
        ("installed", image.since[:10] if image else ""),
        ("last test", f"{'passed' if test.passed else 'failed'} on {test.time[:10]}, {test.host}" if test else ""),
    )
    yield from ((name, text) for name, text in texts if text)


def _changes(changes: Changes) -> str:
    rows = (f"| {_text(one.name)} | {_text(one.was)} | {_text(one.now)} |" for one in changes.packages)
    table = "\n".join(("| package | was | now |", "|---|---|---|", *rows)) if changes.packages else ""
    return "\n\n".join(filter(None, (table, more(changes))))


def more(changes: Changes) -> str:
    """What is to be said beside the packages that are listed."""
    if changes.others:
        other, plural = "other " if changes.packages else "", "" if changes.others == 1 else "s"
        return f"{changes.others} {other}package{plural} changed; sifmod diff lists them."
    return "" if changes.packages else "No package of which the version is known is another one."


def _table(what: str, rows: Iterable[tuple[str, str]]) -> str:
    head = f"| {what} | {'version' if what else ''} |\n|---|---|\n"
    return head + "\n".join(f"| {_text(name)} | {_cell(text)} |" for name, text in rows)


def _cell(text: str) -> str:
    url = web_address(text)
    return f"<{url}>" if url else _text(text)


def _text(text: str) -> str:
    """One line, in which no sign means anything."""
    plain = escape(one_line(" ".join(text.split())), quote=False)
    return _MARKS.sub(lambda sign: f"&#{ord(sign[0])};", plain)


def _code(text: str) -> str:
    """Text as it is: not between fences, in which a template of MkDocs would still mean something."""
    inside = escape(harmless(text.rstrip("\n")), quote=False)
    return f"<pre><code>{re.sub('[{}]', lambda sign: f'&#{ord(sign[0])};', inside)}</code></pre>"
