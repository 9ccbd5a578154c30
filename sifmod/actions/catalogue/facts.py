"""What the pages say of a module, in words: its status, its summary, its facts."""

import re
from collections.abc import Iterator

from sifmod.actions.catalogue.entry import Changes, Entry
from sifmod.system import size_text

ACCELERATORS = {"cuda": "CUDA", "rocm": "ROCm", "none": "CPU"}
_LINK = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]+")
_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")


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


def contact_address(text: str) -> str:
    """Where a link to a contact leads: a web page or a mail; "" where the text is words."""
    return f"mailto:{text}" if _MAIL.fullmatch(text) else web_address(text)


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
        ("driver", f"not for the GPUs here: it has {about.driver}" if about.driver else ""),
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


def more(changes: Changes) -> str:
    """A note about changed packages that are not listed, or that none changed; "" if all are listed."""
    if changes.others:
        other, plural = "other " if changes.differences else "", "" if changes.others == 1 else "s"
        return f"{changes.others} {other}package{plural} changed; sifmod diff lists them."
    return "" if changes.differences else "No package with a known version has changed."
