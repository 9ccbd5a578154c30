"""What conda has noted of the packages in an environment: one JSON for each, below its `conda-meta`.

https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/install.html.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import dirname, join, normpath

from sifmod.image.inspect.rootfs import Rootfs

_LARGEST = 32 << 20  # bytes of a record


@dataclass(frozen=True)
class CondaPackage:
    """One that holds distributions of Python: its record, and what that names, there or not. All are absolute paths."""

    record: str
    files: tuple[str, ...]
    places: frozenset[str]  # of the metadata of distributions


def conda_packages(rootfs: Rootfs, prefix: str, places: frozenset[str]) -> Iterator[CondaPackage]:
    """The packages of the environment in `prefix` that hold distributions whose metadata is at one of `places`.

    What a record names outside of the environment is left out, and a record that conda could not read is none. Raises
    ImageError for a damaged image.
    """
    meta = f"{prefix}/conda-meta"
    for name in rootfs.entries(meta):
        if name.endswith(".json"):
            files = tuple(_files(rootfs.read(f"{meta}/{name}", _LARGEST), prefix))
            if found := places & {place for file in files for place in (file, dirname(file))}:
                yield CondaPackage(f"{meta}/{name}", files, found)


def _files(record: str, prefix: str) -> Iterator[str]:
    try:
        named = json.loads(record)["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for one in named if isinstance(named, list) else ():
        path = normpath(join(prefix, one)) if isinstance(one, str) else ""
        if path.startswith(f"{prefix}/"):
            yield path
