"""An OciImage: manifest, config and where its layers are, the same for a registry, a layout and an archive."""

from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.get import Get
from sifmod.image.oci.archive import open_archive
from sifmod.image.oci.docker_archive import read_docker_archive
from sifmod.image.oci.files import Directory
from sifmod.image.oci.layout import Local, read_layout
from sifmod.image.oci.manifest import Descriptor, ImageConfig, Manifest, check_layers, check_platform
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import Settings
from sifmod.image.sources.reference import Reference


@dataclass(frozen=True)
class BlobSource:
    """Where a blob's bytes are: behind `get`, or in the file `path` from `offset` on. Its digest is not checked yet.

    `diff_id` is what the image's config states of the uncompressed bytes.
    """

    descriptor: Descriptor
    get: Get | None
    path: Path | None
    offset: int = 0
    diff_id: str = ""


@dataclass(frozen=True)
class OciImage:
    """An image for the wanted platform; `sources` are its layers, bottom first, as the manifest lists them."""

    manifest: Manifest
    config: ImageConfig
    sources: tuple[BlobSource, ...]


def open_image(reference: Reference, arch: str, settings: Settings, workspace: Path | None = None) -> OciImage:
    """The image that a docker, oci, oci-archive or docker-archive reference names, for linux on `arch`.

    Manifest and config are read and verified, no layer is. A compressed archive is unpacked into `workspace`, which
    must stay while the layers are read. Raises FetchError where it cannot be had, ImageError where it is damaged, is
    for another platform, or is no container image.
    """
    path = Path(reference.location)
    match reference.kind:
        case "docker":
            image = _from_registry(reference, arch, settings)
        case "oci":
            if not path.exists():
                raise FetchError(f"{path} is not an OCI layout: there is nothing")
            image = _from_files(read_layout(reference, Directory(path), arch))
        case "oci-archive":
            image = _from_files(read_layout(reference, open_archive(path, workspace), arch))
        case "docker-archive":
            image = _from_files(read_docker_archive(reference, open_archive(path, workspace)))
        case _:
            raise FetchError(f"{reference.source} is no source of a container image")
    name = reference.source
    check_layers(image.manifest, name)
    check_platform(image.config, arch, name)
    layers, diff_ids = len(image.sources), len(image.config.diff_ids)
    if layers != diff_ids:
        raise ImageError(f"{name} has {layers} layers where its config speaks of {diff_ids}")
    stated = zip(image.sources, image.config.diff_ids, strict=True)
    return replace(image, sources=tuple(replace(source, diff_id=diff_id) for source, diff_id in stated))


def _from_registry(reference: Reference, arch: str, settings: Settings) -> OciImage:
    registry = Registry(reference, settings, arch)
    manifest = registry.manifest()
    check_layers(manifest, reference.source)  # before its config, which is no config where it is an artifact
    sources = tuple(BlobSource(layer, registry.blob(layer), None) for layer in manifest.layers)
    return OciImage(manifest, registry.config(manifest), sources)


def _from_files(local: Local) -> OciImage:
    sources = tuple(
        BlobSource(layer, None, stored.path, stored.offset)
        for layer, stored in zip(local.manifest.layers, local.blobs, strict=True)
    )
    return OciImage(local.manifest, local.config, sources)
