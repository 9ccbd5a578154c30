"""The data of an installable variant that a search needs; and the index of the shipped easyconfigs.

`scripts/index` writes the index, one file beside the shipped easyconfigs, so that a search reads no YAML. An entry is
valid only while its files are unchanged and its variables unset; without a valid entry the easyconfig itself is read.
Imports neither pydantic nor a YAML parser.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from sifmod.config.input import read_input
from sifmod.config.redact import LOCAL
from sifmod.config.version import within
from sifmod.result import Described, Internal, ModuleText, OrNull, Variant

INDEX = "index.json"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SUFFIX_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9]*)-([0-9][^-]*)")
NOT_PUBLIC = "not public"
DriverRuns = tuple[tuple[Literal["cuda", "rocm"], tuple[str, ...]], ...]
"""`driver_runs` of a site."""


@dataclass(frozen=True)
class IndexEntry:
    """A module that an easyconfig can install: one variant of it."""

    variant: Variant | None
    name: str
    version: Annotated[str, Described("version of the easyconfig, without its versionsuffix")]
    versionsuffix: str
    accelerator: str
    description: str
    keywords: Internal[tuple[str, ...]]  # from whatis, and the presets
    contents: Annotated[dict[str, str], Described("packages in the image, with versions")]
    sources: tuple[str, ...]  # without passwords; a definition file or the base of a build is `build:PATH`
    available: Annotated[OrNull[str], Described("where the image is, when it is not public")]
    arch: Internal[str]  # empty: the machine's

    @property
    def module(self) -> ModuleText:
        return f"{self.name}/{self.version}{self.versionsuffix}"

    def fits(self, accelerator: str, arch: str) -> bool:
        """Whether the module is for a machine with this accelerator and architecture."""
        return self.accelerator == accelerator and self.arch in ("", arch)

    def not_run_by(self, driver: DriverRuns) -> str:
        """Why a machine's driver does not run the image, by its versions of CUDA and ROCm; "" where nothing says so."""
        return unsupported(self.accelerator, ((self.name.lower(), self.version), *self.components), driver)

    @property
    def public(self) -> Annotated[bool, Described("whether a source is on a network")]:
        """False if no source is on a network: the image is in files, or there is none."""
        return self.public_source is not None

    @property
    def public_source(self) -> str | None:
        """The first source that is on a network, without `build:`; None without one."""
        for source in (each.removeprefix("build:") for each in self.sources):
            if (scheme := _SCHEME.match(source)) and scheme[1].lower() not in LOCAL:
                return source
        return None

    @property
    def where(self) -> str:
        """The image's origin, for people: a repository with its registry, or `not public:` and where the image is.

        For an image built from local files, these; for a view, the modules it loads.
        """
        if not self.sources:
            return self.available
        if self.public_source is None:
            if self._is_built:
                return f"built from {', '.join(source.removeprefix('build:') for source in self.sources)}"
            return f"{NOT_PUBLIC}: {' '.join(self.available.split()) or ', '.join(self.sources)}"
        rest = self.public_source.removeprefix("docker://")
        if rest == self.public_source or re.match(r"[^/]*[.:][^/]*/|localhost/", rest):
            return rest
        return f"docker.io/{rest}"

    @property
    def brief(self) -> str:
        """`not public`, for an image that is neither public nor built from local files; "" for others."""
        return NOT_PUBLIC if self.sources and self.public_source is None and not self._is_built else ""

    @property
    def _is_built(self) -> bool:
        return not self.available and all(source.startswith("build:") for source in self.sources)

    @property
    def components(self) -> tuple[tuple[str, str], ...]:
        """Lower-case (name, version) pairs of the image's contents, from the contents and the versionsuffix."""
        return components(self.contents.items(), self.versionsuffix)


def components(contents: Iterable[tuple[str, str]], versionsuffix: str) -> tuple[tuple[str, str], ...]:
    """Lower-case (name, version) pairs of what an image holds, as its easyconfig says."""
    said = (*contents, *_SUFFIX_PAIR.findall(versionsuffix))
    return tuple((name.lower(), version) for name, version in said)


def unsupported(accelerator: str, found: Iterable[tuple[str, str]], driver: DriverRuns) -> str:
    """Why a driver does not run an image for this accelerator with these components; "" where nothing says so."""
    runs: dict[str, tuple[str, ...]] = {**dict(driver)}
    for name, version in found:
        if name == accelerator and name in runs and not within(version, runs[name]):
            return f"{name} {version}, and the driver here runs {name} {' '.join(runs[name])}"
    return ""


def read_index(robot_paths: tuple[Path, ...], environ: Mapping[str, str]) -> dict[Path, tuple[IndexEntry, ...]]:
    """The index entries by easyconfig path, for easyconfigs of the last directory that have not changed since."""
    root = robot_paths[-1]  # the shipped easyconfigs
    try:
        data = json.loads((root / INDEX).read_bytes())
        files, easyconfigs = data["files"], data["easyconfigs"]
        changed = {f"${name}" for name in environ}
        changed |= {file for file, digest in files.items() if read_input(f"{root}/{file}", environ).sha256 != digest}
        changed |= set(_hidden(files, robot_paths))
        return {
            root / file: tuple(_offered(each) for each in entry["offers"])
            for file, entry in easyconfigs.items()
            if file not in changed and changed.isdisjoint(entry["reads"])
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # reading the easyconfigs gives the same, more slowly


def _hidden(files: Iterable[str], robot_paths: tuple[Path, ...]) -> Iterable[str]:
    """Presets that another directory on the easyconfig path hides."""
    others = [directory for directory in robot_paths if directory != robot_paths[-1]]
    presets = [file for file in files if file.startswith("presets/")] if others else []
    return (file for file in presets if any(os.path.isfile(place / file) for place in others))  # noqa: PTH113


def _offered(data: dict[str, object]) -> IndexEntry:
    lists = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
    return IndexEntry(**{**data, **lists})  # type: ignore[arg-type]
