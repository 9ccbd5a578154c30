"""An ImageDescription: the metadata of an image. Its author is not trusted, so all texts are made printable."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from sifmod.image.oci.image import open_image
from sifmod.image.oci.manifest import ImageConfig, Manifest
from sifmod.image.printable import LINE, block, line
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings
from sifmod.result import Arch, Described, Digest, OrNull, Sha256, Size, Source, Time
from sifmod.system import scratch_directory

Pairs = tuple[tuple[str, str], ...]

_MOST = 1000  # labels, variables, words


class Part(NamedTuple):
    """One data object of a SIF, or one layer of an OCI image."""

    kind: Annotated[str, Described("the SIF's type in words, or the media type")]
    size: Size
    digest: Annotated[OrNull[Digest], Described("digest of a layer")] = ""


class Config(NamedTuple):
    """The settings of an image's author for its users."""

    labels: Pairs = ()
    environment: Pairs = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: OrNull[str] = ""
    user: OrNull[str] = ""


NO_CONFIG = Config()


@dataclass(frozen=True)
class ImageDescription:
    """The metadata of an image."""

    kind: Literal["SIF", "SIF in a registry", "OCI image"]
    arch: Arch
    size: Annotated[Size, Described("bytes; for layers the size in a registry")]
    sha256: Annotated[OrNull[Sha256], Described("SHA-256 of the SIF, if known without reading the file")] = ""
    manifest: OrNull[Digest] = ""
    index: OrNull[Digest] = ""
    created: OrNull[Time] = ""
    source: OrNull[Source] = ""
    parts: tuple[Part, ...] = ()
    compression: Annotated[OrNull[str], Described("compression of the squashfs")] = ""
    config: Config = NO_CONFIG
    runscript: OrNull[str] = ""
    definition: OrNull[str] = ""
    bases: Annotated[tuple[str, ...], Described("bases of an image built by recipes, the lowest first")] = ()
    signers: Annotated[tuple[str, ...], Described("signers that its signatures name, not verified")] = ()
    notes: Annotated[tuple[str, ...], Described("what could not be read, with the reason")] = ()


def pairs(found: Iterable[tuple[str, str]]) -> Pairs:
    """The pairs in `found`, at most a thousand, with printable names and values; a value may have line ends."""
    return tuple((line(name, 200), block(value, LINE)) for (name, value), _ in zip(found, range(_MOST), strict=False))


def words(found: Iterable[str]) -> tuple[str, ...]:
    """The words in `found`, at most a thousand, printable."""
    return tuple(line(word) for word, _ in zip(found, range(_MOST), strict=False))


def variables(env: Iterable[str]) -> Pairs:
    """`NAME=value` as pairs; the last value of a name counts, as for the OCI runtimes."""
    return pairs(dict(entry.partition("=")[::2] for entry in env).items())


def of_config(config: ImageConfig) -> Config:
    return Config(
        pairs(config.labels),
        variables(config.env),
        words(config.entrypoint),
        words(config.cmd),
        line(config.working_dir),
        line(config.user),
    )


def parts(manifest: Manifest) -> tuple[Part, ...]:
    return tuple(Part(line(layer.media_type, 200), layer.size, layer.digest) for layer in manifest.layers)


def date(seconds: int | None) -> str:
    """The time in ISO 8601, in UTC; "" if it is unknown or invalid."""
    good = seconds is not None and 0 < seconds < 1 << 34
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if good else ""


def describe_image(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    """The metadata of the image of `reference`, for linux on `arch`.

    Raises FetchError if there is no such image, ImageError if it is damaged or not for `arch`.
    """
    with scratch_directory() as workspace:  # for an archive that is compressed
        image = open_image(reference, arch, settings, workspace)
    manifest, config = image.manifest, of_config(image.config)
    labels = {**dict(pairs(manifest.annotations)), **dict(config.labels)}
    return ImageDescription(
        kind="OCI image",
        arch=line(image.config.arch or arch),
        size=sum(layer.size for layer in manifest.layers),
        manifest=manifest.digest,
        index=manifest.index_digest,
        created=date(image.config.created),
        parts=parts(manifest),
        config=config._replace(labels=tuple(sorted(labels.items()))),
    )
