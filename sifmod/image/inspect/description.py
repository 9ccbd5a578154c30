"""An ImageDescription: what an image says about itself. Others wrote all of it; what is in here is printable."""

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

    kind: Annotated[str, Described("the SIF's type for people, or the media type")]
    size: Size
    digest: Annotated[OrNull[Digest], Described("of a layer")] = ""


class Config(NamedTuple):
    """What an image's author set for those who run it."""

    labels: Pairs = ()
    environment: Pairs = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: OrNull[str] = ""
    user: OrNull[str] = ""


NO_CONFIG = Config()


@dataclass(frozen=True)
class ImageDescription:
    """What an image says about itself."""

    kind: Literal["SIF", "SIF in a registry", "OCI image"]
    arch: Arch
    size: Annotated[Size, Described("bytes; of the layers as they are in a registry")]
    sha256: Annotated[OrNull[Sha256], Described("of the SIF, where it is known without reading it")] = ""
    manifest: OrNull[Digest] = ""
    index: OrNull[Digest] = ""
    created: OrNull[Time] = ""
    source: OrNull[Source] = ""
    parts: tuple[Part, ...] = ()
    compression: Annotated[OrNull[str], Described("of the squashfs")] = ""
    config: Config = NO_CONFIG
    runscript: OrNull[str] = ""
    definition: OrNull[str] = ""
    bases: Annotated[tuple[str, ...], Described("of an image that recipes have built, the lowest first")] = ()
    signers: Annotated[tuple[str, ...], Described("that its signatures name; not checked")] = ()
    notes: Annotated[tuple[str, ...], Described("what could not be read, and why")] = ()


def pairs(found: Iterable[tuple[str, str]]) -> Pairs:
    """Names and values made printable (a value may have line ends), at most a thousand, in their order."""
    return tuple((line(name, 200), block(value, LINE)) for (name, value), _ in zip(found, range(_MOST), strict=False))


def words(found: Iterable[str]) -> tuple[str, ...]:
    """Words made printable, at most a thousand."""
    return tuple(line(word) for word, _ in zip(found, range(_MOST), strict=False))


def variables(env: Iterable[str]) -> Pairs:
    """`NAME=value` as pairs; of several with one name the last counts, as for the OCI runtimes."""
    found: dict[str, str] = {}
    for entry in env:
        name, _, value = entry.partition("=")
        found[name] = value
    return pairs(found.items())


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
    """As ISO 8601 has it, in UTC; "" where it is not known or senseless."""
    good = seconds is not None and 0 < seconds < 1 << 34
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if good else ""


def describe_image(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    """What the image of `reference` says about itself, for linux on `arch`.

    Raises FetchError where there is none, ImageError where it is damaged or not for `arch`.
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
