"""Find an image in a store: by its source and the digest of its content, or by the SIF's own digest."""

from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.artifact import Fetched, FetchRequest, ImageStore
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.registry.mirrors import source_of
from sifmod.image.startable import refusal_here
from sifmod.module.image_origin import ImageOrigin

Tools = tuple[tuple[str, str], ...]
"""The tools that decide the bytes of a conversion, with versions; those of sifmod are called `…-format`."""


def stored(request: FetchRequest, digest: str, compression: str = "", tools: Tools = ()) -> Fetched | None:
    """The stored SIF from the source of `request` with `digest`, for its architecture; None if there is none.

    Also None if everything must be fetched again (`settings.fresh`).

    With a `compression`, the SIF must have been converted with it, by these `tools` or others that only differ in
    library versions, which its origin records. But if the easyconfig expects another SIF that `tools` may make, only
    these tools are accepted. A damaged SIF is skipped, so that it is fetched again.
    """
    if request.settings.fresh:
        return None
    candidates = request.store.find_made(source_of(request.reference), digest)
    for path, origin in sorted(candidates, key=lambda made: made[1].tools != tools):
        good = not compression or _made_alike(request, path, origin, compression, tools)
        if good and not damaged(request.store, path) and read_sif(path).arch == request.image.arch:
            return Fetched(path, path.stem, path.stat().st_size, (), origin, request.store.can_lend(path))
    return None


def from_other_store(request: FetchRequest, sha256: str | None) -> Fetched | None:
    """The SIF with this digest in another store; None if none has a usable one, or if `settings.fresh`."""
    known = None if sha256 is None or request.settings.fresh else request.store.from_other_store(sha256)
    if known is None or damaged(request.store, known[0]):
        return None
    path, origin = known
    if request.settings.startable and refusal_here(read_sif(path), request.runtime):
        return None
    return Fetched(path, path.stem, path.stat().st_size, (), origin, from_other_store=True)


def bytes_to_copy(there: Fetched, request: FetchRequest) -> int:
    """Bytes that an existing image adds to the store: 0, except for a copy from another store."""
    return there.size if there.from_other_store and request.image.link != "reference" else 0


def damaged(store: ImageStore, path: Path) -> bool:
    """Whether the stored image at `path` has a damaged header and a wrong digest; of others only the header is read."""
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
    # the expected SIF has other tools: then a fetch compares the files in this SIF, as it would in a new one
    return promised is not None and (promised.compression, sorted(promised.tools)) != (compression, sorted(tools))


def _formats(tools: Tools) -> dict[str, str]:
    return {name: version for name, version in tools if name.endswith("-format")}
