"""The blobs of an image, all at once: which comes first, what a reader sees, and what one failure does to the rest."""

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.disk import NoSpaceError
from sifmod.image.download.downloads import Downloads, file_name, missing
from sifmod.image.oci.image import BlobSource, Stored, open_image
from sifmod.image.oci.manifest import Descriptor
from sifmod.image.settings import DEFAULT
from sifmod.image.sources.source_kinds import parse
from support.downloading import IMPATIENT, content, getter, serving, sha256
from support.identity import call_on_small_disk
from support.layers import EPOCH, Memory
from support.oci import Entry, layer, write_layout
from support.ranged import Asked, Ranged, once, resets_at, says
from support.registry import Registry
from support.web import Handler, Web

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
BLOBS = tuple(content(seed, length) for seed, length in ((11, 3_000_000), (12, 20_000_000), (13, 100), (14, 9_000_000)))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "partial"
    path.mkdir()
    return path


def remote(server: Web, blobs: Sequence[bytes]) -> tuple[BlobSource, ...]:
    return tuple(
        BlobSource(Descriptor(LAYER, sha256(blob), len(blob)), getter(server, number))
        for number, blob in enumerate(blobs)
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_every_blob_is_there_and_verified(directory: Path) -> None:
    files = [Ranged(blob) for blob in BLOBS]
    with serving(*files) as server, Downloads(remote(server, BLOBS), directory, 4) as downloads:
        downloads.complete()
        for blob, wanted in zip(downloads.blobs, BLOBS, strict=True):
            assert (blob.digest, blob.size) == (sha256(wanted), len(wanted))
            with blob.open() as file:
                assert file.read() == wanted
    assert [file.sent for file in files] == [len(blob) for blob in BLOBS]


def test_the_top_layer_comes_first(directory: Path) -> None:
    """With one connection: the last of the manifest before the others."""
    asked: list[int] = []

    def noted(number: int) -> Ranged:
        def fault(file: Ranged, handler: Handler, span: Asked) -> bool:  # noqa: ARG001
            asked.append(number)
            return False

        return Ranged(BLOBS[number], faults=[fault])

    with serving(*map(noted, range(4))) as server, Downloads(remote(server, BLOBS), directory, 1) as downloads:
        downloads.complete()
    assert asked == sorted(asked, reverse=True)
    assert set(asked) == {0, 1, 2, 3}


def test_a_reader_follows_what_arrives(directory: Path) -> None:
    """It has the first bytes while the server still holds back the rest."""
    go_on = threading.Event()

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:  # noqa: ARG001
        start, _ = file.span(asked)
        if start >= 8 << 20:
            go_on.wait(60)
        return False

    with (
        serving(Ranged(BLOBS[1], faults=[fault])) as server,
        Downloads(remote(server, BLOBS[1:2]), directory, 4) as downloads,
        downloads.blobs[0].open() as first,
        downloads.blobs[0].open() as second,
    ):
        assert first.read(1 << 20) == BLOBS[1][: 1 << 20]
        assert first.read((7 << 20) - 5) == BLOBS[1][1 << 20 : (8 << 20) - 5]
        assert not go_on.is_set()
        go_on.set()
        assert first.read() == BLOBS[1][(8 << 20) - 5 :]
        assert first.read(1) == b""
        assert second.read() == BLOBS[1]
        downloads.complete()


def test_a_reader_hears_what_went_wrong(directory: Path) -> None:
    failing = Ranged(BLOBS[1], faults=[says(404, at=8 << 20)])
    with (
        serving(failing) as server,
        pytest.raises(FetchError, match="answered 404"),
        Downloads(remote(server, BLOBS[1:2]), directory, 1) as downloads,
        downloads.blobs[0].open() as file,
    ):
        file.read()
    assert names(directory) == [name := sha256(BLOBS[1]).replace(":", "-"), f"{name}.journal"]


def test_one_failure_ends_all_and_keeps_what_is_right(directory: Path) -> None:
    """The bottom layer is nowhere; what has come of the others is there for the next run."""
    files = [Ranged(blob) for blob in BLOBS]
    files[0].faults.append(says(404))
    with (
        serving(*files) as server,
        pytest.raises(FetchError, match="answered 404"),
        Downloads(remote(server, BLOBS), directory, 1) as downloads,
    ):
        downloads.complete()
    kept = {sha256(blob).replace(":", "-") for blob in BLOBS[1:]}
    assert set(names(directory)) == kept | {f"{name}.journal" for name in kept}
    for file in files:
        file.faults.clear()
        file.log.clear()
    with serving(*files) as server, Downloads(remote(server, BLOBS), directory, 1) as downloads:
        downloads.complete()
    assert [file.sent for file in files] == [len(BLOBS[0]), 0, 0, 0]


def convert(downloads: Downloads) -> None:
    merge_layers(downloads.blobs, Memory(), epoch=EPOCH, progress=lambda _read, _total: None)


def test_wrong_bytes_are_told_even_where_a_reader_stumbles_over_them_first(directory: Path) -> None:
    """A conversion finds nonsense in a layer before its digest is known; the digest is what the user should hear of."""
    wrong = Ranged(b"\1" * len(BLOBS[1]))
    with (
        serving(wrong) as server,
        pytest.raises(ImageError, match="the layer sha256:") as caught,
        Downloads(remote(server, BLOBS[1:2]), directory, 4) as downloads,
    ):
        convert(downloads)
    assert f"got      {hashlib.sha256(wrong.content).hexdigest()}" in caught.value.message
    assert names(directory) == []


def test_what_is_wrong_with_a_right_layer_stays_what_it_is(directory: Path) -> None:
    with (
        serving(Ranged(BLOBS[3])) as server,
        pytest.raises(ImageError, match="there is no tar header at its byte 0"),
        Downloads(remote(server, BLOBS[3:]), directory, 4) as downloads,
    ):
        convert(downloads)


def test_a_layer_that_is_there_twice_is_fetched_once(directory: Path) -> None:
    file = Ranged(BLOBS[3])
    with serving(file) as server:
        (source,) = remote(server, BLOBS[3:])
        with Downloads((source, source, source), directory, 4) as downloads:
            downloads.complete()
            assert [blob.open().read() for blob in downloads.blobs] == [BLOBS[3]] * 3
    assert file.sent == len(BLOBS[3])


def test_many_small_blobs_with_trouble(directory: Path) -> None:
    blobs = [content(100 + number, 1000 * number) for number in range(60)]
    files = [Ranged(blob, faults=[once(says(503)), resets_at(number * 500)]) for number, blob in enumerate(blobs)]
    with (
        serving(*files) as server,
        Downloads(remote(server, blobs), directory, 8, patience=IMPATIENT) as downloads,
    ):
        downloads.complete()
        assert [blob.open().read() for blob in downloads.blobs] == blobs


def test_blobs_on_this_machine_are_read_where_they_are(directory: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar"
    archive.write_bytes(b"before" + BLOBS[0] + BLOBS[3] + b"after")
    places = ((BLOBS[0], 6), (BLOBS[3], 6 + len(BLOBS[0])))
    sources = [
        BlobSource(Descriptor(LAYER, sha256(blob), len(blob)), Stored(archive, at, len(blob))) for blob, at in places
    ]
    sources.append(BlobSource(Descriptor(LAYER, "", 6), Stored(archive, 0, 6)))
    with Downloads(sources, directory, 4) as downloads:
        downloads.complete()
        assert [blob.open().read() for blob in downloads.blobs] == [BLOBS[0], BLOBS[3], b"before"]
    assert names(directory) == []
    cut = BlobSource(Descriptor(LAYER, sha256(BLOBS[0]), len(BLOBS[0])), Stored(archive, 10_000_000, len(BLOBS[0])))
    with pytest.raises(ImageError, match=r"is truncated: 2000011 of 3000000 bytes"), Downloads([cut], directory, 4):
        pass
    damaged = BlobSource(Descriptor(LAYER, sha256(BLOBS[0]), len(BLOBS[0])), Stored(archive, 5, len(BLOBS[0])))
    with pytest.raises(ImageError, match="has a wrong SHA-256"), Downloads([damaged], directory, 4) as downloads:
        downloads.complete()


def test_a_real_registry(registry: Registry, directory: Path, tmp_path: Path) -> None:
    layers = [layer([Entry("noise", content(200 + number, 10_000_000))]) for number in range(3)]
    layout = write_layout(tmp_path / "layout", layers)
    image = open_image(parse(registry.push_layout(layout, "lab/layers:1")), "amd64", DEFAULT)
    with Downloads(image.sources, directory, 4) as downloads:
        downloads.complete()
        for blob, descriptor in zip(downloads.blobs, image.manifest.layers, strict=True):
            data = blob.open().read()
            assert sha256(data) == descriptor.digest
            assert len(data) == descriptor.size


def test_no_room_is_told_before_anything_is_asked_for(tmp_path: Path) -> None:
    files = [Ranged(blob) for blob in BLOBS]
    with serving(*files) as server:
        sources = remote(server, BLOBS)

        def fetch() -> None:
            disk = tmp_path / "disk"
            with pytest.raises(NoSpaceError) as caught, Downloads(sources, disk, 4):
                pass
            assert f"not enough space in {disk}: " in caught.value.message
            assert "20.0 MB needed" in caught.value.message
            assert "nothing was written" in caught.value.message
            assert "SIFMOD_PREFIX" in caught.value.hint
            assert "--prefix" in caught.value.hint
            assert names(disk) == []

        call_on_small_disk(tmp_path / "disk", 16 << 20, fetch)
    assert [file.log for file in files] == [[]] * 4


def test_leaving_early_leaves_no_thread_behind(directory: Path) -> None:
    before = set(threading.enumerate())
    with serving(*(Ranged(blob) for blob in BLOBS)) as server:
        with pytest.raises(KeyboardInterrupt), Downloads(remote(server, BLOBS), directory, 4):
            time.sleep(0.05)
            raise KeyboardInterrupt
        late = [thread for thread in set(threading.enumerate()) - before if "_guarded" in thread.name]
        for thread in late:
            thread.join(5)
        assert not any(thread.is_alive() for thread in late)


def test_a_file_with_gaps_needs_the_room_of_its_gaps(directory: Path) -> None:
    """A resumed blob has its end, and not all of what comes before."""
    wanted = BLOBS[1]
    source = BlobSource(Descriptor(LAYER, sha256(wanted), len(wanted)), lambda _: pytest.fail("nothing is asked"))
    assert missing((source,), directory) == len(wanted)
    with (directory / file_name(source)).open("wb") as file:
        file.seek(len(wanted) - 1_000_000)
        file.write(wanted[-1_000_000:])
    assert len(wanted) - 1_100_000 < missing((source,), directory) <= len(wanted) - 900_000
