"""The targets of links at a bind path on this machine.

Imports neither pydantic nor a YAML parser.
"""

# Paths as text, because there are many and most are never accessed:
# ruff: noqa: PTH110, PTH114, PTH115, PTH118, PTH119, PTH120

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from os.path import basename, dirname, exists, islink, join, normpath, realpath

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "root", "run", "sbin", "sys", "usr", "var")


def tops_of_links(path: str) -> tuple[str, ...]:
    """The top directories to which `path`, if it is a link, and the links directly in it lead outside of it; sorted.

    The top of a path is its first two directories, as /pfs/lustrep1 of /pfs/lustrep1/scratch/project_1. Links into the
    operating system and tops that do not exist are ignored. Of a link's target only its parent and top are looked at.
    """
    real = realpath(path)
    places = {normpath(join(real, text)) for text in _links_in(path)}
    parents = {parent: realpath(parent) for parent in {dirname(place) for place in places}}
    places |= {join(parents[dirname(place)], basename(place)) for place in places}  # links on the way to it
    inside: tuple[str, ...] = (path, real)
    if islink(path):
        places.add(real)
        inside = (path,)
    tops = {_top(place) for place in places if not within(place, inside)}
    return tuple(sorted(top for top in tops if top and exists(top)))


def within(place: str, directories: Iterable[str]) -> bool:
    """Whether a path is one of the directories or below one, compared as text."""
    return any(place == directory or place.startswith(f"{directory.rstrip('/')}/") for directory in directories)


def _links_in(directory: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                with suppress(OSError):
                    yield os.readlink(entry.path)


def _top(place: str) -> str:
    first, _, rest = place.lstrip("/").partition("/")
    if not first or first in _SYSTEM:
        return ""
    return join("/", first, rest.partition("/")[0]).rstrip("/")
