"""An Installation and its receipt: what one generation was made from, and every file of it that is ours."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sifmod.config.input import Input
from sifmod.config.name import ModuleName, is_part
from sifmod.module.origin import NO_ORIGIN, ImageOrigin, from_fields
from sifmod.tree.disk import read
from sifmod.tree.layout import RECEIPT, Layout

FORMAT = 1
_NUMBER = re.compile("[1-9][0-9]{0,17}")
_SHA256 = re.compile("[0-9a-f]{64}")
_HUGE = 1 << 60  # bytes; no image is so large


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
    made_for: str  # the root that its files were written for; another one where the tree has been copied or moved

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
        "root": installation.made_for,
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


def from_json(text: str | bytes, generation: str) -> Installation:
    """The installation that `to_json` wrote into the receipt of the generation at this path.

    Other members of a group may have written it. So its values have their types, it is the receipt of this place, its
    files and links are inside it, its stubs are those of its module, and an image of the store is where the store
    has it. Raises ValueError, KeyError, TypeError or RecursionError for anything else.
    """
    fields = json.loads(text)
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, expected {FORMAT}")
    prefix, name, version, number = _place(generation)
    if (fields["name"], fields["version"], fields["generation"]) != (name, version, number):
        raise ValueError("it is the receipt of another generation")
    made = fields["provenance"]
    made["inputs"] = tuple([Input(_text(path), _text_or_none(sha256)) for path, sha256 in made["inputs"]])
    made["facts"] = tuple([(_text(fact), _text(value)) for fact, value in made["facts"]])
    made["options"] = tuple([(_text(option), _text(value)) for option, value in made["options"]])
    for key in ("sifmod", "easyconfig", "version", "site", "accelerator", "plan_digest"):
        _text(made[key])
    _text_or_none(made["variant"])
    files = tuple([_file(*record) for record in fields["files"]])
    links = tuple([LinkRecord(_inside(path), _text(target)) for path, target in fields["links"]])
    stubs = tuple([_file(*record) for record in fields["stubs"]])
    if not {stub.path for stub in stubs} <= {f"{name}/{version}", f"{name}/{version}.lua"}:
        raise ValueError("a stub of another module")
    image = _image(fields["image"], prefix)
    module, made_for = ModuleName(name, version), _text(fields["root"])
    return Installation(module, number, generation, Provenance(**made), image, files, links, stubs, made_for)


def _place(generation: str) -> tuple[str, str, str, int]:
    """The prefix, name, version and number of a generation, by its path (see Layout.generation)."""
    prefix, name, _, version, number = generation.rsplit("/", 4)
    return prefix.removesuffix("/software"), name, version, int(number)


def _image(fields: dict[str, object], prefix: str) -> ImageRecord:
    sha256, filename, link = _digest(fields["sha256"]), _inside(fields["filename"]), _text(fields["link"])
    if "/" in filename or not 0 <= _whole(fields["size"]) < _HUGE:
        raise ValueError("no file's name or size")
    stored = f"{prefix}/images/sha256/{sha256}.sif"
    path = _text(fields["path"]) if link == "reference" else stored
    origin = from_fields(fields["origin"]) if "origin" in fields else NO_ORIGIN
    return ImageRecord(
        sha256, _whole(fields["size"]), _text(fields["source"]), _text(fields["arch"]), link, filename, path, origin
    )


def _file(path: object, sha256: object, mode: object) -> FileRecord:
    return FileRecord(_inside(path), _digest(sha256), _whole(mode) & 0o777)


def _inside(path: object) -> str:
    """A path that leads nowhere else than down."""
    text = _text(path)
    if not text or text[0] == "/" or ".." in text.split("/"):
        raise ValueError(f"{text!r} leads out of its place")
    return text


def _digest(text: object) -> str:
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise ValueError("no SHA-256")
    return text


def _text(text: object) -> str:
    """Any text that the system takes as a path; what is shown of it is for the terminal to make harmless."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}")
    if not text.isprintable() and b"\0" in text.encode():  # which fails for half of a surrogate pair
        raise ValueError("a text with a NUL")
    return text


def _text_or_none(text: object) -> str | None:
    return None if text is None else _text(text)


def _whole(number: object) -> int:
    if type(number) is not int:
        raise TypeError(f"expected a number, got {type(number).__name__}")
    return number


def read_receipt(generation: Path) -> Installation | None:
    """The installation of the generation at this path; None when it has no receipt that can be read."""
    try:
        return from_json(read(f"{generation}/{RECEIPT}"), str(generation))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
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
    return tuple(sorted(int(name) for name in _names(layout.generations(module)) if is_number(name)))


def is_number(text: str) -> bool:
    """Whether `text` is how a generation's directory is called."""
    return _NUMBER.fullmatch(text) is not None


def all_generations(layout: Layout, module: ModuleName) -> tuple[Installation, ...]:
    """Every generation of `module` that is on disk with a readable receipt, oldest first, live or not."""
    found = (read_receipt(layout.generation(module, number)) for number in numbers(layout, module))
    return tuple(installation for installation in found if installation is not None)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(filter(is_part, os.listdir(directory)))  # noqa: PTH208 (plain names)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _number(switch: Path, version: str) -> int | None:
    try:
        target = os.readlink(switch)  # noqa: PTH115 (compared as text)
    except OSError:
        return None
    directory, _, number = target.rpartition("/")
    return int(number) if directory == f".generations/{version}" and is_number(number) else None
