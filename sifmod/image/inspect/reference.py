"""An image behind a reference, described from its manifest and config; no layer is fetched."""

import tempfile
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.inspect.description import Config, ImageDescription, Part, date, of_config, pairs
from sifmod.image.inspect.printable import line
from sifmod.image.oci.image import open_image
from sifmod.image.oci.manifest import SIF_LAYER, Manifest
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import Settings
from sifmod.image.sources.reference import Reference

DESCRIBED = ("docker", "oras", "oci", "oci-archive", "docker-archive")
"""The kinds of references that say something without being fetched."""


def describe_reference(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    """What a reference of one of the kinds DESCRIBED names, for linux on `arch`.

    Raises FetchError where it cannot be had or is of another kind, ImageError where it is damaged or not for `arch`.
    """
    if reference.kind == "oras":
        return _of_sif(reference, arch, settings)
    if reference.kind not in DESCRIBED:
        raise FetchError(
            f"{line(reference.shown)} says nothing about itself before it is fetched",
            "fetch it, then look at the file: sifmod fetch -o FILE.sif REFERENCE; sifmod show FILE.sif",
        )
    with tempfile.TemporaryDirectory(prefix="sifmod-") as workspace:  # for an archive that is compressed
        image = open_image(reference, arch, settings, Path(workspace))
    manifest, config = image.manifest, of_config(image.config)
    labels = {**dict(pairs(manifest.annotations)), **dict(config.labels)}
    return ImageDescription(
        kind="OCI image",
        arch=line(image.config.arch or arch),
        size=sum(layer.size for layer in manifest.layers),
        manifest=manifest.digest,
        index=manifest.index_digest,
        created=date(image.config.created),
        parts=_parts(manifest),
        config=config._replace(labels=tuple(sorted(labels.items()))),
    )


def _of_sif(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    manifest = Registry(reference, settings, arch).manifest()
    layers = [layer for layer in manifest.layers if layer.media_type == SIF_LAYER]
    if len(layers) != 1:
        raise ImageError(
            f"{line(reference.shown)} holds {len(layers)} SIFs, expected one", "docker:// names an OCI image"
        )
    return ImageDescription(
        kind="SIF in a registry",
        arch="",
        size=layers[0].size,
        sha256=layers[0].digest.removeprefix("sha256:"),
        manifest=manifest.digest,
        index=manifest.index_digest,
        parts=_parts(manifest),
        config=Config(labels=pairs(manifest.annotations)),
    )


def _parts(manifest: Manifest) -> tuple[Part, ...]:
    return tuple(Part(line(layer.media_type, 200), layer.size, layer.digest) for layer in manifest.layers)
