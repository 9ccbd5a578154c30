"""Provenance: what an installation was made from, as its receipt keeps it.

With it a repeated install sees that nothing has changed, and parses no YAML.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sifmod.config.input import Input

Pairs = tuple[tuple[str, str], ...]


class CommandLine(NamedTuple):
    """What was asked for, as it was typed."""

    name: str = ""  # the bare name by which the easyconfig was found; "" for a path
    options: Pairs = ()  # those that decide what is installed, as typed (`--site`), with absolute paths
    checked: bool = True  # whether the sanity check was wanted, which changes no file


class FileState(NamedTuple):
    """The size, time and inode of a large file, which are cheaper to compare than its digest."""

    path: str
    state: str  # "" where the file is not there


def file_state(path: str) -> FileState:
    try:
        status = Path(path).stat()
    except OSError:
        return FileState(path, "")
    return FileState(path, f"{status.st_size} {status.st_mtime_ns} {status.st_ino}")


class FoundCommands(NamedTuple):
    """What `wrappers: auto` found in an image. The same question gives the same commands."""

    question: str  # the image's digest and one of what was looked for
    commands: str  # names, each with `=` and its path where PATH does not lead there


MpiInUse = Literal["", "image", "host"]  # whose MPI programs of a module use; "": nothing is known


class FoundMpi(NamedTuple):
    """The MPI that was found in an image. The same question gives the same answer."""

    question: str  # the image's digest, and where it was looked for
    found: tuple[str, ...] = ()  # the fields of an Mpi of image/inspect; () where there is none that can be told
    told: str = ""  # what the module says of it
    used: MpiInUse = ""


class ImageChoice(NamedTuple):
    """How the image of an installation was chosen."""

    request: str  # a digest of all that decides which image is fetched
    kept: bool = False  # by `--module-only`, whatever the easyconfig asks
    states: tuple[FileState, ...] = ()  # of the local files that it can come from, before it was fetched
    directories: tuple[str, ...] = ()  # where the generation looks for a copy of it
    commands: FoundCommands | None = None
    mpi: FoundMpi | None = None


class Provenance(NamedTuple):
    sifmod: str  # version
    easyconfig: str  # absolute path
    version: str  # of the easyconfig, without its versionsuffix
    variant: str | None
    site: str
    accelerator: str
    inputs: tuple[Input, ...]  # every file read or looked for
    facts: Pairs  # what detection found on the machine
    asked: CommandLine
    image: ImageChoice
    plan_digest: str


def as_data(made: Provenance) -> dict[str, Any]:
    inputs = [(seen.path, seen.sha256) for seen in made.inputs]
    return made._asdict() | {"inputs": inputs, "asked": made.asked._asdict(), "image": made.image._asdict()}


def from_data(fields: Mapping[str, Any]) -> Provenance:
    """What `as_data` gave. Raises ValueError, KeyError or TypeError for anything else."""
    asked, image = fields["asked"], fields["image"]
    if type(asked["checked"]) is not bool or type(image["kept"]) is not bool:
        raise TypeError("neither true nor false")
    commands, mpi = image["commands"], image.get("mpi")
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
    """All that is a text, to be looked through."""
    asked, image = made.asked, made.image
    variant = "" if made.variant is None else made.variant
    found = [made.sifmod, made.easyconfig, made.version, variant, made.site, made.accelerator, made.plan_digest]
    found += [asked.name, image.request, *image.directories, *(image.commands or ())]
    if image.mpi:
        found += [image.mpi.question, *image.mpi.found, image.mpi.told, image.mpi.used]
    found += [text for pair in (*made.facts, *asked.options, *image.states) for text in pair]
    return found + [text for seen in made.inputs for text in (seen.path, "" if seen.sha256 is None else seen.sha256)]


def _found_mpi(question: str, found: Any, told: str, used: Any) -> FoundMpi:
    return FoundMpi(question, tuple(found), told, used)


def _pairs(found: Any) -> Pairs:
    return tuple([(name, text) for name, text in found])
