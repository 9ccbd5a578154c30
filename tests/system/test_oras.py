"""A SIF from a registry: pushed with apptainer, fetched by its digest."""

import hashlib
import random
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from support.fetching import Prefix, plan
from support.images import Images
from support.oci import Entry
from support.registry import Registry


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture(scope="session")
def sif(images: Images) -> Path:
    """A bit more than two pieces."""
    noise = Entry("opt/noise", random.Random(3).randbytes(20_000_000), mode=0o644)
    return images.tiny("for-oras", entries=(noise,))


def refused(prefix: Prefix, source: str) -> FetchError:
    """The error, asserting that the disk is as before."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(source))
    assert prefix.state() == before
    return caught.value


def test_a_sif_goes_straight_into_the_store(registry: Registry, prefix: Prefix, sif: Path) -> None:
    source = registry.push_sif(sif, "lab/tool:1.0")
    told: list[tuple[str, int, int | None]] = []
    artifact = prefix.fetch(plan(source), lambda *what: told.append(what))
    digest = hashlib.sha256(sif.read_bytes()).hexdigest()
    assert artifact.path == prefix.layout.image(digest)
    assert artifact.path.read_bytes() == sif.read_bytes()
    assert (artifact.sha256, artifact.size, artifact.source) == (digest, sif.stat().st_size, source)
    assert artifact.origin.layers == (f"sha256:{digest}",)
    assert artifact.origin.manifest.startswith("sha256:")
    assert told[-1] == ("downloading tiny.sif", sif.stat().st_size, sif.stat().st_size)
    pinned = f"{source.rpartition(':')[0]}@{artifact.origin.manifest}"
    assert prefix.fetch(plan(pinned, sha256=digest)).path == artifact.path


def test_a_container_image_is_no_sif(registry: Registry, images: Images, prefix: Prefix) -> None:
    source = registry.push_layout(images.tiny_layout(), "lab/image:1.0").replace("docker://", "oras://")
    error = refused(prefix, source)
    assert "has application/vnd." in error.message
    assert "docker://" in error.hint


def test_a_tag_that_is_not_there(registry: Registry, prefix: Prefix, sif: Path) -> None:
    source = registry.push_sif(sif, "lab/tool:1.1")
    assert "answered 404" in refused(prefix, source.replace(":1.1", ":2.0")).message


def test_a_blob_that_the_registry_has_damaged(registry: Registry, images: Images, prefix: Prefix) -> None:
    """Bytes rot on a server's disk too."""
    damaged = images.tiny("rots", entries=(Entry("rots", b"1" * 5000),))
    source = registry.push_sif(damaged, "lab/rots:1.0")
    digest = hashlib.sha256(damaged.read_bytes()).hexdigest()
    (blob,) = registry.directory.glob(f"storage/**/sha256/{digest[:2]}/{digest}/data")
    with blob.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"rot")
    error = refused(prefix, source)
    assert f"expected {digest}\n" in error.message
    assert "damaged in transit" in error.hint


def test_a_blob_that_the_registry_has_lost(registry: Registry, images: Images, prefix: Prefix) -> None:
    lost = images.tiny("lost", entries=(Entry("lost", b"2" * 5000),))
    source = registry.push_sif(lost, "lab/lost:1.0")
    digest = hashlib.sha256(lost.read_bytes()).hexdigest()
    (blob,) = registry.directory.glob(f"storage/**/sha256/{digest[:2]}/{digest}/data")
    blob.unlink()
    assert "answered 404" in refused(prefix, source).message
