"""An OCI image layout on disk: the one manifest that a tag, a digest and an architecture name.

The format is the Image Layout of the OCI image specification 1.1: `oci-layout`, `index.json` and `blobs/`.
"""

import json
import re
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import reading, writing
from sifmod.image.reference import Reference

Entry = dict[str, object]  # a descriptor, as JSON has it

_TAG = "org.opencontainers.image.ref.name"
_LARGEST_JSON = 4 << 20  # bytes


def single_manifest_layout(reference: Reference, layout: Path, arch: str, directory: Path) -> None:
    """Make `directory` a layout of just the image of `reference`, its blobs a link to those of the absolute `layout`.

    Of an image for several architectures the one for `arch` is taken; an image for another one only is refused, since
    the runtime would label it with its own.

    Apptainer 1.4 cannot read `oci:LAYOUT:TAG` with an empty cache, nor a path with a colon; a layout of one untagged
    manifest works. Raises FetchError where the layout is none, or its index has no such image, or more than one.
    """
    chosen = _for_arch(layout, _choose(reference, layout, _manifests(layout)), arch)
    kept = {name: chosen[name] for name in ("mediaType", "digest", "size", "platform") if name in chosen}
    with writing(directory):
        directory.mkdir()
        (directory / "blobs").symlink_to(layout / "blobs")
        (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [kept]}))


def _manifests(layout: Path) -> list[Entry]:
    path = layout / "index.json"
    if not path.is_file() or not (layout / "oci-layout").is_file():
        what = "there is nothing" if not layout.exists() else "it has no oci-layout and index.json"
        raise FetchError(f"{layout} is not an OCI layout: {what}")
    return _entries(path, _read(path), "manifests")


def _read(path: Path) -> Entry:
    """A JSON object of the layout."""
    with reading(path), path.open("rb") as file:
        text = file.read(_LARGEST_JSON + 1)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or len(text) > _LARGEST_JSON:
        raise FetchError(f"{path} is not what an OCI layout has there")
    return content


def _entries(path: Path, content: Entry, key: str) -> list[Entry]:
    """The descriptors in a list of the layout."""
    entries = content.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "digest" in entry for entry in entries):
        raise FetchError(f"{path} has no list of {key} as an OCI layout has there")
    return entries


def _blob(layout: Path, entry: object) -> Path:
    digest = str(entry.get("digest")) if isinstance(entry, dict) else ""
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise FetchError(f"{layout}: {digest!r} is not a SHA-256 digest")
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _for_arch(layout: Path, entry: Entry, arch: str) -> Entry:
    path = _blob(layout, entry)
    manifest = _read(path)
    if "manifests" in manifest:
        entries = _entries(path, manifest, "manifests")
        arches = {_arch(one.get("platform")): one for one in reversed(entries)}
        if arch not in arches:
            have = ", ".join(sorted(arches))
            raise ImageError(f"{layout}: the image does not exist for {arch}, only for {have}")
        return arches[arch]
    found = _arch(_read(_blob(layout, manifest.get("config"))))
    if found not in (arch, "unknown"):
        raise ImageError(f"{layout}: the image is for {found}, expected {arch}")
    return entry


def _arch(platform: object) -> str:
    return str(platform.get("architecture", "unknown")) if isinstance(platform, dict) else "unknown"


def _choose(reference: Reference, layout: Path, manifests: list[Entry]) -> Entry:
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


def _tag(entry: Entry) -> str:
    annotations = entry.get("annotations")
    return str(annotations.get(_TAG, "")) if isinstance(annotations, dict) else ""
