"""Indexes in OCI layouts: one image for several architectures, and indexes inside indexes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.command import run
from support.oci import Entry, layer, write_layout

INDEX = "application/vnd.oci.image.index.v1+json"
Descriptor = dict[str, object]


def write_multi(directory: Path, arches: Sequence[str]) -> Path:
    """A layout of one index: an image for each architecture, with the file `arch` that says which."""
    entries = []
    for arch in arches:
        tar = layer((Entry("etc"), Entry("etc/arch", arch.encode(), mode=0o644)))
        made = write_layout(directory.with_name(f"{directory.name}-{arch}"), (tar,), arch=arch)
        entries.append({**entry(made), "platform": {"architecture": arch, "os": "linux"}})
        run(("cp", "-r", f"{made}/.", directory)).ok()
    put_index(directory, entries)
    return directory


def entry(layout: Path) -> Descriptor:
    """The only descriptor of the layout's index."""
    (found,) = json.loads((layout / "index.json").read_text())["manifests"]
    return dict(found)


def put_index(layout: Path, entries: Sequence[Mapping[str, object]]) -> Descriptor:
    """Make a new index of `entries` the only thing that the layout names, and return its descriptor."""
    content = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)}).encode()
    outer = put_blob(layout, content, INDEX)
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [outer]}))
    return outer


def put_blob(layout: Path, content: bytes, media_type: str) -> Descriptor:
    """Add a blob and return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
