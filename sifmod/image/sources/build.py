"""build: a SIF that the site's runtime builds from a definition file."""

from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.fetched import Fetched, Request
from sifmod.image.reference import Reference
from sifmod.image.source_kind import SourceKind, nothing, says_nothing, the_location
from sifmod.image.sources.runtime import run_runtime


def _build(request: Request) -> Fetched:
    """Relative paths in the definition file count from its directory."""
    definition = Path(request.reference.location).absolute()
    if not definition.is_file():
        raise FetchError(f"there is no definition file {definition}")
    with request.store.workspace() as workspace:
        command = ("build", "--force", "--disable-cache", str(request.incoming), str(definition))
        return run_runtime(request, command, workspace, definition.parent)


BUILD = SourceKind(
    name="build",
    schemes=(),
    example="/images/x.def",
    location="definition",
    parse=lambda kind, source: Reference(kind, source, source),
    watched=the_location,
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=nothing,
    announced=nothing,
    fetch=_build,
)
