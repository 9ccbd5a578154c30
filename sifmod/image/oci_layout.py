"""An OCI image layout on disk: the one manifest that a tag or a digest names.

The format is the Image Layout of the OCI image specification 1.1: `oci-layout`, `index.json` and `blobs/`.
"""

import json
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.disk import reading, writing
from sifmod.image.reference import Reference

_TAG = "org.opencontainers.image.ref.name"
_LARGEST_INDEX = 4 << 20  # bytes


def single_manifest_layout(reference: Reference, layout: Path, directory: Path) -> None:
    """Make `directory` a layout of just the image of `reference`, its blobs a link to those of the absolute `layout`.

    Apptainer 1.4 cannot read `oci:LAYOUT:TAG` with an empty cache, nor a path with a colon; a layout of one untagged
    manifest works. Raises FetchError where the layout is none, or its index has no such image, or more than one.
    """
    chosen = _choose(reference, layout, _manifests(layout))
    kept = {name: chosen[name] for name in ("mediaType", "digest", "size", "platform") if name in chosen}
    with writing(directory):
        directory.mkdir()
        (directory / "blobs").symlink_to(layout / "blobs")
        (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [kept]}))


def _manifests(layout: Path) -> list[dict[str, object]]:
    path = layout / "index.json"
    if not path.is_file() or not (layout / "oci-layout").is_file():
        what = "there is nothing" if not layout.exists() else "it has no oci-layout and index.json"
        raise FetchError(f"{layout} is not an OCI layout: {what}")
    with reading(path), path.open("rb") as file:
        text = file.read(_LARGEST_INDEX + 1)
    try:
        manifests = json.loads(text)["manifests"]
        good = isinstance(manifests, list) and all(isinstance(entry["digest"], str) for entry in manifests)
    except (ValueError, TypeError, LookupError, RecursionError):
        good = False
    if not good or len(text) > _LARGEST_INDEX:
        raise FetchError(f"{path} is not the index of an OCI layout")
    return list(manifests)


def _choose(reference: Reference, layout: Path, manifests: list[dict[str, object]]) -> dict[str, object]:
    tags = [_tag(entry) for entry in manifests]
    if reference.digest:
        wanted = [entry for entry in manifests if entry["digest"] == reference.digest]
    elif reference.tag and tags != [""]:  # the tag of a single manifest without name is dropped
        wanted = [entry for entry in manifests if _tag(entry) == reference.tag]
    else:
        wanted = manifests
    if len({str(entry["digest"]) for entry in wanted}) == 1:
        return wanted[0]
    asked = reference.digest or (f"the tag {reference.tag}" if reference.tag else "no tag")
    have = ", ".join(sorted({tag for tag in tags if tag})) or ", ".join(str(entry["digest"]) for entry in manifests)
    raise FetchError(
        f"{layout}: asked for {asked}, which {len(wanted)} of its {len(manifests)} images have",
        f"it has: {have}" if have else "",
    )


def _tag(entry: dict[str, object]) -> str:
    annotations = entry.get("annotations")
    return str(annotations.get(_TAG, "")) if isinstance(annotations, dict) else ""
