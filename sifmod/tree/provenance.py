"""Provenance: the inputs of an installation, as kept in its receipt.

It lets a repeated install recognise that nothing has changed without parsing YAML.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sifmod.config.input import Input

Pairs = tuple[tuple[str, str], ...]
_LINKED = "linked"


class CommandLine(NamedTuple):
    """What a receipt keeps of the command line, or of a stack's entry, that asked for the install."""

    name: str = ""  # the bare name that the easyconfig was found by; "" for a path
    options: Pairs = ()  # deciding options (`--site`), with absolute paths and without queries of URLs
    checked: bool = True  # whether the sanity check was requested; it changes no file


class FileState(NamedTuple):
    """Size, times and inode of a large file, which are cheaper to compare than a digest."""

    path: str
    state: str  # "" if the file is missing


def file_state(path: str, *, linked: bool = False) -> FileState:
    """The state of a file. Its ctime reveals an overwrite that restores the mtime.

    `linked`: without the ctime of a read-only file, which a hard link to it changes.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return FileState(path, "")
    changed = _LINKED if linked and stat.S_IMODE(status.st_mode) == 0o444 else str(status.st_ctime_ns)
    return FileState(path, f"{status.st_size} {status.st_mtime_ns} {status.st_ino} {changed}")


def has_state(known: FileState) -> bool:
    """Whether the file still has this state; False for a state of an earlier sifmod, without a ctime."""
    return file_state(known.path, linked=known.state.endswith(f" {_LINKED}")) == known


class FoundCommands(NamedTuple):
    """The commands that `wrappers: auto` found in an image. The same question gives the same commands."""

    question: str  # the image's digest and a digest of the search
    commands: str  # names, with `=` and the path if PATH does not find them


MpiInUse = Literal["", "image", "host"]  # the MPI that programs of a module use; "": unknown


class FoundMpi(NamedTuple):
    """The MPI that was found in an image. The same question gives the same answer."""

    question: str  # the image's digest, and the searched places
    found: tuple[str, ...] = ()  # the fields of image/inspect's Mpi; () if none was recognised
    text: str = ""  # the text in the module
    used: MpiInUse = ""


class ImageChoice(NamedTuple):
    """How the image of an installation was chosen."""

    request: str  # a digest of everything that decides which image is fetched
    kept: bool = False  # by `--module-only`, regardless of the easyconfig
    states: tuple[FileState, ...] = ()  # of the image's local source files, before it was fetched
    directories: tuple[str, ...] = ()  # directories in which the generation looks for a copy
    commands: FoundCommands | None = None
    mpi: FoundMpi | None = None


class Provenance(NamedTuple):
    sifmod: str  # version
    easyconfig: str  # absolute path
    version: str  # of the easyconfig, without its versionsuffix
    variant: str | None
    site: str
    accelerator: str
    inputs: tuple[Input, ...]  # every file that was read or searched
    facts: Pairs  # facts that detection found on the machine
    asked: CommandLine
    image: ImageChoice
    plan_digest: str


def as_data(made: Provenance) -> dict[str, Any]:
    inputs = [(seen.path, seen.sha256) for seen in made.inputs]
    return made._asdict() | {"inputs": inputs, "asked": made.asked._asdict(), "image": made.image._asdict()}


def from_data(fields: Mapping[str, Any]) -> Provenance:
    """Parse the data of `as_data`. Raises ValueError, KeyError or TypeError for invalid data."""
    asked, image = fields["asked"], fields["image"]
    if type(asked["checked"]) is not bool or type(image["kept"]) is not bool:
        raise TypeError("neither true nor false")
    commands, mpi = image["commands"], image["mpi"]
    image = image | {
        "states": tuple([FileState(*state) for state in image["states"]]),
        "directories": tuple(image["directories"]),
        "commands": None if commands is None else FoundCommands(*commands),
        "mpi": None if mpi is None else _found_mpi(*mpi),
    }
    typed = {
        "inputs": tuple([Input(path, sha256) for path, sha256 in fields["inputs"]]),
        "facts": _pairs(fields["facts"]),
        "asked": CommandLine(**(asked | {"options": _pairs(asked["options"])})),
        "image": ImageChoice(**image),
    }
    return Provenance(**{**fields, **typed})


def texts(made: Provenance) -> list[str]:
    """All texts in a provenance, for checks."""
    asked, image = made.asked, made.image
    variant = "" if made.variant is None else made.variant
    found = [made.sifmod, made.easyconfig, made.version, variant, made.site, made.accelerator, made.plan_digest]
    found += [asked.name, image.request, *image.directories, *(image.commands or ())]
    if image.mpi:
        found += [image.mpi.question, *image.mpi.found, image.mpi.text, image.mpi.used]
    found += [text for pair in (*made.facts, *asked.options, *image.states) for text in pair]
    return found + [text for seen in made.inputs for text in (seen.path, "" if seen.sha256 is None else seen.sha256)]


def _found_mpi(question: str, found: Any, text: str, used: Any) -> FoundMpi:
    return FoundMpi(question, tuple(found), text, used)


def _pairs(found: Any) -> Pairs:
    return tuple([(name, text) for name, text in found])
