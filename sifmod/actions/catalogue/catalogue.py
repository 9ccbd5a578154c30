"""catalogue: the files of a catalogue, and where they are written."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sifmod.actions.author.new_file import write_text
from sifmod.actions.catalogue.document import document
from sifmod.actions.catalogue.entry import Entry, compared
from sifmod.actions.catalogue.html import GENERATOR, INDEX, page
from sifmod.actions.catalogue.markdown import PAGES, pages
from sifmod.config.name import is_part
from sifmod.errors import OptionError
from sifmod.image.disk import writing
from sifmod.module.plan import File

DATA = "catalogue.json"
_HEAD = 1000  # bytes of a page, among which is what made it


def catalogue(title: str, entries: Iterable[Entry]) -> tuple[File, ...]:
    """The files, the same for the same entries in whatever order: the data, the page, and Markdown in `pages/`."""
    found = compared(entries)
    text = json.dumps(document(title, found), indent=1, sort_keys=True) + "\n"
    return (page(title, found), *pages(title, found), File(DATA, text))


def write_catalogue(files: tuple[File, ...], directory: Path) -> int:
    """Put the files into a directory, which is made where it is not there: how many were new or another.

    A file that is as it should be is left alone. Pages of modules that are in the earlier catalogue there, and no more
    in this one, are removed; nothing else is. A run that was killed is completed by the next one: the page comes first,
    which tells a catalogue's directory, and the data last, which tell what was there before. Raises OptionError where
    a file in the way is no catalogue's, PermissionsError, NoSpaceError.
    """
    before = _modules_before(directory / DATA)
    if before is None:
        _check_free(directory)
    changed = 0
    for file in files:
        target = directory / file.path
        if file.path == DATA:
            _remove(directory, {f"{PAGES}/{module}.md" for module in before or ()} - {one.path for one in files})
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file() and target.read_bytes() == file.text.encode():
                continue
        write_text(file.text, target, force=True)
        changed += 1
    return changed


def _modules_before(data: Path) -> tuple[str, ...] | None:
    """The modules of the catalogue that is there; None where none is."""
    try:
        found = json.loads(data.read_bytes())
        names = [one["module"] for one in found["entries"]]
        parts = [name.split("/") for name in names]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise OptionError(f"{data} is no catalogue's", "give a directory of its own: -o DIR") from None
    return tuple(name for name, two in zip(names, parts, strict=True) if len(two) == 2 and all(map(is_part, two)))


def _check_free(directory: Path) -> None:
    there = next((path for name in (INDEX, PAGES) if os.path.lexists(path := directory / name)), None)
    if there is None:
        return
    with suppress(OSError):
        if GENERATOR.encode() in (directory / INDEX).read_bytes()[:_HEAD]:
            return
    raise OptionError(f"{there} is no catalogue's, and is left as it is", "give a directory of its own: -o DIR")


def _remove(directory: Path, names: set[str]) -> None:
    for name in sorted(names):
        with writing(directory / name):
            (directory / name).unlink(missing_ok=True)
        with suppress(OSError):
            (directory / name).parent.rmdir()
