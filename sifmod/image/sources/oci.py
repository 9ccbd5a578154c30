"""docker, oci, oci-archive: an OCI image in a registry, or in an OCI image layout here, converted to a SIF here."""

from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.convert.oci_to_sif import announced, convert, pinned
from sifmod.image.inspect.description import describe_image
from sifmod.image.oci.image import BlobSource, OciImage, files_below, open_archive, read_layout
from sifmod.image.oci.manifest import check_layers
from sifmod.image.reference import (
    Reference,
    SourceKind,
    no_files,
    parse_layout,
    parse_repository,
    size_of_location,
    the_location,
)
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import Settings


def _in_registry(reference: Reference, arch: str, settings: Settings, _workspace: Path | None) -> OciImage:
    registry = Registry(reference, settings, arch)
    manifest = registry.manifest()
    check_layers(manifest, reference.source)  # before its config, which is no config where it is an artifact
    sources = tuple(BlobSource(layer, registry.blob(layer)) for layer in manifest.layers)
    return OciImage(manifest, registry.config(manifest), sources)


def _in_layout(reference: Reference, arch: str, _settings: Settings, _workspace: Path | None) -> OciImage:
    path = Path(reference.location)
    if not path.exists():
        raise FetchError(f"{path} does not exist")
    return read_layout(reference, files_below(path), arch)


DOCKER = SourceKind(
    name="docker",
    schemes=("docker",),
    example="docker://ghcr.io/group/image:1.0",
    location="repository",
    parse=parse_repository,
    watched=no_files,
    open=_in_registry,
    describe=describe_image,
    pinned=pinned,
    announced=announced,
    fetch=convert,
)
OCI = SourceKind(
    name="oci",
    schemes=("oci",),
    example="oci:/images/layout:1.0",
    location="path",
    parse=parse_layout,
    watched=lambda reference, _: (f"{reference.location}/index.json",),
    open=_in_layout,
    describe=describe_image,
    announced=size_of_location,
    fetch=convert,
)
OCI_ARCHIVE = SourceKind(
    name="oci-archive",
    schemes=("oci-archive",),
    example="oci-archive:/images/x.tar:1.0",
    location="path",
    parse=parse_layout,
    watched=the_location,
    open=lambda reference, arch, _settings, workspace: read_layout(
        reference, open_archive(Path(reference.location), workspace), arch
    ),
    describe=describe_image,
    announced=size_of_location,
    fetch=convert,
)
