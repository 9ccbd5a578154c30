"""oras: a SIF that is an artifact in a registry."""

from dataclasses import replace

from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest, Remote
from sifmod.image.download.downloads import download_sif, refuse_other_files
from sifmod.image.inspect.description import Config, ImageDescription, pairs, parts
from sifmod.image.oci.manifest import SIF_LAYER, Descriptor, Manifest
from sifmod.image.reference import Reference, SourceKind, no_files, nothing, parse_repository
from sifmod.image.registry.mirrors import source_of
from sifmod.image.registry.network import RETRY_POLICY, RetryPolicy
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import Settings
from sifmod.image.stored import bytes_to_copy, damaged, from_other_store, stored
from sifmod.module.image_origin import ImageOrigin


def _download(request: Fetching, patience: RetryPolicy = RETRY_POLICY) -> Fetched:
    """Download the SIF in the manifest of `oras://…` to `incoming`, verified by its digest, unless a store has it.

    Raises FetchError for errors of the network or the registry, and if there is no SIF under that name.
    """
    reference, settings = request.reference, request.settings
    registry = Registry(reference, settings, request.image.arch)
    manifest = registry.manifest()
    layer = _sif_layer(manifest, reference.source)
    origin = ImageOrigin(manifest.index_digest, manifest.digest, (layer.digest,))
    sha256 = layer.digest.removeprefix("sha256:")
    if not settings.fresh and (there := request.store.find(sha256)) and not damaged(request.store, there):
        request.store.gave(there, origin, source_of(reference))
        return Fetched(there, sha256, layer.size, registry.notes, origin)
    if found := from_other_store(request, sha256):
        return replace(found, origin=origin, notes=registry.notes)
    get = registry.blob(layer)
    name = request.image.filename
    remote = Remote(name, get, layer.size, layer.digest, by_digest=True, check=refuse_other_files)
    fetched = download_sif(request, remote, origin, patience)
    return replace(fetched, notes=(*registry.notes, *fetched.notes))


def _pinned(request: FetchRequest) -> Fetched | None:
    """The SIF of a reference with a digest, if the store has it; no server is contacted. None: download it."""
    found = stored(request, request.reference.digest)
    if found is None:
        return None
    origin = ImageOrigin(found.origin.index, found.origin.manifest, (f"sha256:{found.sha256}",))
    return replace(found, origin=origin)  # the same SIF may have been converted here


def _announced(request: FetchRequest) -> int:
    """Bytes of the reference's SIF to download or to copy; 0 if this store has it. Requests only manifests.

    Raises FetchError or ImageError.
    """
    if pinned := _pinned(request):
        return bytes_to_copy(pinned, request)
    reference, settings = request.reference, request.settings
    registry = Registry(reference, settings, request.image.arch)
    layer = _sif_layer(registry.manifest(), reference.source)
    sha256 = layer.digest.removeprefix("sha256:")
    if not settings.fresh and request.store.find(sha256):
        return 0
    found = from_other_store(request, sha256)
    return bytes_to_copy(found, request) if found else layer.size


def _describe(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    manifest = Registry(reference, settings, arch).manifest()
    layer = _sif_layer(manifest, reference.source)
    return ImageDescription(
        kind="SIF in a registry",
        arch="",
        size=layer.size,
        sha256=layer.digest.removeprefix("sha256:"),
        manifest=manifest.digest,
        index=manifest.index_digest,
        parts=parts(manifest),
        config=Config(labels=pairs(manifest.annotations)),
    )


def _sif_layer(manifest: Manifest, name: str) -> Descriptor:
    """The one SIF of an artifact called `name`. Raises FetchError if there is none, or more than one."""
    found = [layer for layer in manifest.layers if layer.media_type == SIF_LAYER]
    if len(found) == 1:
        return found[0]
    kinds = ", ".join(dict.fromkeys(layer.media_type for layer in manifest.layers)) or "nothing"
    if not found:
        raise FetchError(f"{name} has {kinds}, but no SIF", "for a container image write docker:// instead of oras://")
    raise FetchError(f"{name} has {len(found)} SIFs", "use the digest of a manifest with one SIF")


ORAS = SourceKind(
    name="oras",
    schemes=("oras",),
    example="oras://ghcr.io/group/image:1.0",
    location="repository",
    parse=parse_repository,
    watched=no_files,
    local_sif=nothing,
    open=None,
    describe=_describe,
    pinned=_pinned,
    announced=_announced,
    fetch=_download,
)
