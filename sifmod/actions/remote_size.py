"""How much an image in a registry will bring, as its manifest says."""

from collections.abc import Callable

from sifmod.errors import FetchError, PermissionsError
from sifmod.image.convert import oci_to_sif
from sifmod.image.sources import oras
from sifmod.image.sources.fetched import Request
from sifmod.image.sources.reference import Kind

_ANNOUNCED: dict[Kind, Callable[[Request], int]] = {"docker": oci_to_sif.announced, "oras": oras.announced}


def remote_size(request: Request) -> int | None:
    """Bytes that a reference to a registry will bring, 0 where the store has the image; None where it is not known."""
    ask = _ANNOUNCED.get(request.reference.kind)
    try:
        return ask(request) if ask else None
    except (FetchError, PermissionsError):  # the fetch will tell
        return None
