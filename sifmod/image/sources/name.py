"""A bare name: a SIF in one of the site's image directories."""

from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.sources.fetched import Fetched, Request
from sifmod.image.sources.kind import Directories, SourceKind, nothing
from sifmod.image.sources.path import announced, describe, take
from sifmod.image.sources.reference import Reference, parse_location


def _places(reference: Reference, directories: Directories) -> tuple[str, ...]:
    """Where a file of the name may be, in the order in which they are looked at."""
    return tuple(f"{directory}/{reference.location}" for directory in directories)


def _local_sif(reference: Reference, image_dirs: Directories) -> Path:
    """The file of this name in the current directory, else in the image directories; FetchError where there is none."""
    places = map(Path, _places(reference, (".", *image_dirs)))
    if found := next((path for path in places if path.is_file()), None):
        return found
    where = ", ".join(image_dirs) or "no image_dirs are set"
    raise FetchError(f"there is no file {reference.location} here, nor in the site's image directories ({where})")


def _fetch(request: Request) -> Fetched:
    image_dirs = request.image.image_dirs
    places = map(Path, _places(request.reference, image_dirs))
    if found := next((path for path in places if path.exists()), None):
        return take(found, request)
    where = ", ".join(image_dirs) or "no image_dirs are set (site file, SIFMOD_IMAGE_DIRS)"
    raise FetchError(f"no file of this name; looked in: {where}")


NAME = SourceKind(
    name="name",
    schemes=(),
    example="x.sif",
    location="path",
    is_local=True,
    ready_made=True,
    resumable=False,
    parse=parse_location,
    watched=_places,
    local_sif=_local_sif,
    open=None,
    describe=describe,
    pinned=nothing,
    announced=announced,
    fetch=_fetch,
)
