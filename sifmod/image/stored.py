"""An image that the store holds already: by what gave it, and the digest that it stood for."""

from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.artifact import Fetched, FetchRequest, ImageStore
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.registry.mirrors import source_of
from sifmod.image.startable import why_not_here
from sifmod.module.image_origin import ImageOrigin

Tools = tuple[tuple[str, str], ...]
"""What decides the bytes of a conversion, with versions; sifmod's own are called `…-format`."""


def stored(request: FetchRequest, digest: str, compression: str = "", tools: Tools = ()) -> Fetched | None:
    """The SIF that the source of `request` gave for `digest` before, for its architecture; None where there is none.

    None too where everything is to be fetched afresh.

    With a `compression` it is one that was converted with that, by these `tools`, or by ones that differ only in the
    versions of libraries: its origin names those. But where the easyconfig promises a SIF that `tools` may make, what
    other ones made will not do. A damaged one is passed over, so that it is fetched again.
    """
    if request.settings.fresh:
        return None
    candidates = request.store.find_made(source_of(request.reference), digest)
    for path, origin in sorted(candidates, key=lambda made: made[1].tools != tools):
        good = not compression or _made_alike(request, path, origin, compression, tools)
        if good and not damaged(request.store, path) and read_sif(path).arch == request.image.arch:
            return Fetched(path, path.stem, path.stat().st_size, (), origin, request.store.lends(path))
    return None


def lent(request: FetchRequest, sha256: str | None) -> Fetched | None:
    """The SIF of this digest, where another store has it; not with everything fetched afresh."""
    known = None if sha256 is None or request.settings.fresh else request.store.lent(sha256)
    if known is None or damaged(request.store, known[0]):
        return None
    path, origin = known
    if request.settings.startable and why_not_here(path, read_sif(path), request.runtime):
        return None
    return Fetched(path, path.stem, path.stat().st_size, (), origin, lent=True)


def to_bring(there: Fetched, request: FetchRequest) -> int:
    """Bytes that come into the store for what is there: none but those of a copy of another store's."""
    return there.size if there.lent and request.image.link != "reference" else 0


def damaged(store: ImageStore, path: Path) -> bool:
    """Whether the stored image at `path` is not what its name says; it is read only where its header is no SIF's."""
    try:
        read_sif(path)
    except ImageError:
        return store.damaged(path.stem)
    return False


def _made_alike(request: FetchRequest, path: Path, origin: ImageOrigin, compression: str, tools: Tools) -> bool:
    if origin.compression != compression or _formats(origin.tools) != _formats(tools):
        return False
    image, promised = request.image, request.image.conversion
    if image.sha256 in (None, path.stem) or origin.tools == tools:
        return True
    # else the files in it are compared, as they would be of what is converted now
    return promised is not None and (promised.compression, sorted(promised.tools)) != (compression, sorted(tools))


def _formats(tools: Tools) -> dict[str, str]:
    return {name: version for name, version in tools if name.endswith("-format")}
