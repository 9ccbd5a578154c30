"""build: a SIF that the site's runtime builds from a definition file."""

from dataclasses import replace
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.fetched import Fetched, Request
from sifmod.image.reference import Reference
from sifmod.image.source_kind import Directories, SourceKind, nothing, says_nothing
from sifmod.image.sources.definition import inputs, inputs_digest
from sifmod.image.sources.runtime import run_runtime
from sifmod.image.stored import stored, to_bring
from sifmod.module.origin import NO_ORIGIN, ImageOrigin


def _watched(reference: Reference, _image_dirs: Directories) -> tuple[str, ...]:
    return tuple(map(str, inputs(Path(reference.location))))


def _pinned(request: Request) -> Fetched | None:
    """What was built before of the same definition and the same files. Raises FetchError where one is not there."""
    made = stored(request, inputs_digest(_definition(request)))
    return made and replace(made, notes=("the same definition and files were built before, and are not built again",))


def _announced(request: Request) -> int | None:
    made = _pinned(request)
    return to_bring(made, request) if made else None


def _build(request: Request) -> Fetched:
    """Relative paths in the definition file count from its directory."""
    definition = _definition(request)
    before = inputs_digest(definition)
    with request.store.workspace() as workspace:
        command = ("build", "--force", "--disable-cache", str(request.incoming), str(definition))
        built = run_runtime(request, command, workspace, definition.parent)
    return replace(built, origin=ImageOrigin(manifest=before) if inputs_digest(definition) == before else NO_ORIGIN)


def _definition(request: Request) -> Path:
    definition = Path(request.reference.location).absolute()
    if not definition.is_file():
        raise FetchError(f"there is no definition file {definition}")
    return definition


BUILD = SourceKind(
    name="build",
    schemes=(),
    example="/images/x.def",
    location="definition",
    parse=lambda kind, source: Reference(kind, source, source),
    watched=_watched,
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=_pinned,
    announced=_announced,
    fetch=_build,
)
