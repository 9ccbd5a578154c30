"""docker-archive: a container image that `docker save` wrote, converted to a SIF here."""

from pathlib import Path

from sifmod.image.convert.oci_to_sif import convert
from sifmod.image.inspect.oci_image import describe_image
from sifmod.image.oci.archive import open_archive
from sifmod.image.oci.docker_archive import read_docker_archive
from sifmod.image.oci.image import OciImage
from sifmod.image.reference import Reference, after_scheme, refused
from sifmod.image.settings import Settings
from sifmod.image.source_kind import SourceKind, nothing, size_of_location, the_location


def _parse(kind: SourceKind, source: str) -> Reference:
    path, _, tag = after_scheme(source).partition(":")  # the tag is a whole docker reference: repository/name:1.0
    if not path:
        raise refused(source, "expected docker-archive:PATH or docker-archive:PATH:NAME:TAG")
    return Reference(kind, source, path, tag)


def _open(reference: Reference, _arch: str, _settings: Settings, workspace: Path | None) -> OciImage:
    return read_docker_archive(reference, open_archive(Path(reference.location), workspace))


DOCKER_ARCHIVE = SourceKind(
    name="docker-archive",
    schemes=("docker-archive",),
    example="docker-archive:/images/x.tar:group/image:1.0",
    location="path",
    parse=_parse,
    watched=the_location,
    local_sif=nothing,
    open=_open,
    describe=describe_image,
    pinned=nothing,
    announced=size_of_location,
    fetch=convert,
)
