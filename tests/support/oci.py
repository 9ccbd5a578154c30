"""Write an OCI image layout of one manifest without a tag: of a handful of files, or of layers made elsewhere."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OCI = "application/vnd.oci.image"


@dataclass(frozen=True)
class Entry:
    """One file of a layer: a directory when there is neither content nor link."""

    path: str
    content: bytes | None = None
    link: str | None = None
    mode: int = 0o755


@dataclass(frozen=True)
class Packed:
    """A layer as it is transferred: `diff_id` is the digest of its tar."""

    blob: bytes
    diff_id: str
    media_type: str = f"{OCI}.layer.v1.tar"


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
    layers: Sequence[bytes | Packed],
    *,
    labels: Mapping[str, str] | None = None,
    env: Sequence[str] = (),
    arch: str = "amd64",
    variant: str = "",
    created: str = "2025-01-01T00:00:00Z",
    entrypoint: Sequence[str] = (),
) -> Path:
    """Make `directory` an OCI layout of one untagged manifest and return it."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(media_type: str, content: bytes) -> dict[str, object]:
        digest = digest_of(content)
        (blobs / digest.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    packed = [one if isinstance(one, Packed) else Packed(one, digest_of(one)) for one in layers]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    started = {"Entrypoint": list(entrypoint)} if entrypoint else {}
    config = {
        "created": created,
        "architecture": arch,
        **({"variant": variant} if variant else {}),
        "os": "linux",
        "config": {"Env": [path, *env], "Cmd": ["/bin/sh"], "Labels": dict(labels or {}), **started},
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in packed]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": blob(f"{OCI}.config.v1+json", json.dumps(config).encode()),
        "layers": [blob(one.media_type, one.blob) for one in packed],
    }
    index = {"schemaVersion": 2, "manifests": [blob(f"{OCI}.manifest.v1+json", json.dumps(manifest).encode())]}
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


def layers_of(layout: Path) -> list[bytes]:
    """The layers of the first image of a layout, as they are."""
    blobs = layout / "blobs"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].replace(":", "/")).read_text())
    return [(blobs / one["digest"].replace(":", "/")).read_bytes() for one in manifest["layers"]]


def digest_of(content: bytes) -> str:
    """The content's digest as OCI writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
