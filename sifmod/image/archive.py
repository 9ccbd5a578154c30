"""An image in a tar archive: an OCI layout to unpack, or what `docker save` writes."""

import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.disk import reading, writing
from sifmod.image.reference import Reference
from sifmod.image.sink import Sink

_CHUNK = 1 << 20  # bytes
_LARGEST_INDEX = 4 << 20  # bytes
_LAYOUT_FILE = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")


def unpack_layout(archive: Path, directory: Path) -> Path:
    """Unpack the files of the OCI layout in `archive`, and nothing else, into the new `directory`.

    Raises FetchError for what is no tar archive; whether it is a layout is seen when it is read.
    """
    with writing(directory):
        (directory / "blobs" / "sha256").mkdir(parents=True)
    with _opened(archive) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if not member.isreg() or not _LAYOUT_FILE.fullmatch(name) or (directory / name).exists():
                continue
            if (content := tar.extractfile(member)) is not None:
                with Sink(directory / name) as sink:
                    while chunk := content.read(_CHUNK):
                        sink.write(chunk)
    return directory


def check_docker_archive(reference: Reference, archive: Path) -> None:
    """Raise FetchError unless `archive` holds exactly one image, which has the tag asked for, if any."""
    with _opened(archive) as tar:
        manifest = next((member for member in tar if member.name.removeprefix("./") == "manifest.json"), None)
        content = tar.extractfile(manifest) if manifest is not None else None
        text = content.read(_LARGEST_INDEX) if content is not None else b"null"
    try:
        images = [tuple(str(tag) for tag in image.get("RepoTags") or ()) for image in json.loads(text)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise FetchError(f"{archive} is not an archive of `docker save`: it has no usable manifest.json") from None
    tags = [tag for image in images for tag in image]
    if len(images) != 1:
        raise FetchError(
            f"{archive} holds {len(images)} images ({', '.join(tags)}), and the runtime reads archives of one only",
            "take one out: skopeo copy docker-archive:FILE:TAG oci:LAYOUT, and use oci:LAYOUT as the source",
        )
    if reference.tag and not any(tag == reference.tag or tag.endswith(f"/{reference.tag}") for tag in tags):
        raise FetchError(f"{archive} has no image {reference.tag}; it has: {', '.join(tags) or 'one without a tag'}")


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if not archive.is_file():
        raise FetchError(f"there is no archive {archive}")
    try:
        with reading(archive), tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise FetchError(f"{archive} is not a complete tar archive: {error}") from error
