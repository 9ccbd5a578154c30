"""An Installation and its receipt: what one generation was made from, and every file of it that is ours."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.module.origin import NO_ORIGIN, ImageOrigin, from_fields
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
    source: str  # the source that gave it, without a query
    arch: str
    link: str  # copy | hardlink | reference: how it came into the store, or that it did not
    filename: str  # the link's name in the generation
    path: str  # absolute: in the store, or the user's own file when it is only referenced
    origin: ImageOrigin = NO_ORIGIN


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

    @property
    def paths(self) -> frozenset[str]:
        """Everything in the generation that is ours, the receipt too; relative."""
        return frozenset((RECEIPT, *(file.path for file in self.files), *(link.path for link in self.links)))


def as_data(installation: Installation) -> dict[str, object]:
    """The installation as what JSON can say: the receipt's content, and what `--json` prints."""
    made = installation.provenance
    return {
        "format": FORMAT,
        "name": installation.module.name,
        "version": installation.module.version,
        "generation": installation.generation,
        "root": installation.root,
        "provenance": made._asdict() | {"inputs": [(seen.path, seen.sha256) for seen in made.inputs]},
        "image": installation.image._asdict() | {"origin": installation.image.origin.as_data()},
        "files": [record._asdict() for record in installation.files],
        "links": [record._asdict() for record in installation.links],
        "stubs": [record._asdict() for record in installation.stubs],
    }


def to_json(installation: Installation) -> str:
    """The receipt's text; the same installation gives the same bytes. Compact: `list` reads hundreds of them."""
    fields = as_data(installation) | {key: getattr(installation, key) for key in ("files", "links", "stubs")}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def from_json(text: str) -> Installation:
    """The installation that `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
    fields = json.loads(text)
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, expected {FORMAT}")
    made = fields["provenance"]
    made["inputs"] = tuple([Input(path, sha256) for path, sha256 in made["inputs"]])
    image = fields["image"]
    if "origin" in image:
        image["origin"] = from_fields(image["origin"])
    made["facts"] = tuple([(name, value) for name, value in made["facts"]])
    made["options"] = tuple([(name, value) for name, value in made["options"]])
    return Installation(
        ModuleName(fields["name"], fields["version"]),
        fields["generation"],
        fields["root"],
        Provenance(**made),
        ImageRecord(**image),
        tuple([FileRecord(*record) for record in fields["files"]]),
        tuple([LinkRecord(*record) for record in fields["links"]]),
        tuple([FileRecord(*record) for record in fields["stubs"]]),
    )


def read_receipt(generation: Path) -> Installation | None:
    """The installation of the generation at this path; None when it has no receipt that can be read."""
    try:
        with open(f"{generation}/{RECEIPT}", encoding="utf-8") as file:  # noqa: PTH123 (the quickest)
            return from_json(file.read())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def live_number(layout: Layout, module: ModuleName) -> int | None:
    """The number of the live generation; None when the module is not installed."""
    return _number(layout.switch(module), module.version)


def live(layout: Layout, module: ModuleName) -> Installation | None:
    """What is installed as `module` now; None when nothing is, or when its receipt cannot be read."""
    number = live_number(layout, module)
    return None if number is None else read_receipt(layout.generation(module, number))


def live_modules(layout: Layout) -> tuple[tuple[ModuleName, int], ...]:
    """Every module that has a live generation, and its number, sorted by name; no receipt is read."""
    found = []
    for name in _names(layout.software):
        for version in _names(layout.software / name):
            module = ModuleName(name, version)
            if (number := live_number(layout, module)) is not None:
                found.append((module, number))
    return tuple(found)


def installations(layout: Layout) -> tuple[Installation, ...]:
    """Every live installation, sorted by module; damaged ones are left out (`list` and `verify` tell of them)."""
    found = (read_receipt(layout.generation(module, number)) for module, number in live_modules(layout))
    return tuple(installation for installation in found if installation is not None)


def known_modules(layout: Layout) -> tuple[ModuleName, ...]:
    """Every module of which any generation is on disk, live or not, sorted by name."""
    found = []
    for name in _names(layout.software):
        for version in _names(layout.software / name / ".generations"):
            found.append(ModuleName(name, version))  # noqa: PERF401 (two loops read better)
    return tuple(found)


def numbers(layout: Layout, module: ModuleName) -> tuple[int, ...]:
    """The numbers of all generations on disk, oldest first."""
    return tuple(sorted(int(name) for name in _names(layout.generations(module)) if name.isdecimal()))


def all_generations(layout: Layout, module: ModuleName) -> tuple[Installation, ...]:
    """Every generation of `module` that is on disk with a readable receipt, oldest first, live or not."""
    found = (read_receipt(layout.generation(module, number)) for number in numbers(layout, module))
    return tuple(installation for installation in found if installation is not None)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))  # noqa: PTH208 (plain names)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _number(switch: Path, version: str) -> int | None:
    try:
        target = os.readlink(switch)  # noqa: PTH115 (compared as text)
    except OSError:
        return None
    directory, _, number = target.rpartition("/")
    return int(number) if directory == f".generations/{version}" and number.isdecimal() else None
