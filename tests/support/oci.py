"""Write an OCI image layout from a handful of files: one layer, one manifest, no tag."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One file of a layer: a directory when there is neither content nor link."""

    path: str
    content: bytes | None = None
    link: str | None = None
    mode: int = 0o755


def layer(entries: Sequence[Entry]) -> bytes:
    """An uncompressed tar, the same bytes for the same entries."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode = entry.mode
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.content)
            tar.addfile(info, None if entry.content is None else io.BytesIO(entry.content))
    return stream.getvalue()


def write_layout(
    directory: Path,
    layers: Sequence[bytes],
    *,
    labels: Mapping[str, str] | None = None,
    env: Sequence[str] = (),
    arch: str = "amd64",
) -> Path:
    """Make `directory` an OCI layout of one untagged manifest and return it."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    tars = [blob("layer.v1.tar", tar) for tar in layers]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    config = {
        "created": "2025-01-01T00:00:00Z",
        "architecture": arch,
        "os": "linux",
        "config": {"Env": [path, *env], "Cmd": ["/bin/sh"], "Labels": dict(labels or {})},
        "rootfs": {"type": "layers", "diff_ids": [tar["digest"] for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", json.dumps(config).encode()),
        "layers": tars,
    }
    index = {"schemaVersion": 2, "manifests": [blob("manifest.v1+json", json.dumps(manifest).encode())]}
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory
