"""Images from servers that misbehave at random: the right bytes or an error, never anything else.

    python -m tests.fuzz.servers [--servers 100] [--seed 1]

Each server has one image, as a SIF behind https, as an OCI image or as a SIF in a registry. Some of its answers, now
and then or always, are redirects in a circle, cut, of another length or digest, slow, errors, no HTTP at all, wrong
ranges; or its ETag or its tag changes. Of a fetch that failed no file is left, and no temporary one either; the exit
code is one of the documented ones. The waiting times are shortened, and nothing else. Prints the counts, and ends with
1 for a finding.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from server_faults import faults, head

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError
from sifmod.image.registry.http import Http
from sifmod.image.registry.network import RETRY_POLICY
from sifmod.image.sources import https
from support.conversion import content
from support.downloading import IMPATIENT, SHORT
from support.filesystem import Listing
from support.images import Images
from support.misbehaving import OCI, descriptor, digest
from support.oci import Entry, layer
from support.ranged import Asked, Fault, Ranged
from support.web import Handler, Web

SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass
class Moody:
    """A Fault: one of `faults` with the chance `often`, `left` times at most."""

    faults: list[Fault]
    often: float
    left: int
    chance: random.Random
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, file: Ranged, handler: Handler, asked: Asked) -> bool:
        with self.lock:
            if not self.left or self.chance.random() > self.often:
                return False
            self.left -= 1
            fault = self.chance.choice(self.faults)
        return fault(file, handler, asked)


class Server(Web):
    """One image, of which some answers misbehave: with a chance, or the first few."""

    def __init__(self, kind: str, source: random.Random, image: dict[str, bytes]) -> None:
        super().__init__()
        self.kind, self.image = kind, image
        self.moods: list[str] = []
        often = source.choice((0.3, 0.6, 1.0))
        for path, data in image.items():
            faulty = source.random() < (1.0 if kind == "https" else 0.5)
            chosen = dict(source.sample(sorted(faults(source).items()), source.choice((1, 1, 2))) if faulty else [])
            times = source.choice((1, 2, 1000))
            moody = [Moody([*chosen.values()], often, times, random.Random(source.random()))] if chosen else []
            self.moods += [f"{path[-20:]}: {name}, {times} times at most" for name in chosen]
            answers = Ranged(data, faults=[*moody])
            self.answers[path] = self.typed(answers) if "/manifests/" in path else answers

    def behave(self) -> None:
        """Answer as one should from here on."""
        answers = {path: Ranged(data) for path, data in self.image.items()}
        self.answers = {path: self.typed(one) if "/manifests/" in path else one for path, one in answers.items()}

    @staticmethod
    def typed(answer: Ranged) -> Callable[[Handler], None]:
        def send(handler: Handler) -> None:
            asked = Asked(None, "")
            if not any(fault(answer, handler, asked) for fault in answer.faults):
                head(handler, 200, answer.content, Content_Type=OCI)

        return send

    @property
    def source(self) -> str:
        place = f"127.0.0.1:{self.server_address[1]}"
        return f"http://{place}/x.sif" if self.kind == "https" else f"{self.kind}://{place}/group/name:1"


def registry_image(config: bytes, config_type: str, *layers: tuple[str, bytes]) -> dict[str, bytes]:
    """What a registry answers by path."""
    parts = [descriptor(data, kind) for kind, data in layers]
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": OCI, "config": descriptor(config, config_type), "layers": parts}
    ).encode()
    names = {f"manifests/{name}": manifest for name in ("1", digest(manifest))}
    blobs = {f"blobs/{digest(data)}": data for data in (config, *(data for _, data in layers))}
    return {f"/v2/group/name/{path}": data for path, data in {**names, **blobs}.items()}


def images() -> dict[str, dict[str, bytes]]:
    """What each kind of server has."""
    sif = Images().tiny_sif.read_bytes()
    plain = [layer([Entry(f"opt/{n}", random.Random(n).randbytes(200_000 * n), mode=0o644)]) for n in (1, 2, 9)]
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"diff_ids": [digest(one) for one in plain]},
    }
    packed = [(LAYER, gzip.compress(one, 1, mtime=0)) for one in plain]
    return {
        "https": {"/x.sif": sif},
        "oras": registry_image(b"{}", CONFIG, (SIF_LAYER, sif)),
        "docker": registry_image(json.dumps(described).encode(), CONFIG, *packed),
    }


def bytes_of(sif: Path, kind: str) -> Listing | str:
    """What must come: the same bytes, or of an image that sifmod converts the same files."""
    return content(sif) if kind == "docker" else hashlib.sha256(sif.read_bytes()).hexdigest()


def fetched(source: str, to: Path, *words: str) -> tuple[int, str]:
    """The exit code, and what was said."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        code = sifmod(["fetch", "-q", source, "-o", str(to), *words])
    return code, said.getvalue()


def hurry() -> None:
    """Let all waiting be short."""
    for name in ("attempts", "first_attempts", "delay", "longest_delay"):
        object.__setattr__(RETRY_POLICY, name, getattr(IMPATIENT, name))
    Http.__init__.__defaults__ = ((), SHORT._replace(whole=2.0))
    https.download.__defaults__ = (SHORT._replace(whole=2.0), RETRY_POLICY)


def trial(server: Server, place: Path, right: Listing | str, counts: Counter[str]) -> list[str]:
    """The server is asked once, and again when it does what it should."""
    found, to = list[str](), place / "x.sif"
    place.mkdir()
    words = ("--sha256", hashlib.sha256(server.image["/x.sif"]).hexdigest()) if server.kind == "https" else ()
    code, said = fetched(server.source, to, *words)
    counts["right" if code == 0 else "refused"] += 1
    if code == 0 and bytes_of(to, server.kind) != right:
        found.append("other bytes")
    if code != 0:
        if code != FetchError.exit_code or "error: " not in said or "\x1b[31m" in said:
            found.append(f"exit code {code}: {said}")
        kept = [path.relative_to(place) for path in place.rglob("*") if path.is_file() and ".locks" not in path.parts]
        counts["something is kept for the next run"] += bool(kept)
        found += [f"left: {path}" for path in kept if path.parts[0] != ".x.sif.fetching"]
        server.behave()
        code, said = fetched(server.source, to, *words)
        if code != 0 or bytes_of(to, server.kind) != right:
            found.append(f"afterwards: exit code {code}: {said}")
    if sorted(place.iterdir()) != [to]:
        found.append(f"left: {sorted(place.iterdir())}")
    return found


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--servers", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    hurry()
    counts, bad = Counter[str](), 0
    with TemporaryDirectory() as name:
        place, kept, right = Path(name), images(), dict[str, Listing | str]()
        os.environ["SIFMOD_PREFIX"] = str(place / "prefix")
        for number in range(-len(kept), given.servers):
            source = random.Random(f"{given.seed}-{number}")
            kind = sorted(kept)[number] if number < 0 else source.choice(sorted(kept))
            server = Server(kind, source, kept[kind])
            server.start()
            try:
                if number < 0:
                    server.behave()
                    assert fetched(server.source, place / f"{kind}.sif")[0] == 0
                    right[kind] = bytes_of(place / f"{kind}.sif", kind)
                    continue
                found = trial(server, place / str(number), right[kind], counts)
            finally:
                server.stop()
            if found:
                bad += 1
                print(f"== {number}, {kind}", *found, *server.moods, sep="\n", flush=True)
        if (place / "prefix").exists():
            bad += 1
            print(f"left: {sorted((place / 'prefix').rglob('*'))}")
    print(f"{given.servers} servers, {dict(counts)}, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
