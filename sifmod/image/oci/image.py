"""An OciImage: manifest, config and sources of its layers, for a registry, a layout or an archive alike."""

import posixpath
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.limits import bound, limits
from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Get
from sifmod.image.bounded_tar import RefusedMemberError, open_tar
from sifmod.image.convert.layers.decompress import HEAD, is_compressed, uncompressed
from sifmod.image.convert.layers.stream import Malformed
from sifmod.image.disk import reading, writing
from sifmod.image.oci.content import LARGEST, plain, read_content
from sifmod.image.oci.index import Entry, lowest, manifest_behind, parse, parse_entries
from sifmod.image.oci.manifest import (
    Descriptor,
    ImageConfig,
    Manifest,
    check_digest,
    check_layers,
    check_platform,
    parse_config,
)
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings

_LONGEST = 1024  # characters of a name; those of an image have 80, and a million are kept
_DECISIVE = ("manifest.json", "index.json")  # of which docker takes the last in an archive, and skopeo the first
_MOST_LINKS = 8  # links in an archive that lead to one file


@dataclass(frozen=True)
class Stored:
    """The location of a file's content: `size` bytes of `path`, from `offset` on."""

    path: Path
    offset: int
    size: int

    def read(self, limit: int) -> bytes:
        """The first bytes of the content, at most `limit`."""
        with reading(self.path), self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(min(limit, self.size))


@dataclass(frozen=True)
class Files:
    """The files in a directory or an archive, which is called `name` in messages."""

    name: str
    find: Callable[[str], Stored | None]  # the regular file of this relative name, or None

    def get(self, name: str, missing: str) -> Stored:
        """The file called `name`. Raises ImageError, which says what is `missing`, if there is no such file."""
        if (stored := self.find(name)) is None:
            raise ImageError(f"{self.name} is not complete: {missing}")
        return stored


def files_below(path: Path) -> Files:
    """The files below a directory. Symbolic links are followed: the directory is the user's own."""
    top = path.absolute()

    def find(name: str) -> Stored | None:
        with reading(top / name):
            return Stored(top / name, 0, (top / name).stat().st_size) if (top / name).is_file() else None

    return Files(str(path), find)


def open_archive(path: Path, workspace: Path | None) -> Files:
    """The archive at `path`.

    A compressed one (gzip, zstd, xz, bzip2) is unpacked to `workspace`/archive.tar, which must stay while its files are
    used. Raises FetchError if the archive is missing, or is compressed and there is no `workspace`, ImageError if it is
    incomplete or no tar, NoSpaceError.
    """
    path = path.absolute()
    if not path.is_file():
        raise FetchError(f"there is no archive {path}")
    with reading(path), path.open("rb") as file:
        if not is_compressed(file.read(HEAD)):
            return _files_in(path, path)
        if workspace is None:
            raise FetchError(f"{path} is compressed, and there is no directory to unpack it to", "unpack it first")
        file.seek(0)
        target = workspace / "archive.tar"
        try:
            with writing(target), target.open("wb") as tar:
                tar.writelines(uncompressed(file, lambda _size: None))
        except Malformed as error:
            raise ImageError(f"{path} is not a complete tar archive: it {error}") from error
    return _files_in(path, target)


def _files_in(path: Path, tar: Path) -> Files:
    """The files of the archive at `path`: the last one of each name, links inside it followed.

    Raises ImageError, also for two files that would each say which image it is.
    """
    found: dict[str, Stored | str] = {}  # for a link, the name of its target
    try:
        with reading(path), open_tar(tar) as opened:
            size = tar.stat().st_size
            for count, member in enumerate(opened):
                opened.members = []  # type: ignore[attr-defined]  # tarfile would keep all members
                if count > limits().archive_files:
                    raise ImageError(f"{path} has more files than {bound('archive_files')}")
                if len(member.name) > _LONGEST:
                    continue
                name = posixpath.normpath(member.name)
                if found.pop(name, None) and name in _DECISIVE:
                    raise ImageError(f"{path} has two files {name}, so it is two images, of which programs take either")
                if len(member.linkname) > _LONGEST:
                    continue
                if member.issym():
                    found[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
                elif member.islnk():
                    found[name] = posixpath.normpath(member.linkname)
                elif member.isreg() and member.offset_data + member.size > size:
                    raise tarfile.ReadError(f"it ends in the middle of {name}")
                elif member.isreg():
                    found[name] = Stored(tar, member.offset_data, member.size)
    except RefusedMemberError as error:
        raise ImageError(f"{path} was refused: {plain(str(error))}") from error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise ImageError(f"{path} is not a complete tar archive: {plain(str(error))}") from error

    def find(name: str) -> Stored | None:
        at: Stored | str | None = name
        for _ in range(_MOST_LINKS):
            at = found.get(at) if isinstance(at, str) else at
        return None if isinstance(at, str) else at

    return Files(str(path), find)


def read_json(files: Files, name: str) -> bytes:
    """A manifest, an index or a config among `files`. Raises ImageError if it is missing or longer than 4 MiB."""
    stored = files.get(name, f"it has no {plain(name)}")
    if stored.size > LARGEST:
        raise ImageError(f"{files.name}: {plain(name)} has {stored.size} bytes, too many for a manifest or config")
    return stored.read(LARGEST)


@dataclass(frozen=True)
class BlobSource:
    """The source of a blob: a server, or a local file. Its digest is not checked yet.

    `diff_id` is the digest that the image's config gives for the uncompressed bytes; "" until it is known.
    """

    descriptor: Descriptor
    where: Get | Stored
    diff_id: str = ""


@dataclass(frozen=True)
class OciImage:
    """An image for the wanted platform; `sources` are its layers, bottom first, as the manifest lists them."""

    manifest: Manifest
    config: ImageConfig
    sources: tuple[BlobSource, ...]
    notes: tuple[str, ...] = ()  # for the user


def of_files(manifest: Manifest, config: ImageConfig, blobs: tuple[Stored, ...]) -> OciImage:
    """The image whose layers are the files `blobs`, bottom first."""
    layers = zip(manifest.layers, blobs, strict=True)
    return OciImage(manifest, config, tuple(BlobSource(layer, blob) for layer, blob in layers))


def open_image(reference: Reference, arch: str, settings: Settings, workspace: Path | None = None) -> OciImage:
    """The container image that a reference names, for linux on `arch`.

    Manifest and config are read and verified, layers are not. A compressed archive is unpacked into `workspace`, which
    must stay while the layers are read. Raises FetchError if there is no such image, ImageError if it is damaged, for
    another platform, or not a container image.
    """
    if reference.kind.open is None:
        raise FetchError(f"{reference.source} is not an OCI image (docker://, oci:, oci-archive:, docker-archive:)")
    image = reference.kind.open(reference, arch, settings, workspace)
    name = reference.source
    check_layers(image.manifest, name)
    check_platform(image.config, arch, name)
    layers, diff_ids = len(image.sources), len(image.config.diff_ids)
    if layers != diff_ids:
        raise ImageError(f"{name} has {layers} layers, but its config names {diff_ids}")
    stated = zip(image.sources, image.config.diff_ids, strict=True)
    return replace(image, sources=tuple(replace(source, diff_id=diff_id) for source, diff_id in stated))


def read_layout(reference: Reference, files: Files, arch: str) -> OciImage:
    """The image of `reference` in the layout with these `files`, for linux on `arch`.

    Manifest and config are verified; for layers only their existence and size. Raises FetchError if there is no layout
    or no such image in it, ImageError if it is damaged or not for `arch`.
    """
    if files.find("index.json") is None or files.find("oci-layout") is None:
        raise FetchError(f"{files.name} is not an OCI layout: it lacks oci-layout or index.json")
    name = f"{files.name}/index.json"
    entries = parse_entries(read_content(read_json(files, "index.json"), name))
    manifest = manifest_behind(
        lambda digest: (
            parse(read_json(files, _path(digest)), f"{files.name}: {digest}", digest),
            f"{files.name}: the image",
        ),
        _chosen(reference, files, entries, arch),
        arch,
        files.name,
    )
    config = manifest.config
    raw = read_json(files, _path(config.digest))
    check_digest(raw, f"{files.name}: the config", config.digest)
    blobs = tuple(_blob(files, layer) for layer in manifest.layers)
    return of_files(manifest, parse_config(raw, f"{files.name}: the config {config.digest}"), blobs)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _blob(files: Files, descriptor: Descriptor) -> Stored:
    stored = files.get(_path(descriptor.digest), f"the layer {descriptor.digest} is missing")
    if stored.size != descriptor.size:
        raise ImageError(
            f"{files.name}: the layer {descriptor.digest} has {stored.size} bytes, expected {descriptor.size}"
        )
    return stored


def _chosen(reference: Reference, files: Files, entries: tuple[Entry, ...], arch: str) -> str:
    """The digest of the manifest or index that the reference names. Raises FetchError for none or several."""
    tags = [entry.tag for entry in entries]
    if reference.digest:
        if files.find(_path(reference.digest)):  # also inside an index
            return reference.digest
        wanted: tuple[Entry, ...] = ()
    elif reference.tag and tags != [""]:  # a single image without a name matches any tag
        wanted = tuple(entry for entry in entries if entry.tag == reference.tag)
    else:
        wanted = entries
    if len({entry.tag for entry in wanted}) == 1 and len({entry.digest for entry in wanted}) > 1:
        wanted = lowest(wanted, arch) or wanted  # one tag, an image for each architecture
    if len({entry.digest for entry in wanted}) == 1:
        return wanted[0].descriptor.digest
    asked = reference.digest or f"the tag {reference.tag}"
    what = f"asked for {asked}, which {len(wanted)} of its {len(entries)} images have"
    if not (reference.digest or reference.tag):
        what = f"no tag was given, and it has {len(entries)} images"
    have = ", ".join(sorted({plain(tag) for tag in tags if tag})) or ", ".join(plain(entry.digest) for entry in entries)
    raise FetchError(
        f"{files.name}: {what}",
        f"it has: {have}" if have else "",
    )
