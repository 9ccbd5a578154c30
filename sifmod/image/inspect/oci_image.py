"""A container image, described from its manifest and config; no layer is fetched."""

import tempfile
from pathlib import Path

from sifmod.image.inspect.description import ImageDescription, date, of_config, pairs, parts
from sifmod.image.oci.image import open_image
from sifmod.image.printable import line
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings


def describe_image(reference: Reference, arch: str, settings: Settings) -> ImageDescription:
    """What the image of `reference` says about itself, for linux on `arch`.

    Raises FetchError where there is none, ImageError where it is damaged or not for `arch`.
    """
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
        parts=parts(manifest),
        config=config._replace(labels=tuple(sorted(labels.items()))),
    )
