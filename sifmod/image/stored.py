"""An image that the store holds already: by what gave it, and the digest that it stood for."""

from sifmod.image.fetched import Fetched, Request
from sifmod.image.oci.place import source_of
from sifmod.image.sif.header import read_sif


def stored(request: Request, digest: str, compression: str | None = None) -> Fetched | None:
    """The SIF that the source of `request` gave for `digest` before, for its architecture; None where there is none.

    With a `compression` it is one that was converted with that. Raises ImageError for one that is damaged.
    """
    for path, origin in request.store.find_made(source_of(request.reference), digest):
        if compression in (None, origin.compression) and read_sif(path).arch == request.image.arch:
            return Fetched(path, path.stem, path.stat().st_size, (), origin)
    return None
