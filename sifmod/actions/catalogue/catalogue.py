"""Write the catalogue: as data, as Markdown, and as one web page that loads nothing from elsewhere."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sifmod.actions.author.new_file import write_text
from sifmod.actions.catalogue.entry import Changes, Entry, Pairs, compared
from sifmod.config.name import is_part
from sifmod.errors import OptionError
from sifmod.image.disk import writing
from sifmod.module.plan import File
from sifmod.result import Described, Sha256, in_json
from sifmod.system import escape_controls, one_line, size_text

PAGES = "pages"
ACCELERATORS = {"cuda": "CUDA", "rocm": "ROCm", "none": "CPU"}
_MARKS = re.compile(r"[\\`*_{}\[\]|#~$^=:]|^[^\w&]|^[0-9](?=[0-9]*[.)]\s)")  # also at the start of a list
_LINK = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]+")


def pages(title: str, entries: tuple[Entry, ...]) -> Iterator[File]:
    """The Markdown pages; texts are escaped, so that none acts as Markdown, HTML or a template."""
    rows = (
        f"| [{_text(str(one.module))}]({_path(one)}) | {ACCELERATORS.get(one.accelerator, one.accelerator)}"
        f" | {_text(status(one))} | {_text(summary(one))} |\n"
        for one in entries
    )
    head = "| module | for | status | description |\n|---|---|---|---|\n"
    yield File(f"{PAGES}/index.md", f"# {_text(title)}\n\n{head}{''.join(rows)}")
    for entry in entries:
        yield File(f"{PAGES}/{_path(entry)}", _page(entry))


def status(entry: Entry) -> str:
    word = ", last day" if entry.status == "retired" else " until"
    until = f"{word} {entry.until}" if entry.until else ""
    return f"{entry.status}{until}{', the default' if entry.default else ''}"


def summary(entry: Entry) -> str:
    """The first paragraph of the description."""
    return " ".join(entry.description.partition("\n\n")[0].split())


def rest(entry: Entry) -> tuple[str, ...]:
    return tuple(" ".join(text.split()) for text in entry.description.split("\n\n")[1:])


def web_address(text: str) -> str:
    """The text if it is a web address; "" for anything else, such as `javascript:`."""
    return text if _LINK.fullmatch(text) else ""


def _path(entry: Entry) -> str:
    return f"{entry.module}.md"


def _page(entry: Entry) -> str:
    about = entry.about
    parts = [f"# {_text(str(entry.module))}", *map(_text, about.description.strip().split("\n\n"))]
    if entry.ends:
        parts.append(f"**{_text(' '.join(filter(None, (f'{status(entry)}.', entry.message))))}**")
    if entry.install:
        parts += ["It is not installed. To install it:", _code(entry.install)]
    if entry.load:
        parts += ["## Load it", _code("\n".join(entry.load))]
    if entry.job_script:
        parts += ["## A job script", _code(entry.job_script)]
    if entry.add:
        parts += ["## Add packages", _code(entry.add)]
    if about.contents:
        parts += ["## Contents", _table("package", about.contents)]
    if entry.changes:
        parts += [f"## New since {_text(str(entry.changes.since))}", _changes(entry.changes)]
    parts += ["## Facts", _table("", tuple(facts(entry)))]
    if entry.packages:
        lines = "\n".join(f"{name} {version}" for name, version in entry.packages)
        head = f"<details><summary>All {len(entry.packages)} packages</summary>"
        parts.append(f"{head}{_code(lines)}</details>")
    return "\n\n".join(filter(None, parts)) + "\n"


def facts(entry: Entry) -> Iterator[tuple[str, str]]:
    about, test = entry.about, entry.last_test
    yield from entry.labels
    texts = (
        ("status", status(entry)),
        ("successor", entry.successor),
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
        ("SHA-256", entry.sha256),
        ("size", size_text(entry.size) if entry.sha256 else ""),
        ("installed", entry.installed_at[:10]),
        ("last test", f"{'passed' if test.passed else 'failed'} on {test.time[:10]}, {test.host}" if test else ""),
    )
    yield from ((name, text) for name, text in texts if text)


def _changes(changes: Changes) -> str:
    rows = (f"| {_text(one.name)} | {_text(one.was)} | {_text(one.now)} |" for one in changes.differences)
    table = "\n".join(("| package | was | now |", "|---|---|---|", *rows)) if changes.differences else ""
    return "\n\n".join(filter(None, (table, more(changes))))


def more(changes: Changes) -> str:
    """A note about packages that are not listed."""
    if changes.others:
        other, plural = "other " if changes.differences else "", "" if changes.others == 1 else "s"
        return f"{changes.others} {other}package{plural} changed; sifmod diff lists them."
    return "" if changes.differences else "No package with a known version has changed."


def _table(what: str, rows: Iterable[tuple[str, str]]) -> str:
    head = f"| {what} | {'version' if what else ''} |\n|---|---|\n"
    shown = ((name, f"<{url}>" if (url := web_address(text)) else _text(text)) for name, text in rows)
    return head + "\n".join(f"| {_text(name)} | {text} |" for name, text in shown)


def _text(text: str) -> str:
    """The text on one line, with every special character escaped."""
    plain = escape(one_line(" ".join(text.split())), quote=False)
    return _MARKS.sub(lambda sign: f"&#{ord(sign[0])};", plain)


def _code(text: str) -> str:
    """Literal text: indented, because MkDocs would still expand templates between fences."""
    inside = escape(escape_controls(text.rstrip("\n")), quote=False)
    return f"<pre><code>{re.sub('[{}]', lambda sign: f'&#{ord(sign[0])};', inside)}</code></pre>"


DATA = "catalogue.json"
_HEAD = 1000  # bytes at the start of a page that hold its generator


def catalogue(title: str, entries: Iterable[Entry]) -> tuple[File, ...]:
    """The catalogue's files: the data, the page, and Markdown in `pages/`; the order of the entries does not matter."""
    found = compared(entries)
    text = json.dumps(in_json(Catalogue(title, found)), indent=1, sort_keys=True) + "\n"
    return (page(title, found), *pages(title, found), File(DATA, text))


def write_catalogue(files: tuple[File, ...], directory: Path) -> int:
    """Write the files into a directory, which is created if it is missing; returns how many files changed.

    Unchanged files are left alone. Only pages of modules that the earlier catalogue listed and this one does not are
    removed. The next run completes a killed one: the page, which marks the directory as a catalogue's, is written
    first, and the data, which list the previous modules, last. Raises OptionError if another file is in the way,
    PermissionsError, NoSpaceError.
    """
    before = _modules_before(directory / DATA)
    if before is None:
        _check_free(directory)
    changed = 0
    for file in files:
        target = directory / file.path
        if file.path == DATA:
            gone = {f"{PAGES}/{module}.md" for module in before or ()} - {one.path for one in files}
            for place in (directory / name for name in sorted(gone)):
                with writing(place):
                    place.unlink(missing_ok=True)
                with suppress(OSError):
                    place.parent.rmdir()
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file() and target.read_bytes() == file.text.encode():
                continue
        write_text(file.text, target, force=True)
        changed += 1
    return changed


def _modules_before(data: Path) -> tuple[str, ...] | None:
    """The modules of the existing catalogue; None if there is none."""
    try:
        found = json.loads(data.read_bytes())
        names = [one["module"] for one in found["entries"]]
        parts = [name.split("/") for name in names]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise OptionError(
            f"{data} was not written by `sifmod stack catalogue`", "give the catalogue its own directory: -o DIR"
        ) from None
    return tuple(name for name, two in zip(names, parts, strict=True) if len(two) == 2 and all(map(is_part, two)))


def _check_free(directory: Path) -> None:
    there = next((path for name in (INDEX, PAGES) if os.path.lexists(path := directory / name)), None)
    if there is None:
        return
    with suppress(OSError):
        if GENERATOR.encode() in (directory / INDEX).read_bytes()[:_HEAD]:
            return
    raise OptionError(
        f"{there} was not written by `sifmod stack catalogue`, and was not changed",
        "give the catalogue its own directory: -o DIR",
    )


class CataloguePackage(NamedTuple):
    """A package in an image."""

    name: str
    version: str


class Inventory(NamedTuple):
    """All packages of an image; several modules may have it."""

    sha256: Sha256
    all_packages: tuple[CataloguePackage, ...]


class Catalogue(NamedTuple):
    """The modules, by name, the newest version first."""

    title: str
    entries: tuple[Entry, ...]
    schema_version: Annotated[Literal[1], Described("version of this format; it changes when a field changes")] = 1

    @property
    def inventories(self) -> Annotated[tuple[Inventory, ...], Described("entries with known packages")]:
        images = {one.sha256: one.packages for one in self.entries if one.sha256 and one.packages}
        return tuple(
            Inventory(sha256, tuple(CataloguePackage(*one) for one in packages))
            for sha256, packages in sorted(images.items())
        )


INDEX = "index.html"
GENERATOR = "sifmod stack catalogue"
_TEMPLATES = Path(__file__).with_name("templates")


def page(title: str, entries: tuple[Entry, ...]) -> File:
    """The web page. Texts are escaped, and only the page's own script may run."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        one.__name__: one for one in (facts, labels, more, rest, status, statuses, summary, web_address)
    }
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    choices = (
        ("site", "Site", _values((entry.site,) for entry in entries)),
        ("status", "Status", _values(map(statuses, entries), least=2)),
        ("label", "Label", _values(map(labels, entries))),
    )
    packages = tuple(dict.fromkeys(entry.packages for entry in entries if entry.packages))
    text = environment.get_template("page.html.j2").render(
        title=title,
        generator=GENERATOR,
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
    """The choices of a filter; empty if there are too few."""
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
