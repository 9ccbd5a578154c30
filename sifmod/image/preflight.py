"""The preflight of a conversion: room and quota for all that it will write, before the first byte of a layer comes."""

import os
from pathlib import Path

from sifmod.image.disk import KEPT, NOTHING_WRITTEN, reserve, size_text, writing
from sifmod.image.download.downloads import missing
from sifmod.image.lustre import stripe
from sifmod.image.oci.image import OciImage
from sifmod.image.sources.fetched import Request


def preflight(request: Request, image: OciImage, *, unpacked: bool) -> None:
    """Make the file `incoming`, with the disk and the quota that the SIF will need, and see that the layers fit too.

    A SIF is about as large as the compressed layers, which stay until it is complete. Both are on one file system: what
    is temporary is below the prefix, or beside the file that was asked for. `unpacked` says that an archive was written
    to the workspace. Raises NoSpaceError with one sum of everything.
    """
    path, layers = request.incoming, missing(image.sources, request.partial)
    sif = sum({layer.digest or number: layer.size for number, layer in enumerate(image.manifest.layers)}.values())
    done = _done(request.partial, unpacked)
    stripe(path, request.settings.striping)
    with writing(path), path.open("w+b") as file:
        if layers:
            parts = f"{size_text(layers)} of layers still to come and about {size_text(sif)} for the SIF"
            reserve(file.fileno(), path, layers + sif, parts, done)
            os.ftruncate(file.fileno(), 0)  # gives it back: each layer takes its own
        reserve(file.fileno(), path, sif, "about, for the SIF", done)


def _done(partial: Path, unpacked: bool) -> str:
    """What has become of what was written before."""
    if unpacked:
        return "the unpacked archive was removed"
    arrived = partial.is_dir() and any(path.stat().st_size for path in partial.iterdir())
    return KEPT if arrived else NOTHING_WRITTEN
