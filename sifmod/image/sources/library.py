"""library: an image in a library, which the site's runtime pulls."""

import platform

from sifmod.image.artifact import Fetched, Fetching
from sifmod.image.oci.manifest import architecture
from sifmod.image.reference import SourceKind, no_files, nothing, parse_repository
from sifmod.image.sources.runtime import run_runtime


def _pull(request: Fetching) -> Fetched:
    arch = request.image.arch
    foreign = ("--arch", arch) if architecture(platform.machine()) != arch else ()
    with request.store.workspace() as workspace:
        command = ("pull", "--force", "--disable-cache", *foreign, str(request.incoming), request.reference.source)
        return run_runtime(request, command, workspace, workspace)


LIBRARY = SourceKind(
    name="library",
    schemes=("library",),
    example="library://entity/collection/image:1.0",
    location="library",
    parse=parse_repository,
    watched=no_files,
    announced=nothing,
    fetch=_pull,
)
