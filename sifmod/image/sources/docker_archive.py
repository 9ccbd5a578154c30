"""docker-archive: a container image that `docker save` wrote, converted to a SIF here.

Docker's image specification 1.2: a manifest.json names configs and layers; there is no manifest with a digest in it.
"""

import json
import re
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.oci_to_sif import convert
from sifmod.image.inspect.description import describe_image
from sifmod.image.oci.content import Content, plain
from sifmod.image.oci.image import Files, OciImage, Stored, of_files, open_archive, read_json
from sifmod.image.oci.manifest import Descriptor, Manifest, check_digest, parse_config
from sifmod.image.reference import (
    Reference,
    SourceKind,
    nothing,
    path_after_scheme,
    refused,
    size_of_location,
    the_location,
)

_HEX = re.compile(r"(?:^|/)([0-9a-f]{64})(?:\.json)?$")
_TAR = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSED = ((b"\x1f\x8b", "+gzip"), (b"\x28\xb5\x2f\xfd", "+zstd"))
_CONFIG = "application/vnd.docker.container.image.v1+json"


def read_docker_archive(reference: Reference, files: Files) -> OciImage:
    """The image of `reference` in the archive with these `files`.

    Its manifest has no digest and no raw text. A layer's digest is from its name in newer archives, else from the
    config's `diff_ids` if the layer is not compressed, else "". Raises FetchError if there is no such image, ImageError
    if the archive is damaged.
    """
    image = _chosen(reference, files, _images(files))
    name = image.text("Config")
    raw = read_json(files, name)
    if promised := _HEX.search(name):
        check_digest(raw, f"{files.name}: {plain(name)}", f"sha256:{promised[1]}")
    config = parse_config(raw, f"{files.name}: {plain(name)}")
    blobs = tuple(files.get(layer, f"the layer {plain(layer)} is missing") for layer in image.texts("Layers"))
    if len(blobs) != len(config.diff_ids):
        raise ImageError(f"{files.name} has {len(blobs)} layers, but its config names {len(config.diff_ids)}")
    layers = tuple(
        _descriptor(path, stored, diff_id)
        for path, stored, diff_id in zip(image.texts("Layers"), blobs, config.diff_ids, strict=True)
    )
    described = Descriptor(_CONFIG, f"sha256:{sha256_bytes(raw)}", len(raw))
    return of_files(Manifest("", b"", described, layers), config, blobs)


def _images(files: Files) -> tuple[Content, ...]:
    what = f"{files.name} is not an archive of `docker save`: it has no usable manifest.json"
    if files.find("manifest.json") is None:
        raise ImageError(what)
    try:
        listed = json.loads(read_json(files, "manifest.json"))
    except (ValueError, RecursionError):
        raise ImageError(what) from None
    if not isinstance(listed, list) or not all(isinstance(image, dict) for image in listed):
        raise ImageError(what)
    return tuple(Content(f"{files.name}: manifest.json", image) for image in listed)


def _chosen(reference: Reference, files: Files, images: tuple[Content, ...]) -> Content:
    asked = reference.tag
    if asked:
        names = (f"/{asked}", f"/{asked}:latest")
        wanted = [image for image in images if any(f"/{tag}".endswith(names) for tag in image.texts("RepoTags"))]
    else:
        wanted = list(images)
    if len({image.text("Config") for image in wanted}) == 1:
        return wanted[0]
    have = ", ".join(plain(tag) for image in images for tag in image.texts("RepoTags")) or "none with a tag"
    if asked:
        raise FetchError(f"{files.name} has {len(wanted)} images called {asked}; it has: {have}")
    raise FetchError(
        f"{files.name} contains {len(images)} images ({have}), and the source does not select one",
        f"add its name: docker-archive:{files.name}:NAME:TAG",
    )


def _descriptor(path: str, stored: Stored, diff_id: str) -> Descriptor:
    start = stored.read(4)
    compressed = next((suffix for magic, suffix in _COMPRESSED if start.startswith(magic)), "")
    named = _HEX.search(path) if path.startswith("blobs/sha256/") else None
    digest = f"sha256:{named[1]}" if named else ("" if compressed else diff_id)
    return Descriptor(_TAR + compressed, digest, stored.size)


def _parse(kind: SourceKind, source: str) -> Reference:
    path, _, tag = path_after_scheme(kind, source).partition(
        ":"
    )  # the tag is a whole docker reference: repository/name:1.0
    if not path:
        raise refused(source, "expected docker-archive:PATH or docker-archive:PATH:NAME:TAG")
    return Reference(kind, source, path, tag)


DOCKER_ARCHIVE = SourceKind(
    name="docker-archive",
    schemes=("docker-archive",),
    example="docker-archive:/images/x.tar:group/image:1.0",
    location="path",
    parse=_parse,
    watched=the_location,
    local_sif=nothing,
    open=lambda reference, _arch, _settings, workspace: read_docker_archive(
        reference, open_archive(Path(reference.location), workspace)
    ),
    describe=describe_image,
    pinned=nothing,
    announced=size_of_location,
    fetch=convert,
)
