"""Manifests and configs: the parts of an image, and its metadata.

OCI image specification 1.1 (descriptor, manifest, config) and Docker's manifest version 2, schema 2, which is the same
under other media types. Any error in one is an ImageError that names it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError
from sifmod.image.oci.content import Content, plain, read_content

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"

_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_OTHER_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "unknown": ""}
_LARGEST_SIZE = 1 << 50  # bytes
_MOST_LAYERS = 10_000
_LAYER = re.compile(
    r"application/vnd\.(oci\.image\.layer(\.nondistributable)?\.v1\.tar(\+(gzip|zstd))?"
    r"|docker\.image\.rootfs\.(foreign\.)?diff\.tar([.+](gzip|zstd))?)"
)


@dataclass(frozen=True)
class Descriptor:
    """A blob's descriptor. `digest` is `sha256:…`; "" only for some layers in an archive of `docker save`."""

    media_type: str
    digest: str
    size: int  # bytes


@dataclass(frozen=True)
class Manifest:
    """One image for one platform: its config and its layers, bottom first.

    `digest` and `raw` are empty for an archive of `docker save`, which has no manifest. `index_digest` names the index
    that it was chosen from, if any; `annotations` are sorted by name.
    """

    digest: str
    raw: bytes
    config: Descriptor
    layers: tuple[Descriptor, ...]
    index_digest: str = ""
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ImageConfig:
    """An image's config. Texts are unchanged; missing values are empty.

    `arch` and `os` are Go's names, `arch` is "" for `unknown`. `env` has `NAME=value`, or a bare `NAME` as in the
    image. `created` is in seconds since 1970, None if it is missing, invalid or before 1970. `labels` are sorted by
    name. `diff_ids` are the digests of the unpacked layers, bottom first.
    """

    raw: bytes
    arch: str
    os: str
    variant: str
    created: int | None
    env: tuple[str, ...]
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    working_dir: str
    user: str
    diff_ids: tuple[str, ...]


def parse_manifest(raw: bytes, name: str) -> Manifest:
    """The manifest in `raw`, called `name` in messages. Raises ImageError if it is invalid or over 4 MiB."""
    content = read_content(raw, name)
    kind = content.text("mediaType")
    if kind not in ("", OCI_MANIFEST, DOCKER_MANIFEST) or "config" not in content:
        why = "it has no config" if kind in ("", OCI_MANIFEST, DOCKER_MANIFEST) else f"its media type is {plain(kind)}"
        raise ImageError(f"{name} is not an image's manifest: {why}")
    layers = content.children("layers")
    if len(layers) > _MOST_LAYERS:
        raise ImageError(f"{content.name}: {len(layers)} layers, more than {_MOST_LAYERS}")
    return Manifest(
        f"sha256:{sha256_bytes(raw)}",
        raw,
        parse_descriptor(content.child("config")),
        tuple(parse_descriptor(layer) for layer in layers),
        annotations=content.pairs("annotations"),
    )


def parse_config(raw: bytes, name: str) -> ImageConfig:
    """The config in `raw`, called `name` in messages. Raises ImageError if it is invalid or over 4 MiB."""
    content = read_content(raw, name)
    config, rootfs = content.child("config"), content.child("rootfs")
    diff_ids = rootfs.texts("diff_ids")
    if not all(_DIGEST.fullmatch(one) for one in diff_ids):
        raise rootfs.wrong("diff_ids", "a list of SHA-256 digests")
    return ImageConfig(
        raw,
        architecture(content.text("architecture")),
        content.text("os"),
        content.text("variant"),
        _seconds(content.text("created")),
        _arguments(config, "Env"),
        _arguments(config, "Entrypoint"),
        _arguments(config, "Cmd"),
        config.pairs("Labels"),
        config.text("WorkingDir"),
        config.text("User"),
        diff_ids,
    )


def architecture(name: str) -> str:
    """Go's name of an architecture, also for the kernel's name; "" for `unknown`."""
    return _OTHER_NAMES.get(name, name)


def check_layers(manifest: Manifest, name: str) -> None:
    """Raise ImageError unless every layer is a file system's (an artifact's is not), and if there are no layers."""
    for layer in manifest.layers:
        if layer.media_type == SIF_LAYER:
            raise ImageError(f"{name} is a SIF, not a container image", "write oras:// instead of docker://")
        if layer.media_type and not _LAYER.fullmatch(layer.media_type):
            what = "an encrypted layer" if layer.media_type.endswith("+encrypted") else "not a file system layer"
            raise ImageError(f"{name}: {layer.digest} is {what}: {layer.media_type!r}")
    if not manifest.layers:
        raise ImageError(f"{name} has no layers")


def check_platform(config: ImageConfig, arch: str, name: str) -> None:
    """Raise ImageError if the image is for another architecture than `arch`, or not for Linux."""
    if config.arch not in (arch, ""):
        raise ImageError(
            f"{name}: the image is for {plain(config.arch)}, expected {arch}",
            "name a source for this machine, or give the image's own `arch:` in the easyconfig",
        )
    if config.os not in ("linux", "", "unknown"):
        raise ImageError(f"{name}: the image is for {plain(config.os)}, expected linux")


def check_digest(raw: bytes, name: str, digest: str) -> None:
    """Raise ImageError unless `raw` has the expected `digest`; "" accepts any."""
    if digest and digest != (found := f"sha256:{sha256_bytes(raw)}"):
        raise ImageError(
            f"{name} has a wrong digest: expected {digest}, got {found}", "it was damaged in transit or on disk"
        )


def parse_descriptor(content: Content) -> Descriptor:
    """The descriptor in `content`. Raises ImageError for an invalid digest or size."""
    digest, size = content.text("digest"), content.number("size")
    if not _DIGEST.fullmatch(digest):
        raise content.wrong("digest", f"a SHA-256 digest: {digest[:80]!r}")
    if not 0 <= size <= _LARGEST_SIZE:
        raise content.wrong("size", f"a number of bytes: {size}")
    return Descriptor(content.text("mediaType"), digest, size)


def _arguments(config: Content, key: str) -> tuple[str, ...]:
    values = config.texts(key)
    if any("\0" in value for value in values):
        raise config.wrong(key, "a text without NUL characters")
    return values


def _seconds(created: str) -> int | None:
    try:
        moment = datetime.fromisoformat(created)
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds if seconds >= 0 else None
