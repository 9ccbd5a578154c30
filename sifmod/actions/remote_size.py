"""How much an image in a registry will bring, as its manifest says."""

from collections.abc import Callable

from sifmod.errors import FetchError, PermissionsError
from sifmod.image import convert, oras
from sifmod.image.fetched import Request
from sifmod.image.reference import Kind

_ANNOUNCED: dict[Kind, Callable[[Request], int]] = {"docker": convert.announced, "oras": oras.announced}


def remote_size(request: Request) -> int | None:
    """Bytes that a reference to a registry will bring, 0 where the store has the image; None where it is not known."""
    ask = _ANNOUNCED.get(request.reference.kind)
    try:
        return ask(request) if ask else None
    except (FetchError, PermissionsError):  # the fetch will tell
        return None
