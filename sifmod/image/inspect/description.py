"""An ImageDescription: what an image says about itself. Others wrote all of it; what is in here is printable."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sifmod.image.oci.image import open_image
from sifmod.image.oci.manifest import ImageConfig, Manifest
from sifmod.image.printable import LINE, block, line
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings
from sifmod.system import scratch_directory

Pairs = tuple[tuple[str, str], ...]

_MOST = 1000  # labels, variables, words


class Part(NamedTuple):
    """One data object of a SIF, or one layer of an OCI image."""

    kind: str  # the SIF's type for people, or the media type
    size: int  # bytes
    digest: str = ""  # of a layer


class Config(NamedTuple):
    """What the image's author set for those who run it."""

    labels: Pairs = ()
    environment: Pairs = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""


NO_CONFIG = Config()


@dataclass(frozen=True)
class ImageDescription:
    """What is known of an image without starting it. What it does not say is empty; sizes are in bytes.

    `sha256` is that of the SIF where it is known without reading all of it. `signers` are the fingerprints that its
    signatures name, which are not checked yet.
    """

    kind: str  # SIF, OCI image
    arch: str
    size: int  # of the SIF, or of the layers as they are in the registry
    sha256: str = ""
    manifest: str = ""  # digest
    index: str = ""  # digest
    created: str = ""
    origin: str = ""  # where it was made from
    bases: tuple[str, ...] = ()  # of an image that recipes have built, the lowest first: source and digest
    parts: tuple[Part, ...] = ()
    compression: str = ""  # of the squashfs in a SIF
    config: Config = NO_CONFIG
    runscript: str = ""
    definition: str = ""
    signers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be read, and why


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
