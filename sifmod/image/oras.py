"""A SIF that lies in a registry as an artifact (`oras:`)."""

from sifmod.errors import FetchError
from sifmod.image.download.remote import Remote
from sifmod.image.download.retry import PATIENCE, Patience
from sifmod.image.download.sif import download_sif, refuse_other_files
from sifmod.image.fetched import Fetched, Request
from sifmod.image.oci.manifest import SIF_LAYER, Descriptor, Manifest
from sifmod.image.oci.registry import Registry
from sifmod.module.origin import ImageOrigin


def download(request: Request, patience: Patience = PATIENCE) -> Fetched:
    """Download the SIF of the manifest that `oras://…` names to `incoming`, verified by its digest.

    Raises FetchError for whatever the network or the registry does, and where there is no SIF under that name.
    """
    reference, settings = request.reference, request.settings
    registry = Registry(reference, settings.mirrors, settings.insecure_registries, request.image.arch)
    manifest = registry.manifest()
    layer = sif_layer(manifest, reference.source)
    origin = ImageOrigin(manifest.index_digest, manifest.digest, (layer.digest,))
    sha256 = layer.digest.removeprefix("sha256:")
    if not settings.fresh and (stored := request.store.find(sha256)):
        return Fetched(stored, sha256, layer.size, (), origin)
    get = registry.blob(layer)
    name = request.image.filename
    remote = Remote(name, get, layer.size, layer.digest, by_digest=True, check=refuse_other_files)
    return download_sif(request, remote, origin, patience)


def sif_layer(manifest: Manifest, name: str) -> Descriptor:
    """The one SIF of an artifact called `name`. Raises FetchError where there is none, or more than one."""
    found = [layer for layer in manifest.layers if layer.media_type == SIF_LAYER]
    if len(found) == 1:
        return found[0]
    kinds = ", ".join(dict.fromkeys(layer.media_type for layer in manifest.layers)) or "nothing"
    if not found:
        raise FetchError(
            f"{name} holds no SIF but {kinds}", "for a container image write docker:// in place of oras://"
        )
    raise FetchError(f"{name} holds {len(found)} SIFs", "name the digest of a manifest that holds one")
