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
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError
from sifmod.image.registry.http import Http
from sifmod.image.registry.network import PATIENCE
from sifmod.image.sources import https
from support.conversion import content
from support.downloading import IMPATIENT, SHORT
from support.filesystem import Listing
from support.images import Images
from support.misbehaving import OCI, descriptor, digest
from support.oci import Entry, layer
from support.ranged import Asked, Ranged, reset
from support.web import Handler, Web

SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
Fault = Callable[[Ranged, Handler, Asked], bool]


def head(handler: Handler, status: int, body: bytes, **headers: str) -> None:
    """An answer whose headers may say anything; an empty one is left out."""
    said = {"Content-Length": str(len(body)), "ETag": '"one"', **{n.replace("_", "-"): v for n, v in headers.items()}}
    handler.send_response(status)
    for name, value in said.items():
        if value:
            handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def piece(file: Ranged, asked: Asked) -> tuple[int, bytes]:
    start, end = file.span(asked)
    return start, file.content[start:end]


def faults(source: random.Random) -> dict[str, Fault]:
    """Each answers in its own way, in place of the right one."""
    number = source.randrange(1, 1 << 30)

    def by(answer: Callable[[Ranged, Handler, Asked], object]) -> Fault:
        def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
            answer(file, handler, asked)
            return True

        return fault

    def all_but(file: Ranged) -> int:
        return number % max(1, len(file.content))

    def flipped(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        changed = bytearray(data)
        if changed:
            changed[number % len(changed)] ^= 1
        total = {"Content_Range": f"bytes {start}-{start + len(data) - 1}/{len(file.content)}"} if asked.span else {}
        head(handler, 206 if asked.span else 200, bytes(changed), **total)

    def drips(file: Ranged, handler: Handler, asked: Asked) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(file.content)))
        handler.end_headers()
        for at in range(0, len(file.content), 10):
            handler.wfile.write(file.content[at : at + 10])
            handler.wfile.flush()
            if handler.server.ended.wait(0.05):
                return

    def resets(file: Ranged, handler: Handler, asked: Asked) -> None:
        file.answer(handler, asked, all_but(file))
        reset(handler)

    def garbage(_file: Ranged, handler: Handler, _asked: Asked) -> None:
        handler.wfile.write(random.Random(number).randbytes(300))

    def other_range(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        said = f"bytes {start + 1}-{start + len(data)}/{len(file.content)}"
        head(handler, 206, data, Content_Range=said)

    def without_range(file: Ranged, handler: Handler, asked: Asked) -> None:
        head(handler, 206, piece(file, asked)[1])

    def changing(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        said = {"Content_Range": f"bytes {start}-{start + len(data) - 1}/{len(file.content)}"} if asked.span else {}
        head(handler, 206 if asked.span else 200, data, ETag=f'"{random.random()}"', **said)

    def length(by_how_much: int) -> Fault:
        return by(lambda f, h, a: head(h, 200, f.content, Content_Length=str(max(0, len(f.content) + by_how_much))))

    def chunked(_file: Ranged, handler: Handler, _asked: Asked) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"400\r\nshort")

    return {
        "a circle of redirects": by(lambda _f, h, _a: head(h, 302, b"", Location=h.path)),
        "a redirect to nothing": by(lambda _f, h, _a: head(h, 307, b"", Location="http://127.0.0.1:9/x")),
        "a redirect to a file": by(lambda _f, h, _a: head(h, 302, b"", Location="file:///etc/passwd")),
        "cut": by(lambda f, h, a: f.answer(h, a, all_but(f))),
        "reset": by(resets),
        "longer than it says": length(-(1 + number % 5000)),
        "shorter than it says": length(1 + number % 5000),
        "one byte is another": by(flipped),
        "empty": by(lambda _f, h, _a: head(h, 200, b"")),
        "no content": by(lambda _f, h, _a: head(h, 204, b"", Content_Length="")),
        "a page": by(lambda _f, h, _a: head(h, 200, b"<html>log in</html>", Content_Type="text/html")),
        "not found": by(lambda _f, h, _a: head(h, 404, b"")),
        "forbidden": by(lambda _f, h, _a: head(h, 403, b"")),
        "who are you": by(lambda _f, h, _a: head(h, 401, b"")),
        "too many requests": by(lambda _f, h, _a: head(h, 429, b"", Retry_After="0")),
        "come back tomorrow": by(lambda _f, h, _a: head(h, 429, b"", Retry_After="86400")),
        "unavailable": by(lambda _f, h, _a: head(h, 503, b"", Retry_After="never")),
        "broken": by(lambda _f, h, _a: head(h, 500, b"\x1b[31mno")),
        "no range": by(lambda f, h, _a: head(h, 200, f.content)),
        "another range": by(other_range),
        "a range without its place": by(without_range),
        "no such range": by(lambda _f, h, _a: head(h, 416, b"", Content_Range="bytes */3")),
        "another ETag each time": by(changing),
        "slow": by(drips),
        "silent": by(lambda _f, h, _a: h.server.ended.wait(5)),
        "no HTTP": by(garbage),
        "a chunk that breaks off": by(chunked),
        "no gzip that says it is": by(lambda f, h, _a: head(h, 200, f.content, Content_Encoding="gzip")),
    }


class Server(Web):
    """One image, of which `faulty` answers misbehave: with the chance `share`, or the first `times`."""

    def __init__(self, kind: str, source: random.Random, image: dict[str, bytes]) -> None:
        super().__init__()
        self.kind, self.image = kind, image
        self.told: list[str] = []
        lock, often = threading.Lock(), source.choice((0.3, 0.6, 1.0))
        for path, data in image.items():
            faulty = source.random() < (1.0 if kind == "https" else 0.5)
            named = source.sample(sorted(faults(source).items()), source.choice((1, 1, 2))) if faulty else []
            times, share = source.choice((1, 2, 1000)), random.Random(source.random())

            def misbehave(
                file: Ranged,
                handler: Handler,
                asked: Asked,
                named: object = named,
                left: list[int] = [times],
                share: random.Random = share,
            ) -> bool:
                with lock:
                    if not left[0] or share.random() > often:
                        return False
                    left[0] -= 1
                    fault = share.choice(named)[1]  # type: ignore[call-overload]
                return bool(fault(file, handler, asked))

            self.told += [f"{path[-20:]}: {name}, {times} times at most" for name, _ in named]
            answers = Ranged(data, faults=[misbehave] if named else [])
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


def fetched(source: str, to: Path, *words: str) -> tuple[int, str]:
    """The exit code, and what was said."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        code = sifmod(["fetch", "-q", source, "-o", str(to), *words])
    return code, said.getvalue()


def hurry() -> None:
    """Let all waiting be short."""
    for name in ("attempts", "first_attempts", "delay", "longest_delay"):
        object.__setattr__(PATIENCE, name, getattr(IMPATIENT, name))
    Http.__init__.__defaults__ = ((), SHORT._replace(whole=2.0))
    https.download.__defaults__ = (SHORT._replace(whole=2.0), PATIENCE)


def trial(server: Server, place: Path, right: Listing, counts: Counter[str]) -> list[str]:
    """The server is asked once, and again when it does what it should."""
    found, to = list[str](), place / "x.sif"
    place.mkdir()
    words = ("--sha256", hashlib.sha256(server.image["/x.sif"]).hexdigest()) if server.kind == "https" else ()
    code, said = fetched(server.source, to, *words)
    counts["right" if code == 0 else "refused"] += 1
    if code == 0 and content(to) != right:
        found.append("other bytes")
    if code != 0:
        if code != FetchError.exit_code or "error: " not in said or "\x1b[31m" in said:
            found.append(f"exit code {code}: {said}")
        kept = [path.relative_to(place) for path in place.rglob("*") if path.is_file() and ".locks" not in path.parts]
        counts["something is kept for the next run"] += bool(kept)
        found += [f"left: {path}" for path in kept if path.parts[0] != ".x.sif.fetching"]
        server.behave()
        code, said = fetched(server.source, to, *words)
        if code != 0 or content(to) != right:
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
        place, kept, right = Path(name), images(), dict[str, Listing]()
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
                    right[kind] = content(place / f"{kind}.sif")
                    continue
                found = trial(server, place / str(number), right[kind], counts)
            finally:
                server.stop()
            if found:
                bad += 1
                print(f"== {number}, {kind}", *found, *server.told, sep="\n", flush=True)
        if (place / "prefix").exists():
            bad += 1
            print(f"left: {sorted((place / 'prefix').rglob('*'))}")
    print(f"{given.servers} servers, {dict(counts)}, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
