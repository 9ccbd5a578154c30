"""A registry of one image whose every answer may be replaced, and who asks it."""

import base64
import hashlib
import json
from pathlib import Path

from sifmod.image.oci.manifest import Descriptor
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Registry
from sifmod.image.settings import DEFAULT, Settings
from sifmod.image.sources.source_kinds import parse
from support.web import Answer, Web, answer

OCI = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
BLOB = b"a layer" * 1000


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(content: bytes, media_type: str = OCI, **more: object) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content), **more}


CONFIG = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [digest(BLOB)]}}).encode()
MANIFEST = json.dumps(
    {"schemaVersion": 2, "mediaType": OCI, "config": descriptor(CONFIG), "layers": [descriptor(BLOB)]}
).encode()
LAYER = Descriptor(OCI, digest(BLOB), len(BLOB))


class Misbehaving(Web):
    """A registry with one image, group/name:1.0, whose every answer may be replaced."""

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(certificate)
        self.put("manifests/1.0", answer(200, MANIFEST, {"Content-Type": OCI}))
        for content in (CONFIG, BLOB):
            self.put(f"blobs/{digest(content)}", answer(200, content))

    def put(self, path: str, how: Answer) -> None:
        self.answers[f"/v2/group/name/{path}"] = how

    @property
    def paths(self) -> list[str]:
        """What was asked for so far."""
        return [path.removeprefix("/v2/group/name/") for path, _ in self.asked]

    def source(self, host: str = "127.0.0.1") -> str:
        return f"docker://{host}:{self.server_address[1]}/group/name:1.0"


def client(web: Misbehaving, host: str = "127.0.0.1", settings: Settings = DEFAULT) -> Registry:
    return Registry(parse(web.source(host)), settings, "amd64", RetryPolicy(attempts=3, first_attempts=2, delay=0.01))


def log_in(home: Path, *hosts: str) -> None:
    auths = {host: {"auth": base64.b64encode(b"me:secret").decode()} for host in hosts}
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": auths}))


def challenge(value: str) -> Answer:
    return answer(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', {"WWW-Authenticate": value})


def guarded(authorization: str, good: Answer, challenge: Answer) -> Answer:
    """`good` for who sends this header, the challenge for everybody else."""
    return lambda handler: (good if handler.headers.get("Authorization") == authorization else challenge)(handler)
