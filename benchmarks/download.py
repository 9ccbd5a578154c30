"""A SIF of 2 GB to a file: `sifmod fetch` against curl and `apptainer pull`, over https and oras, in one run.

    python benchmarks/download.py [--runs 3] [--limits without,with]

nginx with a certificate of its own and a registry, both on the loopback address; the served file is in the page cache.
First without a limit, against curl, which neither hashes nor syncs what it writes; `curl, sha256sum, sync` does what
sifmod does, one after the other. Then with 40 MB/s for each connection (nginx, for oras in front of the registry),
against `apptainer pull`. Commands take turns, every run starts with an empty prefix, cache and home.

Needs what the tests need (scripts/provision), and nginx. The SIF is kept under build/benchmarks.
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.command import ROOT, SIFMOD, run
from support.daemon import Daemon, free_ports, listens
from support.images import Images
from support.registry import Registry
from support.web import make_certificate
from timing import Timed, ratio, run_once
from warm import warm_memory

SIZE = 2_000_000_000  # bytes
THROTTLE = "40m"  # bytes a second and connection, as nginx spells it
MOST, FASTER = 1.15, 3.0  # times curl; times as fast as apptainer pull
KEPT = ROOT / "build" / "benchmarks" / "2gb.sif"
CONFIGURATION = """
worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; limit_rate {rate}; proxy_max_temp_file_size 0;
    client_body_temp_path {directory}/1; proxy_temp_path {directory}/2; fastcgi_temp_path {directory}/3;
    uwsgi_temp_path {directory}/4; scgi_temp_path {directory}/5;
    server {{
        listen 127.0.0.1:{https} ssl; root {root};
        ssl_certificate {certificate}; ssl_certificate_key {certificate};
    }}
    server {{
        listen 127.0.0.1:{proxy};
        location / {{ proxy_pass http://{registry}; proxy_set_header Host $http_host; }}
    }}
}}
"""


@dataclass(frozen=True)
class Servers:
    """Where the SIF is, by each way; `blob` is the URL at which curl finds what `oras` names."""

    https: str
    oras: str
    blob: str


def big_sif() -> Path:
    """A SIF with a data object that makes it 2 GB."""
    if not KEPT.exists():
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        new, noise = KEPT.with_suffix(".new"), KEPT.with_suffix(".noise")
        shutil.copyfile(Images().tiny_sif, new)
        with noise.open("wb") as file:
            for _ in range(SIZE // 1_000_000):
                file.write(os.urandom(1_000_000))
        run(("siftool", "add", new, noise, "--datatype", "7")).ok()
        noise.unlink()
        new.rename(KEPT)
    KEPT.chmod(0o644)
    return KEPT


@contextmanager
def serving(directory: Path, sif: Path, rate: str) -> Iterator[Servers]:
    """nginx and a registry that hold `sif`."""
    registry = Registry(directory / "registry")
    registry.start()
    https, proxy = free_ports(2)
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None:
        raise SystemExit("nginx is missing: run scripts/provision")
    certificate = directory / "both.pem"
    (directory / "nginx.conf").write_text(
        CONFIGURATION.format(
            directory=directory,
            rate=rate,
            https=https,
            proxy=proxy,
            root=sif.parent,
            certificate=certificate,
            registry=registry.address,
        )
    )
    nginx = Daemon((program, "-p", directory, "-c", directory / "nginx.conf"), directory / "nginx.log")
    try:
        nginx.wait_until(lambda: listens(https) and listens(proxy))
        name = registry.push_sif(sif, "lab/big:1").removeprefix(f"oras://{registry.address}/")
        with sif.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        repository = name.partition(":")[0]
        where = f"127.0.0.1:{proxy}"
        yield Servers(
            f"https://localhost:{https}/{sif.name}",
            f"oras://{where}/{name}",
            f"http://{where}/v2/{repository}/blobs/sha256:{digest}",
        )
    finally:
        nginx.stop()
        registry.stop()


def measured(commands: Mapping[str, Sequence[str]], runs: int, directory: Path) -> dict[str, Timed]:
    """Run the commands in turn after a warm-up of each, every time with nothing but what the servers hold."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            place = directory / "run"
            (place / "home").mkdir(parents=True)
            (place / "tmp").mkdir()
            warm_memory()
            found = run_once([part.replace("FILE", str(place / "out.sif")) for part in command], around(place))
            if (place / "out.sif").stat().st_size != KEPT.stat().st_size:
                raise SystemExit(f"{name} gave another file")
            shutil.rmtree(place)
            os.sync()  # the next one does not pay for what this one has left to write
            if number:
                seconds[name].append(found)
    return {name: Timed(tuple(times)) for name, times in seconds.items()}


def around(place: Path) -> dict[str, str]:
    """The environment of a command."""
    certificate = str(place.parent / "both.pem")
    trusted = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    own = {
        "HOME": str(place / "home"),
        "APPTAINER_CACHEDIR": str(place / "cache"),
        "APPTAINER_TMPDIR": str(place / "tmp"),
        "SIFMOD_PREFIX": str(place / "prefix"),
        "SIFMOD_CONFIG_DIR": str(place / "etc"),
    }
    return {"PATH": os.environ["PATH"], **own, **dict.fromkeys(trusted, certificate)}


def show(title: str, timed: Mapping[str, Timed], ours: str, targets: Mapping[str, tuple[str, float]]) -> bool:
    """Print a table; `targets` by name: the least or the most that the ratio of ours to it may be."""
    print(f"\n{title}\n{'':28} {'median s':>9} {'MB/s':>6}  {'sifmod takes':>12}")
    kept = True
    for name, times in timed.items():
        line = f"{name:28} {times.median:9.2f} {SIZE / times.median / 1e6:6.0f}"
        if name != ours:
            found = ratio(timed[ours], times)
            line += f"  {found:11.2f}x"
            if name in targets:
                word, most = targets[name]
                kept = kept and found <= most
                line += f"  ({word}: {'kept' if found <= most else 'MISSED'})"
        print(line, flush=True)
    return kept


def without_limit(servers: Servers, runs: int, directory: Path) -> bool:
    """Against curl."""
    kept = True
    for way, reference, url in (("https", servers.https, servers.https), ("oras", servers.oras, servers.blob)):
        curl = ("curl", "--silent", "--show-error", "--fail", "--output", "FILE", url)
        full = ("sh", "-c", 'out=$1; shift; "$@" && sha256sum "$out" && sync "$out"', "sh", "FILE", *curl)
        commands = {"curl": curl, "curl, sha256sum, sync": full, "sifmod": (*SIFMOD, "fetch", reference, "-o", "FILE")}
        timed = measured(commands, runs, directory)
        most = {"curl": (f"at most {MOST:.2f}x", MOST)}
        kept = show(f"{way}, no limit", timed, "sifmod", most) and kept
    return kept


def with_limit(servers: Servers, runs: int, directory: Path) -> bool:
    """Against apptainer."""
    kept = True
    for way, reference in (("https", servers.https), ("oras", servers.oras)):
        commands = {
            "apptainer pull": ("apptainer", "pull", "--no-https", "FILE", reference),
            "sifmod": (*SIFMOD, "fetch", reference, "-o", "FILE"),
        }
        timed = measured(commands, runs, directory)
        least = {"apptainer pull": (f"{FASTER:.0f} times as fast", 1 / FASTER)}
        kept = show(f"{way}, {THROTTLE}B/s for each connection", timed, "sifmod", least) and kept
    return kept


def main(runs: int, limits: Sequence[str]) -> None:
    sif = big_sif()
    print(f"{sif.stat().st_size / 1e6:.0f} MB, median of {runs}, {os.cpu_count()} processors")
    kept = True
    for limit in limits:
        rate, compare = {"without": ("0", without_limit), "with": (THROTTLE, with_limit)}[limit]
        with tempfile.TemporaryDirectory(dir=KEPT.parent) as name:
            directory = Path(name)
            directory.chmod(0o755)
            make_certificate(directory)
            with serving(directory, sif, rate) as servers:
                kept = compare(servers, runs, directory) and kept
    raise SystemExit(0 if kept else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each command, after one warm-up")
    parser.add_argument("--limits", default="without,with", help="which half of it")
    arguments = parser.parse_args()
    main(arguments.runs, arguments.limits.split(","))
