"""An ImageOrigin: the known inputs of a SIF."""

from dataclasses import dataclass
from typing import Annotated

from sifmod.result import Described, Digest, OrNull


@dataclass(frozen=True)
class ImageOrigin:
    """The content that a reference stood for when it was fetched, and its conversion; unknown fields are empty."""

    index: OrNull[Digest] = ""  # of the reference's image index; "" if it named a manifest
    manifest: OrNull[Digest] = ""  # for a build: of the definition and its input files
    layers: Annotated[tuple[Digest, ...], Described("digests of the layers, the bottom one first")] = ()
    compression: Annotated[OrNull[str], Described("compression of the squashfs; null for a SIF as it came")] = ""
    tools: Annotated[
        tuple[tuple[str, str], ...], Described("tools that decide the bytes of a conversion, with versions")
    ] = ()

    def as_data(self) -> dict[str, object]:
        """The data for JSON; `from_fields` reads it back."""
        return dict(vars(self))


NO_ORIGIN = ImageOrigin()


def from_fields(fields: object) -> ImageOrigin:
    """Parse the data of `as_data`; raises TypeError, KeyError or ValueError for other data."""
    if not isinstance(fields, dict):
        raise TypeError(f"expected an object, got {type(fields).__name__}")
    tools = tuple((str(name), str(version)) for name, version in fields["tools"])
    layers = tuple(str(layer) for layer in fields["layers"])
    return ImageOrigin(str(fields["index"]), str(fields["manifest"]), layers, str(fields["compression"]), tools)
