"""build: a SIF that the site's runtime builds from a definition file; one digest identifies its inputs.

https://apptainer.org/docs/user/latest/definition_files.html. Files from `%setup` and `%post` are not known beforehand.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from glob import escape
from pathlib import Path

from sifmod.config.build import OF_DEFINITION
from sifmod.config.limits import NotReadError, bound, found_within_limits, limits, read_bounded
from sifmod.config.pattern import Searched, TooMuchError
from sifmod.config.private import closed_to_author
from sifmod.config.text import Pairs
from sifmod.digest import sha256_bytes
from sifmod.errors import FetchError, SifmodError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest
from sifmod.image.builder import BuildMethod, build_method
from sifmod.image.disk import check_holes, reading, writing
from sifmod.image.program import probe_runtime
from sifmod.image.reference import Reference, SourceKind, nothing, says_nothing
from sifmod.image.registry.registry import Registry
from sifmod.image.sources.docker import DOCKER
from sifmod.image.sources.oci import OCI
from sifmod.image.sources.oras import ORAS
from sifmod.image.sources.runtime import run_runtime
from sifmod.image.stored import bytes_to_copy, stored
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.module.plan import BuildPlan
from sifmod.secret import cut
from sifmod.system import walk

_WORD = re.compile(r"""[^\s"']+|"([^"]*)"|'([^']*)'""")
_BRACES = re.compile(r"\{([^{},]*+,[^{}]*+)\}")
_ARGUMENT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_LOCAL = ("localimage", "oci", "oci-archive", "docker-archive")
_TAGGED = ("oci", "oci-archive")  # their `From` is PATH:TAG, or PATH
_REGISTRIES = ("docker", "oras")
_ENVIRONMENT = ("/.singularity.d/env/10-docker2singularity.sh", "/.singularity.d/env/90-environment.sh")
_MOST_BRACES = 100
_LONGEST = 4096  # characters of a line that names files or an image


def inputs(definition: Path, arguments: Pairs = ()) -> tuple[Path, ...]:
    """The definition, the files of its `%files` and a local base, with all files in a directory; sorted.

    `arguments` are those of the build, which override the definition's own.

    For a pattern its directory is included, where another file may match later. A file may be missing. Raises
    FetchError for too many files, and for one that is closed to the user who wrote the definition.
    """
    found = {definition}
    for number, path in enumerate(_named(definition, arguments), 1):
        if number > limits().build_files:
            raise FetchError(f"{definition} names more files than {bound('build_files')}", "list fewer in %files")
        if why := closed_to_author(path, definition):
            raise FetchError(f"{why}: the image would show what is in it", "open it to them, or copy the definition")
        found.add(path)
    return tuple(sorted(found))


def _named(definition: Path, arguments: Pairs) -> Iterator[Path]:
    """The files that a definition names, some of them several times."""
    searched = Searched()
    for named in (text for what, text in _read(definition, dict(arguments)) if what == "file"):
        own = os.path.expanduser(named)  # noqa: PTH111 (which leaves the home of nobody as it is)
        for word in _expanded(os.path.expandvars(own)):
            pattern = Path(definition.parent, word)
            if re.search(r"[*?\[]", word):
                yield pattern.parent
                places = _places(os.path.join(escape(str(definition.parent)), word), searched)  # noqa: PTH118 (a pattern)
            else:
                places = [pattern]
            for place in places:
                yield place
                yield from _below(place)


def _places(pattern: str, searched: Searched) -> list[Path]:
    """The matches of a pattern. Raises FetchError if it exceeds a limit."""
    try:
        return list(map(Path, found_within_limits(pattern, pattern, searched, hidden=True)))
    except TooMuchError as error:
        raise FetchError(str(error), "list the files in %files, or use a narrower pattern") from error


def _expanded(word: str) -> Iterator[str]:
    """Expand `{a,b}` like a shell; several stars are one, since the runtime's patterns do not recurse.

    Raises FetchError for too many braces, and for a word that is longer than a path.
    """
    _check_length(word)
    if word.count("{") > _MOST_BRACES:
        raise FetchError(f"a line of %files has more than {_MOST_BRACES} braces", "list the files one by one")
    todo = [word]
    while todo:
        word = todo.pop()
        if braces := _BRACES.search(word):
            parts = reversed(braces[1].split(","))
            todo += (f"{word[: braces.start()]}{part}{word[braces.end() :]}" for part in parts)
        else:
            yield re.sub(r"\*+", "*", word)


def _check_length(line: str) -> None:
    if len(line) > _LONGEST:
        raise FetchError(f"a line of the definition has more than {_LONGEST} characters: {cut(line, 60)}…")


def _with_arguments(line: str, arguments: Mapping[str, str]) -> str:
    """The line with the arguments that it uses. Raises FetchError if it is too long."""
    _check_length(line)
    line = _ARGUMENT.sub(lambda each: arguments.get(each[1], each[0])[: _LONGEST + 1], line)
    _check_length(line)
    return line


def _below(place: Path) -> Iterator[Path]:
    """All that is in a directory, also through links, as the runtime copies it; a directory is entered once."""
    entered: set[str] = set()
    for directory, directories, files in walk(place, follow=True):
        real = os.path.realpath(directory)
        if real in entered:
            directories.clear()
            continue
        entered.add(real)
        yield from (Path(directory, name) for name in sorted((*directories, *files)))


def inputs_digest(definition: Path, arguments: Pairs = ()) -> str:
    """`sha256:…` of the definition, the arguments and its files: their names, modes and bytes.

    It is the same in another directory. Raises FetchError or PermissionsError for unreadable files.
    """
    digest = hashlib.sha256(json.dumps(arguments).encode() if arguments else b"")
    for path in inputs(definition, arguments):
        with reading(path):
            if os.path.isfile(path) or path == definition:  # noqa: PTH113 (closed directories)
                name = "" if path == definition else str(path).removeprefix(f"{definition.parent}/")
                about = f"{name}\0{path.stat().st_mode & 0o777:o}\0{path.stat().st_size}\0"
                digest.update(os.fsencode(about))
                with path.open("rb") as file:
                    hashlib.file_digest(file, lambda: digest)
    return f"sha256:{digest.hexdigest()}"


def bases(definition: Path, arguments: Pairs = ()) -> tuple[str, ...]:
    """The images in registries that the definition's stages start from, as sources: docker://…, oras://…"""
    return tuple(text for what, text in _read(definition, dict(arguments)) if what == "base")


def _read(definition: Path, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The inputs that a definition names, each with its kind.

    A `file` is a source of `%files` and `%appfiles` that is not from another stage, or a local base; a `base` an image
    in a registry; `unknown` another bootstrap agent. Raises FetchError for a file that is too large or not a text.
    """
    try:
        text = read_bounded(definition, "build_text_size").decode("utf-8", "surrogateescape")
    except NotReadError as error:
        raise FetchError(str(error)) from error
    except OSError:
        return  # the build reports it
    if "\0" in text:
        raise FetchError(f"{definition} contains a NUL character, so it is not a definition file")
    section = ""
    header: dict[str, str] = {}
    arguments: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for line in (each.strip() for each in text.splitlines()):
        key, _, value = line.partition(":")
        if line.startswith("%"):
            section = " ".join(line.split())
        elif key.lower() == "bootstrap":  # the header of a stage
            section, header = "", {"bootstrap": value.strip().lower()}
            if header["bootstrap"] not in (*_LOCAL, *_REGISTRIES, "scratch"):
                yield "unknown", header["bootstrap"]
        elif section.startswith("%arguments"):
            name, _, value = line.partition("=")
            arguments[name.strip()] = value.strip()
        elif not section:
            header[key.lower()] = value.strip()
            if key.lower() == "from" and header.get("bootstrap") in _LOCAL:
                found.append(("layout" if header["bootstrap"] in _TAGGED else "file", value.strip()))
            elif key.lower() == "from" and header.get("bootstrap") in _REGISTRIES:
                place = "/".join(filter(None, (header.get("registry"), header.get("namespace"), value.strip())))
                _check_length(place)
                found.append(("base", f"{header['bootstrap']}://{place}"))
        elif section.startswith(("%files", "%appfiles")) and not section.startswith("%files from") and line[:1] != "#":
            found.append(("file", line))
    arguments.update(given)
    for what, line in found:
        if word := _WORD.match(_with_arguments(line, arguments)):
            text = word[1] or word[2] or word[0]
            yield ("file", OCI.reference(f"oci:{text}").location) if what == "layout" else (what, text)


def remote_digests(request: FetchRequest, sources: tuple[str, ...]) -> str:
    """A digest of what registries have for `sources` without a digest; "" if one is unavailable, as with --offline.

    Raises FetchError for too many sources.
    """
    found = []
    if len(sources) > limits().build_images:
        raise FetchError(f"the build starts or copies from more images than {bound('build_images')}")
    for source in sources:
        kind = ORAS if source.startswith("oras:") else DOCKER
        try:
            reference = kind.reference(source)
            if not reference.digest:
                if request.image.offline:
                    return ""
                found.append(Registry(reference, request.settings, request.image.arch).manifest().digest)
        except FetchError:
            return ""  # the builder may know a way, and says what is wrong
    return f"sha256:{sha256_bytes(json.dumps(found).encode())}"


def built_before(request: FetchRequest, files: str, bases: str) -> Fetched | None:
    """An earlier image built from the same `files` and `bases`, two digests (bases: "" for any); None without one."""
    made = stored(request, key_of(files, bases).manifest if bases else files)
    unasked = () if bases else ("its bases could not be looked up, and may have changed",)
    return made and replace(made, notes=("an earlier build of the same files is used", *unasked))


def key_of(files: str, bases: str) -> ImageOrigin:
    """The keys of a built image in the store: `manifest` includes the bases, if known; `index` is without them."""
    if not bases:
        return ImageOrigin(manifest=files)
    return ImageOrigin(index=files, manifest=f"sha256:{sha256_bytes(f'{files} {bases}'.encode())}")


def _known(request: FetchRequest) -> tuple[str, str]:
    """Digests of the current inputs of the build, and of its bases. Raises FetchError for a missing file."""
    definition, arguments = _definition(request)
    with request.store.workspace() as place:
        files = filter(os.path.isfile, inputs(definition, arguments))
        check_holes(map(Path, map(os.path.realpath, files)), place, "remove it from %files")
    return inputs_digest(definition, arguments), remote_digests(request, bases(definition, arguments))


def _pinned(request: FetchRequest) -> Fetched | None:
    """An earlier image built from the same definition and files, or None. Raises FetchError for a missing file."""
    return built_before(request, *_known(request))


def _announced(request: FetchRequest) -> int | None:
    """Bytes of the build's bases and files, without the downloads of `%post`; None if unknown."""
    if made := _pinned(request):
        return bytes_to_copy(made, request)
    definition, arguments = _definition(request)
    if any(what == "unknown" for what, _ in _read(definition, dict(arguments))):
        return None
    return size_of(
        request, (file for file in inputs(definition, arguments) if file != definition), bases(definition, arguments)
    )


def size_of(request: FetchRequest, files: Iterable[Path], sources: tuple[str, ...]) -> int | None:
    """Bytes of these local files and of the images of these sources; None if the size of one is unknown."""
    total = sum(file.stat().st_size for file in filter(os.path.isfile, files))
    for source in sources:
        kind = ORAS if source.startswith("oras:") else DOCKER
        try:
            size = kind.announced(replace(request, reference=kind.reference(source)))
        except SifmodError:  # the builder may know a way, and says what is wrong
            size = None
        if size is None:
            return None
        total += size
    return total


def _build(request: Fetching) -> Fetched:
    """Build the SIF. Relative paths in the definition file start at its directory."""
    definition, arguments = _definition(request)
    way = build_method(probe_runtime(request.runtime.path))
    known = _known(request)
    with request.store.workspace() as workspace:
        given = tuple(f"--build-arg={name}={value}" for name, value in arguments)
        options = ("--force", "--disable-cache", *way.options, *given)
        command = ("build", *options, str(request.incoming), str(definition))
        built = run_runtime(request, command, workspace, definition.parent)
    return replace(built, origin=key_of(*known) if _known(request) == known else NO_ORIGIN)


def _definition(request: FetchRequest) -> tuple[Path, Pairs]:
    definition = Path(request.reference.location).absolute()
    if not definition.is_file():
        raise FetchError(f"there is no definition file {definition}")
    return definition, tuple(sorted(request.image.build.arguments)) if request.image.build else ()


def definition_upon(build: BuildPlan, post: str) -> str:
    """The definition file that runs commands in `base.sif` beside it, which has everything else of the recipe already.

    The commands see the variables of the image, with its Python first in PATH. Raises FetchError for a path with a
    part that a builder would read.
    """
    path = ":".join((*build.path, "$PATH"))
    begin = "".join(f"[ ! -e {script} ] || . {script}\n" for script in _ENVIRONMENT)
    begin = f"set +e\n{begin}set -e\nexport PATH={path}\n" if build.path else f"set +e\n{begin}set -e\n"
    parts = ["Bootstrap: localimage\nFrom: base.sif\n"]
    parts += [f"%post\n{begin}{post}\n"] if post else []
    parts += [f"%test\n{begin}{build.test}\n"] if build.test else []
    if found := re.search(OF_DEFINITION, f"{begin}{post}\n{build.test}"):
        raise FetchError(f"a path of the base contains {found[0].strip()!r}, which has a meaning in a definition file")
    return "\n".join(parts)


def build_upon(request: Fetching, way: BuildMethod, workspace: Path, definition: str, glibc: int) -> Fetched:
    """Build the SIF `request.incoming` with the runtime, from a definition on `base.sif` in `workspace`.

    `glibc` is the x of the base's glibc 2.x: this machine's fakeroot only runs inside if that is not older than this
    machine's. Raises what `run_runtime` raises.
    """
    with writing(workspace):
        (workspace / "image.def").write_text(definition)
    here = re.search(r"2\.([0-9]+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    options = way.options
    if way.one_user and request.runtime.kind == "apptainer" and not (here and int(here[1]) <= glibc):
        options += ("--ignore-fakeroot-command",)
    command = ("build", "--force", "--disable-cache", *options, str(request.incoming), "image.def")
    return run_runtime(request, command, workspace, workspace, way.before)


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
