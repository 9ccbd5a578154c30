"""The Python environments of an image (conda, venv, the system's) and the packages in them, read from its files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sifmod.image.inspect.rootfs import Rootfs, search_path

Kind = Literal["conda", "venv", "prefix", "system"]

_USUAL_CONDA = ("conda", "miniconda3", "miniconda", "miniforge3", "miniforge", "mambaforge", "anaconda3", "micromamba")
_USUAL_VENV = ("/opt/venv", "/venv", "/.venv", "/app/.venv", "/app/venv", "/workspace/.venv", "/workspace/venv")
_DIST = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[0-9][A-Za-z0-9.!+_-]*?)(?:-py[0-9.]+)?\.(?:dist|egg)-info"
)
_NAMEABLE = re.compile(r"/[A-Za-z0-9_@+./-]{0,200}")  # a directory that an easyconfig may name
_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_LIBRARY = re.compile(r"python(3\.[0-9]{1,2})")
_ACTIVATE = re.compile(r"(?:source|\.)\s+(/[^\s;&|]*)/bin/activate(?:\s+([A-Za-z0-9._+-]+))?")


@dataclass(frozen=True)
class PythonEnvironment:
    """One place with a Python: `directory` holds bin/python.

    A conda environment has the `prefix` and the `env` by which conda knows it. A `prefix` environment is any other
    directory that needs only its bin in PATH; the `system` one is there without anything. `packages` maps normalized
    names to versions. `version` is 3.11 or the like, "" where it was not found.
    """

    kind: Kind
    directory: str
    version: str
    packages: Mapping[str, str]
    prefix: str = ""
    env: str = ""
    libraries: tuple[str, ...] = ()  # where the packages are


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(entry: str) -> tuple[str, str] | None:
    """The name and the version that the name of a `.dist-info` or `.egg-info` tells; None for any other name."""
    match = _DIST.fullmatch(entry)
    return (match["name"], match["version"]) if match else None


def activated_environment(command: str) -> str:
    """The directory of the environment that a command like `source …/bin/activate NAME` activates; "" for any other."""
    match = _ACTIVATE.search(command)
    if match is None:
        return ""
    return f"{match[1]}/envs/{match[2]}" if match[2] and match[2] != "base" else match[1]


def find_environments(rootfs: Rootfs, environment: Mapping[str, str]) -> tuple[PythonEnvironment, ...]:
    """Every environment: first what the image's variables and PATH name, then the usual places, the system's last.

    `environment` is the image's. Raises ImageError for a damaged image.
    """
    found: dict[str, PythonEnvironment] = {}
    for directory in dict.fromkeys(_candidates(rootfs, environment)):
        if directory not in found and (made := _environment(rootfs, directory)):
            found[directory] = made
    for directory in ("/usr/local", "/usr"):
        if directory not in found and _has_python(rootfs, directory):
            found[directory] = _system(rootfs, directory)
    return tuple(sorted(found.values(), key=lambda one: one.kind == "system"))


def _candidates(rootfs: Rootfs, environment: Mapping[str, str]) -> Iterator[str]:
    command = environment.get("WITH_CONDA", "")
    if match := _ACTIVATE.search(command):
        yield activated_environment(command)
        yield match[1]
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if (value := environment.get(name, "").rstrip("/")).startswith("/"):
            yield value
    for directory in search_path(environment.get("PATH", "")):
        if directory.endswith("/bin"):
            yield directory.removesuffix("/bin")
    for parent in ("/opt", "/usr/local", "/root", ""):
        for name in _USUAL_CONDA:
            prefix = f"{parent}/{name}"  # conda's own environment is the last: what an author made one for counts
            yield from (f"{prefix}/envs/{env}" for env in rootfs.entries(f"{prefix}/envs")[:50])
            yield prefix
    yield from _USUAL_VENV
    yield from (f"/opt/{name}" for name in rootfs.entries("/opt")[:200])


def _environment(rootfs: Rootfs, directory: str) -> PythonEnvironment | None:
    nameable = _NAMEABLE.fullmatch(directory) and ".." not in directory
    if not nameable or directory in ("/usr", "/usr/local") or not _has_python(rootfs, directory):
        return None
    version, libraries = _libraries(rootfs, directory)
    packages = _packages(rootfs, libraries)
    parent, _, env = directory.rpartition("/envs/")
    if (
        parent
        and _ENVIRONMENT.fullmatch(env)
        and (_is_conda(rootfs, parent) or rootfs.is_file(f"{parent}/bin/activate"))
    ):
        return PythonEnvironment("conda", directory, version, packages, parent, env, libraries)
    if _is_conda(rootfs, directory) and rootfs.is_file(f"{directory}/bin/activate"):
        return PythonEnvironment("conda", directory, version, packages, directory, "base", libraries)
    if rootfs.is_file(f"{directory}/pyvenv.cfg") and rootfs.is_file(f"{directory}/bin/activate"):
        return PythonEnvironment("venv", directory, version, packages, libraries=libraries)
    return PythonEnvironment("prefix", directory, version, packages, libraries=libraries)


def _system(rootfs: Rootfs, directory: str) -> PythonEnvironment:
    version, libraries = _libraries(rootfs, directory)
    if directory == "/usr":  # Debian's pip installs below /usr/local for the Python in /usr
        local = f"/usr/local/lib/python{version}/dist-packages"
        libraries = tuple(dict.fromkeys((local, *libraries, "/usr/lib/python3/dist-packages")))
    return PythonEnvironment("system", directory, version, _packages(rootfs, libraries), libraries=libraries)


def _has_python(rootfs: Rootfs, directory: str) -> bool:
    return rootfs.is_program(f"{directory}/bin/python3") or rootfs.is_program(f"{directory}/bin/python")


def _is_conda(rootfs: Rootfs, directory: str) -> bool:
    return rootfs.is_directory(f"{directory}/conda-meta")


def _libraries(rootfs: Rootfs, directory: str) -> tuple[str, tuple[str, ...]]:
    """The version of the Python in `directory`, and where its packages are; the newest where there are several."""
    versions = {
        match[1]
        for place in ("lib", "lib64")
        for name in rootfs.entries(f"{directory}/{place}")
        if (match := _LIBRARY.fullmatch(name))
    }
    own = [version for version in versions if rootfs.is_program(f"{directory}/bin/python{version}")] or list(versions)
    if not own:
        return "", ()
    version = max(own, key=lambda text: int(text.partition(".")[2]))
    places = (
        f"{directory}/{place}/python{version}/{name}"
        for place in ("lib", "lib64")
        for name in ("site-packages", "dist-packages")
    )
    return version, tuple(place for place in places if rootfs.is_directory(place))


def _packages(rootfs: Rootfs, libraries: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for library in libraries:
        for name in rootfs.entries(library):
            if named := distribution(name):
                found.setdefault(normalized(named[0]), named[1])
    return found
