"""Blobs that several images of one run share: downloaded for the first of them, and read by the others."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sifmod.image.download.downloads import file_name
from sifmod.image.oci.image import BlobSource
from sifmod.image.settings import SharedBlobs


def with_shared(sources: Sequence[BlobSource], shared: SharedBlobs | None) -> tuple[BlobSource, ...]:
    """The same, those that were kept read from there; each is verified like any other."""
    return tuple(replace(one, get=None, path=path) if (path := _kept(one, shared)) else one for one in sources)


def _kept(source: BlobSource, shared: SharedBlobs | None) -> Path | None:
    if shared is None or source.get is None or source.descriptor.digest not in shared.digests:
        return None
    path = shared.directory / file_name(source)
    return path if path.is_file() and path.stat().st_size == source.descriptor.size else None


def keep_shared(sources: Sequence[BlobSource], directory: Path, shared: SharedBlobs | None) -> None:
    """Keep those of the blobs in `directory`, which are verified, that another image wants too."""
    for source in sources if shared else ():
        if shared and source.get is not None and source.descriptor.digest in shared.digests:
            with suppress(OSError):  # it is downloaded again then
                os.link(directory / file_name(source), shared.directory / file_name(source))


def forget_shared(sources: Sequence[BlobSource], shared: SharedBlobs | None) -> None:
    """Remove the kept blobs of an image that could not be converted: one of them may be damaged."""
    for source in sources:
        if shared and source.path and source.path.parent == shared.directory:
            source.path.unlink(missing_ok=True)
