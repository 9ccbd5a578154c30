"""Recognising, from its receipt alone, an installation that needs nothing done: no YAML is parsed, nothing planned."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sifmod import __version__
from sifmod.config.input import current_facts
from sifmod.config.input import unchanged as inputs_unchanged
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live
from sifmod.tree.state import missing

Options = tuple[tuple[str, str], ...]
FILE_STATE = "state of "
UNCHECKED = ("--skip-sanity-check", "")  # an option of an install without the check, which changes no file
IMAGE_DIRS = "image directories"  # an option of a receipt: where the generation looks for a copy of its image
KEPT = ("image", "kept by --module-only, whatever the easyconfig asks")  # an option of such a receipt


def file_state(path: str) -> tuple[str, str]:
    """A large file's size, time and inode, as a pair that a receipt's options can hold: cheaper than its digest."""
    try:
        status = Path(path).stat()
    except OSError:
        return FILE_STATE + path, ""
    return FILE_STATE + path, f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def find_unchanged(
    layout: Layout, easyconfig: str, options: Options, environ: Mapping[str, str]
) -> Installation | None:
    """The live installation of this easyconfig if nothing it was made from has changed and all of it is there."""
    facts: Options | None = None
    options = tuple(pair for pair in options if pair != UNCHECKED)
    for installation in _candidates(layout, Path(easyconfig).name):
        made = installation.provenance
        asked = tuple(pair for pair in made.options if pair[0].startswith("--") and pair != UNCHECKED)
        if not _same_easyconfig(made.easyconfig, easyconfig) or asked != options or KEPT in made.options:
            continue
        facts = current_facts(environ) if facts is None else facts
        if (
            made.sifmod == __version__
            and made.facts == facts
            and inputs_unchanged(made.inputs, environ)
            and all(
                file_state(name.removeprefix(FILE_STATE)) == (name, state)
                for name, state in made.options
                if name.startswith(FILE_STATE)
            )
            and not missing(layout, installation)
        ):
            return installation
    return None


def _same_easyconfig(made_from: str, asked: str) -> bool:
    """The same file; a bare name is the same when it is the file's name and is no file of its own here."""
    if "/" in asked or Path(asked).exists():
        return made_from == os.path.realpath(asked)
    return Path(made_from).name in (asked, f"{asked}.yaml")


def _candidates(layout: Layout, file_name: str) -> Iterator[Installation]:
    """The live installations whose name the easyconfig's file name begins with."""
    try:
        names = [entry.name for entry in os.scandir(layout.software) if file_name.startswith(f"{entry.name}-")]
        for name in names:
            for entry in os.scandir(layout.software / name):
                if not entry.name.startswith(".") and (found := live(layout, ModuleName(name, entry.name))):
                    yield found
    except OSError:
        return
