"""What is certified is what went into the SIF: each test looks into it, whatever way the bytes came."""

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import zstandard

from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.download import journal
from sifmod.image.settings import Settings
from support.downloading import content
from support.fetching import Prefix, plan
from support.layers import Entry, hard_link, symlink, tar
from support.oci import OCI, Packed, digest_of, write_layout
from support.one_image import OneImage
from support.ranged import Asked, Fault, Ranged, once, reset, says
from support.web import Handler, answer

SIZE = 9_000_000  # bytes of each file: a read sees it come in several steps
SEEDS = {"plain": 1, "gzip": 2, "zstd": 3}
TENTHS = tuple(range(1, 10))


def packed(name: str, data: bytes) -> Packed:
    """A layer of one file, compressed as its name says."""
    made = tar([Entry(name, content=data)])
    media_type = f"{OCI}.layer.v1.tar"
    if name == "gzip":
        return Packed(gzip.compress(made, 1, mtime=0), digest_of(made), f"{media_type}+gzip")
    if name == "zstd":
        return Packed(zstandard.ZstdCompressor(level=1).compress(made), digest_of(made), f"{media_type}+zstd")
    return Packed(made, digest_of(made), media_type)


@cache
def right_layers() -> tuple[Packed, ...]:
    return tuple(packed(name, content(seed, SIZE)) for name, seed in SEEDS.items())


@cache
def other_layers() -> dict[str, bytes]:
    """Of the digest of each right one another."""
    pairs = zip(SEEDS, right_layers(), strict=True)
    return {digest_of(right.blob): packed(name, content(7, SIZE)).blob for name, right in pairs}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layout(tmp_path_factory.mktemp("layers") / "layout", right_layers())


@pytest.fixture
def registry(layout: Path) -> Iterator[OneImage]:
    server = OneImage(layout)
    server.start()
    yield server
    server.stop()


def layers(registry: OneImage) -> dict[str, Ranged]:
    return {digest: registry.blobs[digest] for digest in other_layers()}


def files(found: Artifact) -> dict[str, str]:
    """Digests of the files in a SIF."""
    with found.path.open("rb") as sif:
        primary = read_sif(found.path).primary
        reader = SquashfsReader(sif, primary.offset, primary.size)
        return {name: hashlib.sha256(reader.read(f"/{name}", SIZE)).hexdigest() for name in SEEDS}


def assert_right(found: Artifact) -> None:
    assert files(found) == {name: hashlib.sha256(content(seed, SIZE)).hexdigest() for name, seed in SEEDS.items()}
    assert hashlib.sha256(found.path.read_bytes()).hexdigest() == found.sha256


def truth_without_ranges(file: Ranged, handler: Handler, asked: Asked) -> bool:
    file.head(handler, 200, len(file.content), {})
    file.send(handler, asked, file.content)
    return True


def lies_until(other: bytes, tenth: int) -> Fault:
    """Other bytes up to there, which are read before the connection ends."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.head(handler, 200, len(file.content), {})
        file.send(handler, asked, other[: len(file.content) * tenth // 10])
        handler.wfile.flush()
        time.sleep(0.2)
        reset(handler)
        return True

    return once(fault)


@pytest.mark.parametrize("tenth", TENTHS)
def test_a_server_that_lies_breaks_off_and_then_tells_the_truth(registry: OneImage, tmp_path: Path, tenth: int) -> None:
    for digest, blob in layers(registry).items():
        blob.faults += [lies_until(other_layers()[digest], tenth), truth_without_ranges]
    source = f"{registry.source}@{registry.digest}" if tenth % 2 else registry.source
    found = Prefix(tmp_path / "prefix").fetch(plan(source))
    assert_right(found)
    for blob in registry.blobs.values():
        blob.faults.clear()
    assert found.sha256 == Prefix(tmp_path / "clean").fetch(plan(source)).sha256


@pytest.mark.parametrize("tenth", TENTHS[::4])
def test_ranges_that_lie_before_a_server_gives_up_ranges(registry: OneImage, tmp_path: Path, tenth: int) -> None:
    """The first range has other bytes, as long as it should; the request for the next gets everything."""

    def first_range(other: bytes) -> Fault:
        def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
            start, end = file.span(asked)
            if start or not asked.span:
                return False
            cut = len(file.content) * tenth // 10
            file.head(handler, 206, end - start, {"Content-Range": f"bytes 0-{end - 1}/{len(file.content)}"})
            file.send(handler, asked, (other[:cut] + file.content)[:end])
            return True

        return once(fault)

    def rest(file: Ranged, handler: Handler, asked: Asked) -> bool:
        time.sleep(0.2)
        return truth_without_ranges(file, handler, asked)

    for digest, blob in layers(registry).items():
        blob.faults += [first_range(other_layers()[digest]), rest]
    assert_right(Prefix(tmp_path / "prefix").fetch(plan(registry.source), settings=Settings(connections=1)))


@pytest.mark.parametrize("tenth", TENTHS[::4])
def test_a_damaged_spot_in_what_an_earlier_run_left(registry: OneImage, tmp_path: Path, tenth: int) -> None:
    """The end of the lowest layer is refused at first, so that all layers stay; then one byte of each changes."""
    prefix = Prefix(tmp_path / "prefix")
    lowest = registry.blobs[digest_of(right_layers()[0].blob)]
    lowest.faults.append(says(404, at=8 << 20))
    with pytest.raises(FetchError, match="404"):
        prefix.fetch(plan(registry.source), settings=Settings(connections=1))
    partials = [path for path in prefix.layout.partials.glob("*/sha256-*") if path.suffix != ".journal"]
    assert len(partials) == len(right_layers())
    for path in partials:
        assert journal.load(path) is not None
        with path.open("r+b") as file:
            file.seek(path.stat().st_size * tenth // 10)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0x40]))
    lowest.faults.clear()
    assert_right(prefix.fetch(plan(registry.source)))


@pytest.mark.parametrize("pinned", [True, False])
def test_a_mirror_that_gives_other_layers(registry: OneImage, layout: Path, tmp_path: Path, pinned: bool) -> None:
    mirror = OneImage(layout)
    for digest, blob in layers(mirror).items():
        other = other_layers()[digest]
        blob.content = (other + bytes(len(blob.content)))[: len(blob.content)]
    mirror.start()
    try:
        source = f"{registry.source}@{registry.digest}" if pinned else registry.source
        settings = Settings(mirrors=((registry.address, (mirror.address,)),))
        found = Prefix(tmp_path / "prefix").fetch(plan(source), settings=settings)
    finally:
        mirror.stop()
    assert_right(found)
    assert any("since the mirror" in note for note in found.notes)


def test_a_token_that_runs_out_and_a_body_that_is_cut(registry: OneImage, tmp_path: Path) -> None:
    """Each layer: half of it, then 401 until a new token is there, then the rest."""
    given: list[str] = []

    def token(handler: Handler) -> None:
        given.append(f"token-{len(given)}")
        answer(200, json.dumps({"token": given[-1]}).encode())(handler)

    def cut(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        file.answer(handler, asked, (end - start) // 2)
        return True

    def expired(file: Ranged, handler: Handler, asked: Asked) -> bool:
        if not file.span(asked)[0] or handler.headers.get("Authorization", "") == f"Bearer {given[-1:]}":
            return False
        if handler.headers.get("Authorization") is None:
            realm = f'Bearer realm="http://{registry.address}/token",service="x",scope="repository:x:pull"'
            file.head(handler, 401, 0, {"WWW-Authenticate": realm})
            return True
        return False

    registry.answers["/token"] = token
    for blob in layers(registry).values():
        blob.faults += [once(cut), expired]
    assert_right(Prefix(tmp_path / "prefix").fetch(plan(registry.source)))
    assert given


def lying_config(tmp_path: Path, change: Callable[[list[str]], list[str]]) -> Path:
    """A layout whose config states other diff_ids."""
    stated = change([one.diff_id for one in right_layers()])
    wrong = [Packed(one.blob, diff_id, one.media_type) for one, diff_id in zip(right_layers(), stated, strict=True)]
    return write_layout(tmp_path / "layout", wrong)


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_a_diff_id_that_the_image_states_wrongly_is_an_error(tmp_path: Path, kind: str) -> None:
    layout = lying_config(tmp_path, lambda ids: [ids[1], ids[0], ids[2]])
    prefix = Prefix(tmp_path / "prefix")
    before = prefix.state()
    registry = OneImage(layout)
    registry.start()
    try:
        with pytest.raises(FetchError, match="expected the diff_id sha256:") as caught:
            prefix.fetch(plan(f"oci:{layout}" if kind == "oci" else registry.source))
    finally:
        registry.stop()
    assert digest_of(right_layers()[1].blob) in caught.value.message
    assert right_layers()[0].diff_id in caught.value.message
    left = {path for path in prefix.state() if path not in before}
    assert not [path for path in left if path.endswith((".sif", ".json"))]


def test_layers_that_are_read_twice_are_held_to_their_digests_each_time(tmp_path: Path) -> None:
    """A hard link and a symlink of an upper layer lead into a lower one: the layers are read again."""
    upper = tar([symlink("way", "lower"), hard_link("name", "lower/f"), Entry("way/g", content=b"g")])
    lower = tar([Entry("lower/f", content=content(4, 300_000))])
    layout = write_layout(tmp_path / "layout", [lower, Packed(upper, digest_of(b""))])
    prefix = Prefix(tmp_path / "prefix")
    before = prefix.state()
    with pytest.raises(FetchError, match="expected the diff_id"):
        prefix.fetch(plan(f"oci:{layout}"))
    assert prefix.state() == before
