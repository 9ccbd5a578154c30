"""The packages of an image's Python, read from its files: nothing of the image is started."""

import csv
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from posixpath import basename, dirname, join, normpath

from sifmod.errors import ImageError
from sifmod.image.inspect.python_environments import (
    PythonEnvironment,
    environment_of,
    find_environments,
    library_prefix,
    software_environment,
)
from sifmod.image.inspect.rootfs import Rootfs, find_command, search_path
from sifmod.image.packages.image_python import Distribution, ImagePython, has_valid_name, is_among

_ACTIVE = ("WITH_CONDA", "VIRTUAL_ENV", "CONDA_PREFIX")
_HEAD = 1 << 16  # bytes of a program, in which it names its loader
_LARGEST = 32 << 20  # bytes of a RECORD, or of what conda has noted of a package
_LIBC = ("/lib/{0}-linux-gnu", "/usr/lib/{0}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_GLIBC = re.compile(rb"GNU C Library [^\n]*version 2\.([0-9]{1,3})")
_KNOWN = (17, 28, *range(31, 41))  # each x of the glibc 2.x that uv has a platform for
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class BasePython:
    """The Python of the image in `rootfs`. New packages go to `library`, and their commands below `prefix`."""

    rootfs: Rootfs
    python: ImagePython
    library: str
    prefix: str
    platform: str  # as uv calls it
    later: frozenset[str] = frozenset()  # directories searched after `library`: packages there are hidden, not removed

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments for uv that describe this Python."""
        return ("--python-version", self.python.short, "--python-platform", self.platform, "--only-binary", ":all:")


class _Metadata(metadata.Distribution):
    """The distribution whose metadata directory or file is at `place`."""

    def __init__(self, rootfs: Rootfs, place: str) -> None:
        self._rootfs, self.place = rootfs, place

    def read_text(self, filename: str) -> str | None:
        return self._rootfs.read(join(self.place, filename).rstrip("/"), _LARGEST) or None

    def locate_file(self, path: "str | os.PathLike[str]") -> Path:
        return Path(dirname(self.place), path)


def read_base_python(
    rootfs: Rootfs, environment: Mapping[str, str], path: tuple[str, ...], arch: str, names: tuple[str, ...]
) -> BasePython:
    """The first Python in `path`, or the one of the image's `environment`.

    `names` are those of protected packages. Packages without a list of files, their own or conda's, cannot be removed:
    they are protected too. Raises ImageError without a Python, if another Python has the protected or the base's own
    packages, or if no packages can be chosen for it.
    """
    chosen = _chosen(rootfs, environment, path, names)
    if not chosen.library or not chosen.version:
        raise ImageError(
            f"the Python in {chosen.directory} of the base has an unknown version, or no directory for packages"
        )
    later = frozenset(chosen.libraries[chosen.libraries.index(chosen.library) + 1 :])
    found: dict[str, Distribution] = {}
    fixed: dict[str, str] = {}  # place → name
    places = (f"{library}/{name}" for library in chosen.libraries for name in rootfs.entries(library))
    for each in (_Metadata(rootfs, place) for place in places if place.endswith((".dist-info", ".egg-info"))):
        if (made := _distribution(each)) and made.key not in found:
            found[made.key] = made
            if not each.read_text("RECORD") and dirname(each.place) not in later:
                fixed[each.place] = made.key
    if fixed:
        every = frozenset(one.place for one in found.values())
        for package in conda_packages(rootfs, chosen.directory, every):
            if len(package.places) == 1:
                fixed = {place: name for place, name in fixed.items() if place not in package.places}
    library = chosen.library
    major, minor = map(int, chosen.version.split("."))
    bin_ = f"{chosen.directory}/bin"
    program = find_command(rootfs, f"python{chosen.version}", (bin_,)) or find_command(rootfs, "python3", (bin_,))
    stay, found = (*names, *fixed.values()), dict(sorted(found.items()))
    python = ImagePython(program or f"{bin_}/python", chosen.directory, (major, minor, 0), "", found, stay)
    return BasePython(rootfs, python, library, library_prefix(library), _platform(rootfs, arch, program), later)


def _chosen(
    rootfs: Rootfs, environment: Mapping[str, str], path: tuple[str, ...], names: tuple[str, ...]
) -> PythonEnvironment:
    def program_in(places: tuple[str, ...]) -> str:
        return find_command(rootfs, "python3", places) or find_command(rootfs, "python", places)

    if named := environment_of(rootfs, program_in(path), environment):
        return named
    environments = find_environments(rootfs, environment)
    active = next(iter(environments), None) if any(environment.get(name) for name in _ACTIVE) else None
    first = environment_of(rootfs, program_in(search_path(environment.get("PATH", ""))), environment)
    chosen = active or first or next(iter(environments), None)
    if chosen is None:
        raise ImageError("the base has no Python to add packages to", "use a base with one")
    if not _stays(chosen, names) and (other := next((one for one in environments if _stays(one, names)), None)):
        raise _which(chosen, other, f"{_stays(other, names)} of the base is in")
    # the image's Python for `wrappers: auto` and `sifmod new`
    software = None if active else software_environment(environments, first)
    if software and software.directory != chosen.directory:
        raise _which(chosen, software, "the base's own packages are in")
    return chosen


def _which(chosen: PythonEnvironment, other: PythonEnvironment, why: str) -> ImageError:
    return ImageError(
        f"packages would go to the Python in {chosen.directory}, but {why} {other.directory}",
        f"select one of them: `{_key_of(other)}` in the easyconfig, or `{_key_of(chosen)}`",
    )


def _stays(environment: PythonEnvironment, names: tuple[str, ...]) -> str:
    """The environment's first package among the protected `names`, torch before others; "" without one."""
    return next((key for key in sorted(environment.packages, key="torch".__ne__) if is_among(key, names)), "")


def _key_of(environment: PythonEnvironment) -> str:
    """The key of an easyconfig that selects the environment."""
    if environment.kind == "conda":
        return f"conda: {{prefix: {environment.prefix}, env: {environment.env}}}"
    if environment.kind == "venv":
        return f"venv: {environment.directory}"
    return f"path: [{environment.directory}/bin]"


def _distribution(each: _Metadata) -> Distribution | None:
    if not any(map(each.read_text, ("METADATA", "PKG-INFO", ""))):
        return None
    about = each.metadata
    name, version = str(about["Name"] or ""), str(about["Version"] or "")
    if not has_valid_name(name, version):
        return None
    names = (each.read_text("top_level.txt") or "").split() or [
        line.partition(",")[0].partition("/")[0] for line in (each.read_text("RECORD") or "").splitlines()
    ]
    modules = {one.partition(".")[0] for one in names if not one.endswith("-info")} - {"", "__pycache__"}
    pure = "Root-Is-Purelib: false" not in (each.read_text("WHEEL") or "")
    extras = tuple(map(str, about.get_all("Provides-Extra") or ()))
    return Distribution(name, version, pure, tuple(each.requires or ()), extras, each.place, tuple(sorted(modules)))


def _platform(rootfs: Rootfs, arch: str, program: str) -> str:
    machine = _MACHINES.get(arch, arch)
    loader, musl = f"/lib/ld-musl-{machine}.so.1", f"{machine}-unknown-linux-musl"
    if loader.encode() in rootfs.data(program, _HEAD):  # a glibc image can have it too, for other programs
        return musl
    if fitting := [minor for minor in _KNOWN if minor <= glibc(rootfs, arch)]:
        return f"{machine}-manylinux_2_{fitting[-1]}"
    if rootfs.is_file(loader):
        return musl
    raise ImageError("the C library of the base is unknown, or a glibc before 2.17, so no wheels can be chosen for it")


def glibc(rootfs: Rootfs, arch: str) -> int:
    """The x of the image's glibc 2.x; 0 if it has another C library, or none."""
    for place in _LIBC:
        directory = place.format(_MACHINES.get(arch, arch))
        if version := _GLIBC.search(rootfs.data(f"{directory}/libc.so.6", _LARGEST)):
            return int(version[1])
    return 0


def files_of(base: BasePython, replaced: Sequence[Distribution]) -> tuple[str, ...]:
    """The absolute paths of all files that only the distributions `replaced` have, and of their bytecode.

    The files are those of their RECORDs, and their metadata directories. Excluded are, as with pip, files outside of
    the Python's prefix, files that another distribution has too, and those in a directory after `base.library` on the
    search path. A conda package without other distributions is removed completely, with conda's record.
    """
    rootfs, found = base.rootfs, list[str]()
    replaced = [one for one in replaced if dirname(one.place) not in base.later]
    for one in replaced:
        prefix = library_prefix(dirname(one.place))
        own = [path for path in recorded(rootfs, one) if path.startswith(f"{prefix}/")]
        found += (one.place, *_there(rootfs, own)) if own else ()
    gone = frozenset(one.place for one in replaced)
    every = frozenset(one.place for one in base.python.distributions.values())
    for package in conda_packages(rootfs, base.python.prefix, every) if gone else ():
        if package.places <= gone:
            found += (package.record, *package.places, *_there(rootfs, package.files))
    others = (one for one in base.python.distributions.values() if one.place not in gone)
    shared = {path for one in others for path in recorded(rootfs, one)} if gone else set()
    return tuple(path for path in dict.fromkeys(found) if path not in shared)


def _there(rootfs: Rootfs, paths: Iterable[str]) -> Iterator[str]:
    """Those of `paths` that exist in the image, and their bytecode."""
    wanted = list(paths)
    for directory, names in _by_directory(wanted):
        there = files_in(rootfs, directory)
        yield from (f"{directory}/{name}" for name in sorted(names & there))
    yield from bytecode_of(rootfs, wanted)


def bytecode_of(rootfs: Rootfs, paths: Iterable[str]) -> Iterator[str]:
    """The bytecode in the image for the Python files in `paths`, as absolute paths."""
    for directory, names in _by_directory(paths):
        stems = {name.removesuffix(".py") for name in names if name.endswith(".py")}
        if stems and not directory.endswith("/__pycache__"):
            compiled = files_in(rootfs, f"{directory}/__pycache__")
            yield from (f"{directory}/__pycache__/{one}" for one in sorted(compiled) if one.partition(".")[0] in stems)


def _by_directory(paths: Iterable[str]) -> list[tuple[str, set[str]]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        found[dirname(path)].add(basename(path))
    return sorted(found.items())


def recorded(rootfs: Rootfs, distribution: Distribution) -> Iterator[str]:
    """The absolute paths in the distribution's RECORD, existing or not. Raises ImageError for an unreadable RECORD."""
    record = f"{distribution.place}/RECORD"
    try:
        for row in csv.reader(rootfs.read(record, _LARGEST).splitlines()):
            yield "/" + normpath(join(dirname(distribution.place), *row[:1])).lstrip("/")  # POSIX keeps two slashes
    except csv.Error as error:
        raise ImageError(f"{record} of the base cannot be read: {error}") from error


def files_in(rootfs: Rootfs, directory: str) -> set[str]:
    """The names in a directory that are not directories; none if there is no such directory."""
    found = rootfs.reader.lookup(directory)
    if found is None or found.kind != "d":
        return set()
    entries = rootfs.reader.entries(found)
    return {os.fsdecode(name) for name, reference in entries if rootfs.reader.stat(reference).kind != "d"}


@dataclass(frozen=True)
class CondaPackage:
    """A conda package with Python distributions: its record, and the absolute paths in the record, existing or not.

    conda keeps one JSON for each package of an environment, below its `conda-meta`:
    https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/install.html.
    """

    record: str
    files: tuple[str, ...]
    places: frozenset[str]  # metadata directories or files of its distributions


def conda_packages(rootfs: Rootfs, prefix: str, places: frozenset[str]) -> Iterator[CondaPackage]:
    """The packages of the environment in `prefix` with distributions whose metadata is at one of `places`.

    Files outside of the environment are skipped, and so are records that conda could not read. Raises ImageError for a
    damaged image.
    """
    meta = f"{prefix}/conda-meta"
    for name in rootfs.entries(meta):
        if name.endswith(".json"):
            files = tuple(_conda_files(rootfs.read(f"{meta}/{name}", _LARGEST), prefix))
            if found := places & {place for file in files for place in (file, dirname(file))}:
                yield CondaPackage(f"{meta}/{name}", files, found)


def _conda_files(record: str, prefix: str) -> Iterator[str]:
    try:
        named = json.loads(record)["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for one in named if isinstance(named, list) else ():
        path = normpath(join(prefix, one)) if isinstance(one, str) else ""
        if path.startswith(f"{prefix}/"):
            yield path
