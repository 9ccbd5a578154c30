"""An Installation and its receipt: what one generation was made from, and every file of it that is ours."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.tree.layout import RECEIPT, Layout

FORMAT = 1


class FileRecord(NamedTuple):
    """A file that sifmod wrote. `path` is relative to the generation, for a stub to `<prefix>/modules`."""

    path: str
    sha256: str
    mode: int


class LinkRecord(NamedTuple):
    """A symlink that sifmod made; `path` is relative to the generation, `target` is the link's text."""

    path: str
    target: str


class ImageRecord(NamedTuple):
    """The image that a generation uses."""

    sha256: str
    size: int  # bytes
    source: str  # the source that gave it, as the easyconfig spells it
    arch: str
    link: str  # copy | hardlink | reference: how it came into the store, or that it did not
    filename: str  # the link's name in the generation
    path: str  # absolute: in the store, or the user's own file when it is only referenced


class Provenance(NamedTuple):
    """What an installation was made from; enough to see that nothing has changed without parsing anything."""

    sifmod: str  # version
    easyconfig: str  # absolute path
    version: str  # of the easyconfig, without its versionsuffix
    variant: str | None
    site: str
    accelerator: str
    inputs: tuple[Input, ...]  # every file read or looked for
    facts: tuple[tuple[str, str], ...]  # what detection found on the machine
    options: tuple[tuple[str, str], ...]  # of the command line
    plan_digest: str


@dataclass(frozen=True)
class Installation:
    """One generation of a module, as its receipt tells it."""

    module: ModuleName
    generation: int
    root: str
    provenance: Provenance
    image: ImageRecord
    files: tuple[FileRecord, ...]
    links: tuple[LinkRecord, ...]
    stubs: tuple[FileRecord, ...]


def to_json(installation: Installation) -> str:
    """The receipt's text; the same installation gives the same bytes."""
    raise NotImplementedError


def read_receipt(generation: Path) -> Installation | None:
    """The installation of the generation at this path; None when it has no receipt that can be read."""
    raise NotImplementedError


def live_number(layout: Layout, module: ModuleName) -> int | None:
    """The number of the live generation; None when the module is not installed."""
    raise NotImplementedError


def live(layout: Layout, module: ModuleName) -> Installation | None:
    """What is installed as `module` now; None when nothing is, or when its receipt cannot be read."""
    raise NotImplementedError


def installations(layout: Layout) -> tuple[Installation, ...]:
    """Every live installation, sorted by module; damaged ones are left out (`list` and `verify` tell of them)."""
    raise NotImplementedError


def all_generations(layout: Layout, module: ModuleName) -> tuple[Installation, ...]:
    """Every generation of `module` that is on disk with a readable receipt, oldest first, live or not."""
    raise NotImplementedError
