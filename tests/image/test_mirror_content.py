"""A mirror that gives something else than what was asked for: its own registry is asked, and it is told."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.artifact import Remote
from sifmod.image.registry.registry import Registry as Client
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from support.downloading import IMPATIENT, SHORT, Place
from support.fetching import Prefix, plan
from support.images import Images
from support.misbehaving import BLOB, LAYER, OCI, Misbehaving
from support.registry import Registry
from support.web import answer, raw


@contextmanager
def mirror(registry: Registry, directory: Path, digest: str) -> Iterator[Registry]:
    """Another registry with what `registry` has, but for a blob that has one wrong byte at its end."""
    storage = directory / "storage"
    shutil.copytree(registry.storage, storage)
    (blob,) = storage.glob(f"docker/registry/v2/blobs/sha256/*/{digest.removeprefix('sha256:')}/data")
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    server = Registry(directory / "mirror", storage=storage)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def layer_of(source: str, directory: Path) -> str:
    found = Prefix(directory).fetch(plan(source))
    return found.origin.layers[0]


@pytest.mark.parametrize("kind", ["docker", "oras"])
def test_its_own_registry_is_asked(images: Images, registry: Registry, tmp_path: Path, kind: str) -> None:
    if kind == "docker":
        source = registry.push_layout(images.tiny_layout("mirrored"), "mirrored:1.0")
    else:
        source = registry.push_sif(images.tiny(), "mirrored-sif:1.0")
    good = Prefix(tmp_path / "good").fetch(plan(source))
    prefix = Prefix(tmp_path / "prefix")
    with mirror(registry, tmp_path / "other", good.origin.layers[0]) as other:
        found = prefix.fetch(plan(source), settings=Settings(mirrors=((registry.address, (other.address,)),)))
    assert found.sha256 == good.sha256
    (note,) = (note for note in found.notes if "since the mirror" in note)
    assert note.startswith(f"taken from {registry.address}, since the mirror {other.address}/mirrored")
    assert good.origin.layers[0].removeprefix("sha256:") in note
    assert prefix.images() == [f"{good.sha256}.sif"]


BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("kind", ["docker", "oras"])
@pytest.mark.parametrize("how", ["announces less", "breaks off", "says no"])
def test_a_mirror_whose_blobs_do_not_arrive_is_passed_over(
    images: Images, registry: Registry, tmp_path: Path, kind: str, how: str
) -> None:
    if kind == "docker":
        source = registry.push_layout(images.tiny_layout("broken"), "broken:1.0")
    else:
        source = registry.push_sif(images.tiny(), "broken-sif:1.0")
    good = Prefix(tmp_path / "good").fetch(plan(source))
    layer, broken = good.origin.layers[0], Misbehaving()
    name = source.partition(f"{registry.address}/")[2].partition(":")[0]

    def blob(digest: str) -> bytes:
        return (registry.storage / f"docker/registry/v2/blobs/sha256/{digest[7:9]}/{digest[7:]}/data").read_bytes()

    manifest = blob(good.origin.manifest)
    for path in (f"manifests/{each}" for each in ("1.0", good.origin.manifest)):
        broken.answers[f"/v2/{name}/{path}"] = answer(200, manifest, {"Content-Type": OCI})
    config = json.loads(manifest)["config"]["digest"]
    broken.answers[f"/v2/{name}/blobs/{config}"] = answer(200, blob(config))
    half = blob(layer)[: len(blob(layer)) // 2]
    broken.answers[f"/v2/{name}/blobs/{layer}"] = {
        "announces less": answer(200, half),
        "breaks off": raw(BROKEN_OFF % len(blob(layer)), half),
        "says no": answer(403),
    }[how]
    broken.start()
    try:
        host = f"127.0.0.1:{broken.server_address[1]}"
        prefix = Prefix(tmp_path / "prefix")
        found = prefix.fetch(plan(source), settings=Settings(mirrors=((registry.address, (host,)),)))
    finally:
        broken.stop()
    assert found.sha256 == good.sha256
    assert f"/v2/{name}/blobs/{layer}" in [path for path, _ in broken.asked]


@pytest.mark.parametrize("kind", ["docker", "oras"])
@pytest.mark.parametrize("how", ["a page", "another manifest", "nothing"])
def test_a_mirror_that_gives_another_manifest_is_named(
    images: Images, registry: Registry, tmp_path: Path, kind: str, how: str
) -> None:
    """Also where the store has the image already; one that only lacks it is not."""
    if kind == "docker":
        source = registry.push_layout(images.tiny_layout("named"), "named:1.0")
    else:
        source = registry.push_sif(images.tiny(), "named-sif:1.0")
    good = Prefix(tmp_path / "good").fetch(plan(source))
    pinned, name = f"{source.removesuffix(':1.0')}@{good.origin.manifest}", source.split("/")[-1].partition(":")[0]
    other = Misbehaving()
    other.answers[f"/v2/{name}/manifests/{good.origin.manifest}"] = {
        "a page": answer(200, b"<html>Log in</html>", {"Content-Type": "text/html; charset=utf-8"}),
        "another manifest": answer(200, b"{}", {"Content-Type": OCI}),
        "nothing": answer(404),
    }[how]
    other.start()
    try:
        host = f"127.0.0.1:{other.server_address[1]}"
        settings, prefix = Settings(mirrors=((registry.address, (host,)),)), Prefix(tmp_path / "prefix")
        rounds = [prefix.fetch(plan(pinned), settings=replace(settings, fresh=fresh)) for fresh in (False, True)]
    finally:
        other.stop()
    for found in rounds:
        assert found.sha256 == good.sha256
        told = [
            note for note in found.notes if f"taken from {registry.address}, since the mirror {host}/{name} " in note
        ]
        assert len(told) == (how != "nothing")


def test_the_next_mirror_is_asked_first(images: Images, tmp_path: Path) -> None:
    """As where a site's machines reach its mirrors only."""
    origin, second = Registry(tmp_path / "origin"), Registry(tmp_path / "second", storage=tmp_path / "copy")
    origin.start()
    try:
        source = origin.push_layout(images.tiny_layout("mirrored"), "mirrored:1.0")
        digest = layer_of(source, tmp_path / "first")
        shutil.copytree(origin.storage, second.storage)
        second.start()
        with mirror(origin, tmp_path / "other", digest) as other:
            origin.stop()
            settings = Settings(mirrors=((origin.address, (other.address, second.address)),))
            (note, *_) = Prefix(tmp_path / "prefix").fetch(plan(source), settings=settings).notes
        where = f"{second.address} or {origin.address}"
        assert note.startswith(f"taken from {where}, since the mirror {other.address}/mirrored failed: ")
    finally:
        second.stop()
        origin.stop()


def test_where_it_has_nothing_better_both_are_told(images: Images, tmp_path: Path) -> None:
    origin = Registry(tmp_path / "origin")
    origin.start()
    try:
        source = origin.push_layout(images.tiny_layout("unlucky"), "unlucky:1.0")
        digest = layer_of(source, tmp_path / "first")
        prefix = Prefix(tmp_path / "prefix")
        before = prefix.state()
        with mirror(origin, tmp_path / "other", digest) as other:
            settings = Settings(mirrors=((origin.address, (other.address,)),))
            (blob,) = origin.storage.glob(f"docker/registry/v2/blobs/sha256/*/{digest.removeprefix('sha256:')}")
            shutil.rmtree(blob)
            with pytest.raises(FetchError, match=r"404(.|\n)*before that, with the mirror") as caught:
                prefix.fetch(plan(source), settings=settings)
        assert f"{other.address}/unlucky" in caught.value.message
        left = {path: found for path, found in prefix.state().items() if path not in before}
        assert not [path for path in left if path.endswith((".sif", ".json"))]
    finally:
        origin.stop()


@pytest.mark.parametrize("hang", [True, False])
def test_each_mirror_has_its_own_attempts(tmp_path: Path, hang: bool) -> None:
    """Three that stall had used up all attempts, and the registry was never asked."""
    servers = [Misbehaving() for _ in range(4)]
    for server in servers[:3]:
        server.put(f"blobs/{LAYER.digest}", raw(BROKEN_OFF % len(BLOB), BLOB[:1000], hang=hang))
    try:
        for server in servers:
            server.start()
        *mirrors, origin = (f"127.0.0.1:{server.server_address[1]}" for server in servers)
        settings = Settings(mirrors=((origin, tuple(mirrors)),))
        opened = Client(parse(servers[3].source()), settings, "amd64", IMPATIENT, SHORT)
        remote = Remote("the layer", opened.blob(LAYER), LAYER.size, LAYER.digest, by_digest=True)
        assert Place(tmp_path / "download").fetch(remote).content == BLOB
        assert [len(server.paths) for server in servers] == [1, 1, 1, 1] if hang else [2, 2, 2, 1]
    finally:
        for server in servers:
            server.stop()
