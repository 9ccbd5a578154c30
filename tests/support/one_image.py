"""A registry with one image, x:1, on the tests' web server: it gives its blobs in ranges, or misbehaves as asked."""

from pathlib import Path

from support.oci_index import entry
from support.ranged import Ranged
from support.web import Web, answer

MB = 1_000_000


class OneImage(Web):
    """`blobs` are the image's layers and config by digest, with a log of what was asked for."""

    def __init__(self, layout: Path) -> None:
        super().__init__()
        self.digest = str(entry(layout)["digest"])
        stored = {f"sha256:{path.name}": path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()}
        manifest = answer(200, stored.pop(self.digest))
        self.answers |= {f"/v2/x/manifests/{name}": manifest for name in ("1", self.digest)}
        self.blobs = {digest: Ranged(content) for digest, content in stored.items()}
        self.answers |= {f"/v2/x/blobs/{digest}": blob for digest, blob in self.blobs.items()}
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.source = f"docker://{self.address}/x:1"

    @property
    def asked_for_layers(self) -> int:
        """How often a blob of more than 1 MB was asked for."""
        return sum(len(blob.log) for blob in self.blobs.values() if len(blob.content) > MB)
