"""Convert an OCI image to a SIF: merge its layers directly into the squashfs."""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import FetchError, ImageError, UnstartableError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest
from sifmod.image.convert.budget import Budget
from sifmod.image.convert.layers.member import U32
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.layers.stream import Replaced
from sifmod.image.convert.metadata.added_files import Metadata, insert_metadata, make_metadata
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.sif.write import partition_offset, write_header
from sifmod.image.convert.squashfs import compression
from sifmod.image.convert.squashfs.compression import Compression
from sifmod.image.convert.squashfs.writer import SquashfsWriter
from sifmod.image.disk import KEPT, NOTHING_WRITTEN, reserve, stripe, writing
from sifmod.image.download.downloads import Downloads, forget_shared, keep_shared, missing, with_shared
from sifmod.image.oci.image import OciImage, open_image
from sifmod.image.program import probe_runtime
from sifmod.image.registry.mirrors import own_place, source_of
from sifmod.image.registry.registry import Registry
from sifmod.image.startable import can_start, refusal_reason
from sifmod.image.stored import Tools, bytes_to_copy, stored
from sifmod.module.image_origin import ImageOrigin
from sifmod.system import size_text

FORMAT = 2  # format of a converted SIF apart from its squashfs: increased by every change of those bytes


def convert(request: Fetching) -> Fetched:
    """The image of a registry, an OCI layout or an archive, as a SIF at `request.incoming`, or a stored one.

    An earlier conversion of the same manifest and source, with the same compression and format, is used from the store,
    with its recorded tools. The same manifest, source, compression and tools give the same bytes. Raises FetchError for
    errors of the source or network, ImageError for an invalid image, UnstartableError for a compression that must not
    be used here, NoSpaceError, if possible before the first byte of a layer arrives.
    """
    how = _compression(request)
    with request.store.workspace() as workspace:
        image = open_image(request.reference, request.image.arch, request.settings, workspace)
        if made := _made_before(request, image, how):
            return replace(made, notes=(*image.notes, *made.notes))
        shared = request.settings.shared
        image = replace(image, sources=with_shared(image.sources, shared))
        metadata = _metadata(request, image)
        preflight(request, image, unpacked=any(workspace.iterdir()))
        with Downloads(image.sources, request.partial, request.settings.connections) as downloads:
            try:
                while True:
                    with suppress(Replaced):  # the transfer limits how often it restarts
                        warnings = _write(request, image, downloads, metadata, how)
                        break
                downloads.complete()
            except (FetchError, ImageError):
                forget_shared(image.sources, shared)
                raise
        keep_shared(image.sources, request.partial, shared)
    manifest, layers = image.manifest, tuple(layer.digest for layer in image.manifest.layers)
    origin = ImageOrigin(manifest.index_digest, manifest.digest, layers, how.text, _tools(how))
    # only now: the header needs values of the squashfs that are known last
    with ThreadPoolExecutor(1) as beside:
        written = beside.submit(_flush, request.incoming)  # so that the store's sync need not wait
        sha256, size = sha256_file(request.incoming), request.incoming.stat().st_size
        written.result()
    return Fetched(request.incoming, sha256, size, (*image.notes, *metadata.warnings, *warnings), origin)


def pinned(request: FetchRequest) -> Fetched | None:
    """The SIF of a reference with a digest, if the store has it as it would be made now; without network.

    None: it must be converted.
    """
    digest = request.reference.digest
    if not request.store.find_made(source_of(request.reference), digest):
        return None
    how = _compression(request)
    return stored(request, digest, how.text, _tools(how))


def announced(request: FetchRequest) -> int:
    """Bytes of the layers of a docker reference; if a store has the image as it would be made now, the bytes to copy.

    These are 0 for an image in the own store. Only manifests are fetched. Raises FetchError or ImageError.
    """
    if made := pinned(request):
        return bytes_to_copy(made, request)
    manifest = Registry(request.reference, request.settings, request.image.arch).manifest()
    how = _compression(request)
    if made := stored(request, manifest.digest, how.text, _tools(how)):
        return bytes_to_copy(made, request)
    return sum({layer.digest: layer.size for layer in manifest.layers}.values())


def _made_before(request: FetchRequest, image: OciImage, how: Compression) -> Fetched | None:
    digest, index = image.manifest.digest, image.manifest.index_digest
    made = stored(request, digest, how.text, _tools(how))
    if made is None:
        return None
    origin = replace(made.origin, index=index)
    request.store.gave(made.path, origin, source_of(request.reference))
    return replace(made, origin=origin)


def _compression(request: FetchRequest) -> Compression:
    """The compression: as set, else as `conversion` says, else zstd; gzip unless the runtime is known to start zstd.

    Raises UnstartableError if the settings name one that the runtime cannot start, and require a startable image.
    """
    program = probe_runtime(request.runtime.path)
    if request.settings.compression != "auto":
        how = compression.parse(request.settings.compression)
        if request.settings.startable and (why := refusal_reason(how.squashfs, program)):
            raise UnstartableError(
                f"an image with compression {how.text} could not be started here: {why}",
                "let sifmod choose a supported one: --compression auto (or `compression: auto` in the site's settings)",
            )
        return how
    promised = request.image.conversion
    if not can_start("zstd", program):
        return compression.parse(promised.compression if promised and "zstd" not in promised.compression else "gzip")
    return compression.parse(promised.compression if promised else "zstd")


def _metadata(request: FetchRequest, image: OciImage) -> Metadata:
    """The metadata of the SIF. The source in its definition has no path of this machine, and no tag, which may move."""
    reference, manifest = request.reference, image.manifest
    digest = manifest.digest or f"sha256:{sha256_bytes(image.config.raw)}"
    where = f"{own_place(reference)}@{digest}" if reference.kind.location == "repository" else digest
    return make_metadata(image.config, manifest.raw, reference.kind.name, where)


def _write(
    request: Fetching, image: OciImage, downloads: Downloads, metadata: Metadata, how: Compression
) -> tuple[str, ...]:
    epoch = min(max(image.config.created or 0, 0), U32)  # the range of a squashfs
    offset, settings = partition_offset(metadata.objects), request.settings
    budget = Budget(settings.processors, settings.memory)
    with writing(request.incoming), request.incoming.open("r+b") as file, _no_collector():
        with SquashfsWriter(file, offset, how, budget.processors, epoch) as squashfs:
            with downloads.telling(request.image.filename, request.progress) as converted:
                merged = merge_layers(downloads.blobs, squashfs, epoch=epoch, progress=converted, budget=budget)
            warnings = insert_metadata(merged.root, metadata.entries, squashfs.add, epoch)
            size = squashfs.close(merged.root)
        write_header(file, metadata.objects, size, image.config.arch or request.image.arch, epoch)
        file.truncate(offset + size)  # frees reserved space that is not needed
    if read_sif(request.incoming, request.image.filename).primary.size != size:
        raise ImageError(f"{request.image.filename} was not written correctly: this is a bug in sifmod")
    return (*merged.warnings, *warnings)


def _flush(path: Path) -> None:
    with writing(path), path.open("rb") as file:
        os.fdatasync(file.fileno())


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable Python's cycle collector: a tree of 100 000 nodes has no cycles, but would be walked repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _tools(how: Compression) -> Tools:
    return (("sif-format", str(FORMAT)), *how.versions())


def preflight(request: Fetching, image: OciImage, *, unpacked: bool) -> None:
    """Create the file `incoming` with the space that the SIF will need, and check that the layers fit too.

    A SIF is about as large as the compressed layers, which stay until it is complete. Both are on one file system:
    temporary files are below the prefix, or beside the requested file. `unpacked`: an archive was unpacked to the
    workspace. Raises NoSpaceError with the sum of everything.
    """
    path, layers = request.incoming, missing(image.sources, request.partial)
    sif = sum({layer.digest or number: layer.size for number, layer in enumerate(image.manifest.layers)}.values())
    arrived = request.partial.is_dir() and any(file.stat().st_size for file in request.partial.iterdir())
    done = "the unpacked archive was removed" if unpacked else KEPT if arrived else NOTHING_WRITTEN
    stripe(path, request.settings.striping)
    with writing(path), path.open("w+b") as file:
        if layers:
            parts = f"{size_text(layers)} of layers to download and about {size_text(sif)} for the SIF"
            reserve(file.fileno(), path, layers + sif, parts, done)
            os.ftruncate(file.fileno(), 0)  # frees the space: each layer reserves its own
        reserve(file.fileno(), path, sif, "about, for the SIF", done)
