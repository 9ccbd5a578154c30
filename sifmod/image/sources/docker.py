"""docker: an OCI image in a registry, converted to a SIF here."""

from pathlib import Path

from sifmod.image.convert.oci_to_sif import announced, convert, pinned
from sifmod.image.inspect.description import describe_image
from sifmod.image.oci.image import BlobSource, OciImage
from sifmod.image.oci.manifest import check_layers
from sifmod.image.reference import Reference, SourceKind, no_files, nothing, parse_repository
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import Settings


def _open(reference: Reference, arch: str, settings: Settings, _workspace: Path | None) -> OciImage:
    registry = Registry(reference, settings, arch)
    manifest = registry.manifest()
    check_layers(manifest, reference.source)  # first: the config of an artifact is not an image's
    sources = tuple(BlobSource(layer, registry.blob(layer)) for layer in manifest.layers)
    config = registry.config(manifest)
    return OciImage(manifest, config, sources, registry.notes)


DOCKER = SourceKind(
    name="docker",
    schemes=("docker",),
    example="docker://ghcr.io/group/image:1.0",
    location="repository",
    parse=parse_repository,
    watched=no_files,
    local_sif=nothing,
    open=_open,
    describe=describe_image,
    pinned=pinned,
    announced=announced,
    fetch=convert,
)
