"""A SIF on this machine, by the path or the bare name that a user gives on the command line."""

from pathlib import Path

from sifmod.config.site import Site
from sifmod.errors import FetchError
from sifmod.image.sources.reference import Reference


def local_sif(reference: Reference, site: Site) -> Path | None:
    """The file that `reference` names where it names one; a bare name is one here, or one in the site's image_dirs.

    Raises FetchError for a bare name that no directory has.
    """
    if reference.kind == "path":
        return Path(reference.location)
    if reference.kind != "name":
        return None
    places = (Path(), *map(Path, site.image_dirs))
    found = next((path for place in places if (path := place / reference.location).is_file()), None)
    if found is None:
        where = ", ".join(site.image_dirs) or "no image_dirs are set"
        raise FetchError(f"there is no file {reference.location} here, nor in the site's image directories ({where})")
    return found
