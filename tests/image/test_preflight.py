"""Room for everything that a conversion writes, looked for in one sum before the first byte of a layer comes."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError
from sifmod.image.disk import NoSpaceError
from sifmod.image.settings import Settings
from sifmod.module.plan import Plan
from support.command import run
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.identity import call_on_small_disk
from support.images import Images
from support.oci import Entry, layer, write_layout
from support.one_image import MB, OneImage
from support.ranged import Asked, Ranged
from support.web import Handler

LAYERS = tuple(
    layer((Entry(f"noise-{number}", random.Random(number).randbytes(size * MB)),)) for number, size in ((1, 3), (2, 5))
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layout(tmp_path_factory.mktemp("layers") / "layout", LAYERS)


@pytest.fixture
def registry(layout: Path) -> Iterator[OneImage]:
    server = OneImage(layout)
    server.start()
    yield server
    server.stop()


def refused(prefix: Prefix, wanted: Plan) -> str:
    """The message, asserting that the disk is as before and that nobody saw a beginning."""
    before = prefix.state()
    with pytest.raises(NoSpaceError) as caught:
        prefix.fetch(wanted, lambda what, *_: pytest.fail(what))
    assert prefix.state() == before
    assert "--prefix PATH or the variable SIFMOD_PREFIX" in caught.value.hint
    assert "-o FILE" in caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("size", [4, 10, 14])
def test_layers_and_sif_are_one_sum(registry: OneImage, tmp_path: Path, size: int) -> None:
    """There is no room for the layers, for the layers and some of the SIF, for nearly all."""

    def fetch() -> None:
        message = refused(prefix := Prefix(tmp_path / "disk" / "prefix"), plan(registry.source))
        assert f"not enough space in {prefix.layout.staging}" in message
        needed = "16.0 MB needed (8.0 MB of layers to download and about 8.0 MB for the SIF), "
        assert needed in message
        assert message.endswith(" free; nothing was written")

    call_on_small_disk(tmp_path / "disk", size * MB, fetch)
    assert registry.asked_for_layers == 0


def test_what_is_just_enough_is_enough(registry: OneImage, tmp_path: Path) -> None:
    def fetch() -> int:
        return Prefix(tmp_path / "disk" / "prefix").fetch(plan(registry.source)).size

    assert call_on_small_disk(tmp_path / "disk", 17 * MB, fetch) > 8 * MB
    assert registry.asked_for_layers > 0


def test_what_has_arrived_is_not_needed_again(registry: OneImage, tmp_path: Path) -> None:
    smaller = min((blob for blob in registry.blobs.values() if len(blob.content) > MB), key=lambda b: len(b.content))

    def broken(_: Ranged, handler: Handler, __: Asked) -> bool:
        handler.send_error(404)
        return True

    smaller.faults.append(broken)
    ballast = tmp_path / "disk" / "ballast"

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        with pytest.raises(FetchError, match="404"):
            prefix.fetch(plan(registry.source), settings=Settings(connections=1))  # the upper layer first
        (kept,) = prefix.layout.partials.glob("*/sha256-*[0-9a-f]")
        assert kept.stat().st_blocks * 512 > 5 * MB
        with ballast.open("wb") as file:
            file.write(b"x" * (4 * MB))
        message = refused(prefix, plan(registry.source))
        assert "11.0 MB needed (3.0 MB of layers to download and about 8.0 MB for the SIF)" in message
        assert message.endswith(" free; downloaded data is kept")
        ballast.unlink()

    call_on_small_disk(tmp_path / "disk", 18 * MB, fetch)


def test_layers_that_are_here_need_no_room(layout: Path, tmp_path: Path) -> None:
    def fetch() -> None:
        message = refused(Prefix(tmp_path / "disk" / "prefix"), plan(f"oci:{layout}"))
        assert "8.0 MB needed (about, for the SIF), " in message
        assert message.endswith(" free; nothing was written")

    call_on_small_disk(tmp_path / "disk", 7 * MB, fetch)


def test_an_archive_that_had_to_be_unpacked_is_spoken_of(layout: Path, tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    run(("tar", "-czf", archive, "-C", layout, ".")).ok()

    def fetch() -> None:
        message = refused(Prefix(tmp_path / "disk" / "prefix"), plan(f"oci-archive:{archive}"))
        assert "8.0 MB needed (about, for the SIF), " in message
        assert message.endswith(" free; the unpacked archive was removed")
        assert "nothing was written" not in message

    call_on_small_disk(tmp_path / "disk", 14 * MB, fetch)


def test_a_file_of_its_own_needs_as_much(registry: OneImage, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    disk = tmp_path / "disk"

    def fetch() -> None:
        before = disk_state(disk)
        assert sifmod(["fetch", registry.source, "-o", str(disk / "x.sif"), "--quiet"]) == 18
        assert disk_state(disk) == before

    call_on_small_disk(disk, 14 * MB, fetch)
    error = capfd.readouterr().err
    assert f"not enough space in {disk}/.x.sif.fetching/" in error
    assert ": 16.0 MB needed" in error
    assert "nothing was written" in error
    assert "-o FILE" in error
    assert registry.asked_for_layers == 0


def test_a_copy_takes_its_room_first(images: Images, tmp_path: Path) -> None:
    """A file of holes takes no disk, and its copy would."""
    mine = tmp_path / "mine.sif"
    mine.write_bytes(images.tiny_sif.read_bytes())
    with mine.open("r+b") as file:
        file.truncate(20 * MB)

    def fetch() -> None:
        message = refused(Prefix(tmp_path / "disk" / "prefix"), plan(mine))
        assert "20.0 MB needed, " in message
        assert message.endswith(" free; nothing was written")

    call_on_small_disk(tmp_path / "disk", 14 * MB, fetch)
