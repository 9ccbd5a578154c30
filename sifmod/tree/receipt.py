"""An Installation and its receipt: the inputs of one generation, and all files that sifmod wrote."""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sifmod.config.kinds import SYNTAXES, stub_path
from sifmod.config.name import ModuleName, is_part
from sifmod.errors import ViewError
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin, from_fields
from sifmod.result import Arch, Described, Named, PathText, Sha256, Size, Source
from sifmod.tree import provenance as provenances
from sifmod.tree.durable import is_refused, is_there, names, parsed, read
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.provenance import Provenance

FORMAT = 2
_NUMBER = re.compile("[1-9][0-9]{0,17}")
_SHA256 = re.compile("[0-9a-f]{64}")
_OUT = re.compile(r"(?:\A|\n)(?:/|\n|\Z)|(?:\A|[/\n])\.\.(?:[/\n]|\Z)")  # absolute, empty, or with ..
_HUGE = 1 << 60  # bytes; larger than any image


class FileRecord(NamedTuple):
    """A file written by sifmod. `path` is relative to the generation, or for a stub to `<prefix>/modules`."""

    path: str
    sha256: str
    mode: int


class LinkRecord(NamedTuple):
    """A symlink made by sifmod; `path` is relative to the generation, `target` is the link's text."""

    path: str
    target: str


class ImageRecord(NamedTuple):
    """The SIF of an installation."""

    sha256: Sha256
    size: Size
    source: Source  # its source, without a query
    arch: Arch
    link: Annotated[str, Described("copy, hardlink or reference")]  # how it came into the store, or that it did not
    filename: Annotated[str, Described("name of the link in the generation")]
    path: PathText  # in the store, or the user's own file when it is only referenced
    origin: Annotated[ImageOrigin, Named("made_from")] = NO_ORIGIN


@dataclass(frozen=True)
class Installation:
    """One generation of a module, from its receipt."""

    module: ModuleName
    generation: int
    root: str
    provenance: Provenance
    image: ImageRecord | None  # None for a view
    files: tuple[FileRecord, ...]
    links: tuple[LinkRecord, ...]
    stubs: tuple[FileRecord, ...]
    modules: tuple[str, ...] = ()  # loaded by a view

    @property
    def required_image(self) -> ImageRecord:
        """The image of a module that must have one. Raises ViewError for a view."""
        if self.image is None:
            raise ViewError(self.module, self.modules)
        return self.image

    @property
    def image_sha256(self) -> str:
        """The SHA-256 of the image; "" for a view."""
        return self.image.sha256 if self.image else ""

    @property
    def prefix(self) -> Path:
        """The prefix of the tree that the generation is in (see Layout.generation)."""
        return Path(self.root).parents[4]

    @property
    def paths(self) -> frozenset[str]:
        """The relative paths of all files and links that sifmod made in the generation, including the receipt."""
        return frozenset((RECEIPT, *(file.path for file in self.files), *(link.path for link in self.links)))


def as_data(installation: Installation) -> dict[str, Any]:
    """The installation as JSON data. `to_json` leaves out `root`, and gives a stored image's path below the prefix."""
    image = installation.image
    return {
        "format": FORMAT,
        "name": installation.module.name,
        "version": installation.module.version,
        "generation": installation.generation,
        "root": installation.root,
        "provenance": provenances.as_data(installation.provenance),
        "image": image and image._asdict() | {"origin": image.origin.as_data()},
        "modules": installation.modules,
        "files": installation.files,
        "links": installation.links,
        "stubs": installation.stubs,
    }


def to_json(installation: Installation) -> str:
    """The receipt's text, the same in any prefix; compact, because `list` reads hundreds of them."""
    fields = as_data(installation)
    prefix, *_ = _place(fields.pop("root"))
    if image := fields["image"]:
        image["path"] = image["path"].removeprefix(f"{prefix}/")
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


@lru_cache(maxsize=2)  # an install needs the live generation's several times
def from_json(text: str | bytes, generation: str) -> Installation:
    """Parse the receipt, written by `to_json`, of the generation at this path.

    Other members of a group may have written it. Therefore types are checked, and that it is the receipt for this path,
    that its files and links are inside, that its stubs belong to its module, and that a stored image has its path in
    the store. Raises ValueError, KeyError, TypeError or RecursionError otherwise.
    """
    fields = json.loads(text)
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, expected {FORMAT}")
    prefix, name, version, number = _place(generation)
    if (fields["name"], fields["version"], fields["generation"]) != (name, version, number):
        raise ValueError("it is the receipt of another generation")
    provenance, modules = provenances.from_data(fields["provenance"]), tuple(fields["modules"])
    image = None if modules else _image(fields["image"], prefix)
    files, stubs = _files(fields["files"]), _files(fields["stubs"])
    links = tuple([LinkRecord(path, target) for path, target in fields["links"]])
    _check_inside([link.path for link in links])
    _check_texts([*provenances.texts(provenance), *(link.target for link in links), *modules])
    if not {stub.path for stub in stubs} <= {stub_path(f"{name}/{version}", syntax) for syntax in SYNTAXES}:
        raise ValueError("a stub of another module")
    module = ModuleName(name, version)
    return Installation(module, number, generation, provenance, image, files, links, stubs, modules)


def _place(generation: str) -> tuple[str, str, str, int]:
    """The prefix, name, version and number of a generation, by its path (see Layout.generation)."""
    prefix, name, _, version, number = generation.rsplit("/", 4)
    return prefix.removesuffix("/software"), name, version, int(number)


def _image(fields: dict[str, Any], prefix: str) -> ImageRecord:
    sha256, filename, link, size = fields["sha256"], fields["filename"], fields["link"], fields["size"]
    origin = from_fields(fields["origin"])
    path = fields["path"] if link == "reference" else f"images/sha256/{sha256}.sif"
    _check_digests([sha256])
    _check_texts([path])
    if not path.startswith("/"):  # it is in the prefix, which may have moved
        _check_inside([path])
        path = f"{prefix}/{path}"
    _check_inside([filename])
    _check_texts([link, fields["source"], fields["arch"]])
    if "/" in filename or type(size) is not int or not 0 <= size < _HUGE:
        raise ValueError("an invalid file name or size")
    return ImageRecord(sha256, size, fields["source"], fields["arch"], link, filename, path, origin)


def _files(records: list[tuple[Any, Any, Any]]) -> tuple[FileRecord, ...]:
    found = tuple([FileRecord(path, sha256, mode) for path, sha256, mode in records])
    _check_inside([file.path for file in found])
    _check_digests([file.sha256 for file in found])
    if not all([type(file.mode) is int and 0 <= file.mode <= 0o7777 for file in found]):  # noqa: C419 (the quickest)
        raise TypeError("an invalid mode")
    return found


# Each check takes a whole list at once, because `list` reads hundreds of receipts with dozens of files. A value that is
# not a text makes `join` raise TypeError, as `from_json` documents.


def _check_texts(texts: list[str]) -> None:
    """Raise ValueError for a NUL or half of a surrogate pair; other control characters are escaped when printed."""
    joined = "".join(texts)
    if not joined.isprintable() and b"\0" in joined.encode():  # fails for half of a surrogate pair
        raise ValueError("a text with a NUL")


def _check_inside(paths: list[str]) -> None:
    """Raise ValueError unless the paths stay inside the directory that they are relative to."""
    _check_texts(paths)
    if paths and _OUT.search("\n".join(paths)):
        raise ValueError("a path that leaves its directory")


def _check_digests(digests: list[str]) -> None:
    if not all(map(_SHA256.fullmatch, digests)):
        raise ValueError("no SHA-256")


def read_receipt(generation: Path) -> Installation | None:
    """The installation of the generation at this path; None without a readable receipt."""
    with suppress(OSError):
        return known_receipt(generation)
    return None


def known_receipt(generation: Path) -> Installation | None:
    """Like `read_receipt`, but raises OSError if the disk fails."""
    return parsed(f"{generation}/{RECEIPT}", lambda text: from_json(text, str(generation)))


def live_number(layout: Layout, module: ModuleName) -> int | None:
    """The number of the live generation; None if the module's switch is missing, closed or not a link of sifmod.

    Raises OSError if the disk fails: treating that as missing would remove a live generation.
    """
    try:
        target = os.readlink(f"{layout.prefix}/software/{module}")  # noqa: PTH115 (a text: `list` asks for hundreds)
    except OSError as error:
        if not is_refused(error):
            raise
        return None
    directory, _, number = target.rpartition("/")
    return int(number) if directory == f".generations/{module.version}" and is_number(number) else None


def live(layout: Layout, module: ModuleName) -> Installation | None:
    """The live installation of `module`; None if there is none, or its receipt is missing, closed or damaged.

    Raises OSError if the disk fails: treating that as missing would lose the user's additions.
    """
    number = live_number(layout, module)
    return None if number is None else known_receipt(layout.generation(module, number))


def live_modules(layout: Layout) -> tuple[tuple[ModuleName, int], ...]:
    """Every module that has a live generation, and its number, sorted by name; no receipt is read."""
    found = []
    for name in filter(is_part, names(layout.software)):
        for version in filter(is_part, _versions(layout, name, "")):
            module = ModuleName(name, version)
            if (number := live_number(layout, module)) is not None:
                found.append((module, number))
    return tuple(found)


def installations(layout: Layout) -> tuple[Installation, ...]:
    """Every live installation, sorted by module; damaged ones are skipped (`list` and `verify` report them)."""
    found = (read_receipt(layout.generation(module, number)) for module, number in live_modules(layout))
    return tuple(installation for installation in found if installation is not None)


def known_modules(layout: Layout) -> tuple[ModuleName, ...]:
    """Every module with a directory for generations, installed or not, sorted by name."""
    found = []
    for name in filter(is_part, names(layout.software)):
        for version in filter(is_part, _versions(layout, name, ".generations")):
            found.append(ModuleName(name, version))  # noqa: PERF401 (two loops read better)
    return tuple(found)


def _versions(layout: Layout, name: str, below: str) -> list[str]:
    """The names in a directory of `software/NAME`; none if it is closed and no user can load a module of that name."""
    try:
        return names(layout.software / name / below)
    except PermissionError:
        if is_there(layout.modules / name):
            raise
        return []  # a user's own directory


def numbers(layout: Layout, module: ModuleName) -> tuple[int, ...]:
    """The numbers of all generations on disk, oldest first."""
    return tuple(sorted(int(name) for name in names(layout.generations(module)) if is_number(name)))


def is_number(text: str) -> bool:
    """Whether `text` is a valid name of a generation's directory."""
    return _NUMBER.fullmatch(text) is not None


_NO_VIEW = b'"modules":[]'  # search the text first: most receipts are not parsed


def views_of(layout: Layout, module: ModuleName) -> tuple[tuple[ModuleName, str], ...]:
    """The installed views that load this module, each with its name in the view."""
    found = []
    for view, number in live_modules(layout):
        installation = view_at(layout, view, number)
        found += [(view, one) for one in (installation.modules if installation else ()) if matches(one, str(module))]
    return tuple(found)


def view_at(layout: Layout, module: ModuleName, number: int | None) -> Installation | None:
    """A generation of a view; None for another module's. Receipts of modules with an image are not parsed."""
    if number is None:
        return None
    root = layout.generation(module, number)
    with suppress(OSError):
        if _NO_VIEW in read(root / RECEIPT):
            return None
    return read_receipt(root)


def matches(wanted: str, module: str) -> bool:
    """Whether a module system may load `module` for the word `wanted`: its name, its full name, or a prefix of it."""
    end = "[-_.+]" if "/" in wanted else "/"
    return module == wanted or re.match(re.escape(wanted) + end, module) is not None
