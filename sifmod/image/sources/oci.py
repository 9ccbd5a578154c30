"""oci: a container image in an OCI image layout on this machine, converted to a SIF here."""

from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.convert.oci_to_sif import convert
from sifmod.image.inspect.description import describe_image
from sifmod.image.oci.image import OciImage, files_below, read_layout
from sifmod.image.reference import Reference, SourceKind, nothing, parse_layout, size_of_location
from sifmod.image.settings import Settings


def _open(reference: Reference, arch: str, _settings: Settings, _workspace: Path | None) -> OciImage:
    path = Path(reference.location)
    if not path.exists():
        raise FetchError(f"{path} does not exist")
    return read_layout(reference, files_below(path), arch)


OCI = SourceKind(
    name="oci",
    schemes=("oci",),
    example="oci:/images/layout:1.0",
    location="path",
    parse=parse_layout,
    watched=lambda reference, _: (f"{reference.location}/index.json",),
    local_sif=nothing,
    open=_open,
    describe=describe_image,
    pinned=nothing,
    announced=size_of_location,
    fetch=convert,
)
