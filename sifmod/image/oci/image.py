"""An OciImage: manifest, config and where its layers are, the same for a registry, a layout and an archive."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Get
from sifmod.image.disk import reading
from sifmod.image.oci.content import LARGEST, plain
from sifmod.image.oci.manifest import Descriptor, ImageConfig, Manifest, check_layers, check_platform
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings


@dataclass(frozen=True)
class Stored:
    """Where the content of a file lies: `size` bytes of `path`, from `offset` on."""

    path: Path
    offset: int
    size: int

    def read(self, limit: int) -> bytes:
        """Its first bytes, at most `limit`."""
        with reading(self.path), self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(min(limit, self.size))


@dataclass(frozen=True)
class Files:
    """A directory or an archive, called `name` in messages."""

    name: str
    find: Callable[[str], Stored | None]  # the regular file of this relative name, or None


def files_below(path: Path) -> Files:
    """The files below a directory. Symbolic links are followed: the directory is the user's own."""
    top = path.absolute()

    def find(name: str) -> Stored | None:
        with reading(top / name):
            return Stored(top / name, 0, (top / name).stat().st_size) if (top / name).is_file() else None

    return Files(str(path), find)


def read_json(files: Files, name: str) -> bytes:
    """A manifest, an index or a config among `files`. Raises ImageError where it is missing or longer than 4 MiB."""
    stored = files.find(name)
    if stored is None:
        raise ImageError(f"{files.name} is not complete: it has no {plain(name)}")
    if stored.size > LARGEST:
        raise ImageError(f"{files.name}: {plain(name)} has {stored.size} bytes, and no manifest or config is so long")
    return stored.read(LARGEST)


@dataclass(frozen=True)
class BlobSource:
    """Where a blob's bytes are: behind `get`, or in the file `path` from `offset` on. Its digest is not checked yet.

    `diff_id` is what the image's config states of the uncompressed bytes.
    """

    descriptor: Descriptor
    get: Get | None
    path: Path | None
    offset: int = 0
    diff_id: str = ""


@dataclass(frozen=True)
class OciImage:
    """An image for the wanted platform; `sources` are its layers, bottom first, as the manifest lists them."""

    manifest: Manifest
    config: ImageConfig
    sources: tuple[BlobSource, ...]


def of_files(manifest: Manifest, config: ImageConfig, blobs: tuple[Stored, ...]) -> OciImage:
    """The image whose layers are the files `blobs`, bottom first."""
    layers = zip(manifest.layers, blobs, strict=True)
    return OciImage(manifest, config, tuple(BlobSource(layer, None, blob.path, blob.offset) for layer, blob in layers))


def open_image(reference: Reference, arch: str, settings: Settings, workspace: Path | None = None) -> OciImage:
    """The container image that a reference names, for linux on `arch`.

    Manifest and config are read and verified, no layer is. A compressed archive is unpacked into `workspace`, which
    must stay while the layers are read. Raises FetchError where there is none, ImageError where it is damaged, is
    for another platform, or is no container image.
    """
    if reference.kind.open is None:
        raise FetchError(f"{reference.source} is no source of a container image")
    image = reference.kind.open(reference, arch, settings, workspace)
    name = reference.source
    check_layers(image.manifest, name)
    check_platform(image.config, arch, name)
    layers, diff_ids = len(image.sources), len(image.config.diff_ids)
    if layers != diff_ids:
        raise ImageError(f"{name} has {layers} layers where its config speaks of {diff_ids}")
    stated = zip(image.sources, image.config.diff_ids, strict=True)
    return replace(image, sources=tuple(replace(source, diff_id=diff_id) for source, diff_id in stated))
