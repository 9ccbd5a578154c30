"""build: a SIF that the site's runtime builds from a definition file, whose inputs have one digest.

https://apptainer.org/docs/user/latest/definition_files.html. What `%setup` and `%post` bring is not known beforehand.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Request
from sifmod.image.disk import reading
from sifmod.image.reference import Reference, SourceKind, nothing, says_nothing
from sifmod.image.sources.runtime import run_runtime
from sifmod.image.stored import stored, to_bring
from sifmod.module.origin import NO_ORIGIN, ImageOrigin

_WORD = re.compile(r"""[^\s"']+|"([^"]*)"|'([^']*)'""")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ARGUMENT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_LOCAL = ("localimage", "oci", "oci-archive", "docker-archive")
_CHUNK = 1 << 20  # bytes
_MOST = 100_000  # files of one directory, and words of one pattern


def inputs(definition: Path) -> tuple[Path, ...]:
    """The definition, and what its `%files` and a local base name, with all that is in a directory; sorted.

    Of a pattern the directory is among them, where another file may come to fit. A file need not be there.
    """
    found = {definition}
    for named in _named(definition):
        own = os.path.expanduser(named)  # noqa: PTH111 (which leaves the home of nobody as it is)
        for word in islice(_expanded(os.path.expandvars(own)), _MOST):
            pattern = Path(definition.parent, word)
            if re.search(r"[*?\[]", word):
                found.add(pattern.parent)
                places = list(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
            else:
                places = [pattern]
            for place in places:
                found |= {place, *islice(_below(place), _MOST)}
    return tuple(sorted(found))


def _expanded(word: str) -> Iterator[str]:
    """What a shell makes of `{a,b}`; several stars are one, since no pattern of the runtime's leads further down."""
    if braces := _BRACES.search(word):
        for part in braces[1].split(","):
            yield from _expanded(f"{word[: braces.start()]}{part}{word[braces.end() :]}")
    else:
        yield re.sub(r"\*+", "*", word)


def _below(place: Path) -> Iterator[Path]:
    """All that is in a directory, through links too, as the runtime copies it; a directory is entered once."""
    entered: set[str] = set()
    for directory, directories, files in os.walk(place, followlinks=True):
        real = os.path.realpath(directory)
        if real in entered:
            directories.clear()
            continue
        entered.add(real)
        yield from (Path(directory, name) for name in sorted((*directories, *files)))


def inputs_digest(definition: Path) -> str:
    """`sha256:…` of the definition and of the files that it takes: of their names, modes and bytes.

    It is the same in another directory. Raises FetchError for what cannot be read.
    """
    digest = hashlib.sha256()
    for path in inputs(definition):
        with reading(path):
            if path.is_file() or path == definition:
                name = "" if path == definition else str(path).removeprefix(f"{definition.parent}/")
                about = f"{name}\0{path.stat().st_mode & 0o777:o}\0{path.stat().st_size}\0"
                digest.update(os.fsencode(about))
                with path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _named(definition: Path) -> Iterator[str]:
    """Each source of `%files` and `%appfiles` that is no other stage's, and the `From` of a local base."""
    try:
        text = definition.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return  # the build says so
    section = header = ""
    arguments: dict[str, str] = {}
    found: list[str] = []
    for line in (each.strip() for each in text.splitlines()):
        key, _, value = line.partition(":")
        if line.startswith("%"):
            section = " ".join(line.split())
        elif key.lower() == "bootstrap":  # the header of a stage
            section, header = "", value.strip().lower()
        elif section.startswith("%arguments"):
            name, _, value = line.partition("=")
            arguments[name.strip()] = value.strip()
        elif not section and key.lower() == "from" and header in _LOCAL:
            found.append(value.strip())
        elif section.startswith(("%files", "%appfiles")) and not section.startswith("%files from") and line[:1] != "#":
            found.append(line)
    for line in found:
        if word := _WORD.match(_ARGUMENT.sub(lambda each: arguments.get(each[1], each[0]), line)):
            yield word[1] or word[2] or word[0]


def _pinned(request: Request) -> Fetched | None:
    """What was built before of the same definition and the same files. Raises FetchError where one is not there."""
    made = stored(request, inputs_digest(_definition(request)))
    return made and replace(made, notes=("the same definition and files were built before, and are not built again",))


def _announced(request: Request) -> int | None:
    made = _pinned(request)
    return to_bring(made, request) if made else None


def _build(request: Request) -> Fetched:
    """Relative paths in the definition file count from its directory."""
    definition = _definition(request)
    before = inputs_digest(definition)
    with request.store.workspace() as workspace:
        command = ("build", "--force", "--disable-cache", str(request.incoming), str(definition))
        built = run_runtime(request, command, workspace, definition.parent)
    return replace(built, origin=ImageOrigin(manifest=before) if inputs_digest(definition) == before else NO_ORIGIN)


def _definition(request: Request) -> Path:
    definition = Path(request.reference.location).absolute()
    if not definition.is_file():
        raise FetchError(f"there is no definition file {definition}")
    return definition


BUILD = SourceKind(
    name="build",
    schemes=(),
    example="/images/x.def",
    location="definition",
    parse=lambda kind, source: Reference(kind, source, source),
    watched=lambda reference, _: tuple(map(str, inputs(Path(reference.location)))),
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=_pinned,
    announced=_announced,
    fetch=_build,
)
