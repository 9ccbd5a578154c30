"""oci-archive: a container image in an OCI image layout in a tar file, converted to a SIF here."""

from pathlib import Path

from sifmod.image.convert.oci_to_sif import convert
from sifmod.image.inspect.description import describe_image
from sifmod.image.oci.image import OciImage, open_archive, read_layout
from sifmod.image.reference import Reference, SourceKind, nothing, parse_layout, size_of_location, the_location
from sifmod.image.settings import Settings


def _open(reference: Reference, arch: str, _settings: Settings, workspace: Path | None) -> OciImage:
    return read_layout(reference, open_archive(Path(reference.location), workspace), arch)


OCI_ARCHIVE = SourceKind(
    name="oci-archive",
    schemes=("oci-archive",),
    example="oci-archive:/images/x.tar:1.0",
    location="path",
    parse=parse_layout,
    watched=the_location,
    local_sif=nothing,
    open=_open,
    describe=describe_image,
    pinned=nothing,
    announced=size_of_location,
    fetch=convert,
)
