"""What is told of a conversion: the bytes that arrive while any do, and then what is converted."""

import threading
from pathlib import Path

import pytest

from sifmod.image.download.downloads import Downloads
from sifmod.image.oci.image import BlobSource, Stored
from sifmod.image.oci.manifest import Descriptor
from support.downloading import content, getter, serving, sha256
from support.processes import wait_until
from support.ranged import Asked, Ranged
from support.web import Handler, Web

BLOB = content(21, 6_000_000)
HALF = 3 << 20  # a multiple of what is read at a time
ARRIVING = "downloading and converting x.sif"
Told = list[tuple[str, int, int | None]]


class HalfAndHalf:
    """A fault of a server: the first half, and the other one when `opened` is set."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        extra = {"Content-Range": f"bytes {start}-{end - 1}/{len(file.content)}"}
        file.head(handler, 206, end - start, extra)
        file.send(handler, asked, file.content[start:HALF])
        handler.wfile.flush()
        self.opened.wait(60)
        file.send(handler, asked, file.content[HALF:end])
        return True


def sources(server: Web) -> tuple[BlobSource, ...]:
    return (BlobSource(Descriptor("", sha256(BLOB), len(BLOB)), getter(server, 0)),)


def test_downloads_are_told_until_all_has_arrived(tmp_path: Path) -> None:
    told: Told = []
    slow = HalfAndHalf()
    with (
        serving(Ranged(BLOB, faults=[slow])) as server,
        Downloads(sources(server), tmp_path, 1) as downloads,
        downloads.telling("x.sif", lambda *what: told.append(what)) as converted,
    ):
        assert told[0][0] == ARRIVING  # at once
        wait_until(lambda: told[-1] == (ARRIVING, HALF, len(BLOB)))
        converted(1000, len(BLOB))
        slow.opened.set()
        with downloads.blobs[0].open() as file:
            assert file.read() == BLOB
        assert {what for what, _, _ in told} == {ARRIVING}
        converted(len(BLOB) - 1, len(BLOB))
        converted(len(BLOB), len(BLOB))
        downloads.complete()
    assert told[-2:] == [("converting x.sif", len(BLOB) - 1, len(BLOB)), ("converting x.sif", len(BLOB), len(BLOB))]
    arrived = [done for what, done, _ in told if what == ARRIVING]
    assert arrived == sorted(arrived)
    assert len(arrived) == len(told) - 2


def test_of_files_that_are_here_only_the_conversion_is_told(tmp_path: Path) -> None:
    told: Told = []
    (tmp_path / "blob").write_bytes(BLOB)
    source = BlobSource(Descriptor("", sha256(BLOB), len(BLOB)), Stored(tmp_path / "blob", 0, len(BLOB)))
    with Downloads([source], tmp_path, 1) as downloads:
        with downloads.telling("x.sif", lambda *what: told.append(what)) as converted:
            converted(7, len(BLOB))
        downloads.complete()
    assert told == [("converting x.sif", 7, len(BLOB))]


def test_what_a_progress_raises_ends_the_downloads(tmp_path: Path) -> None:
    calls: Told = []

    def broken(what: str, done: int, total: int | None) -> None:
        if calls:
            raise BrokenPipeError("nobody reads")
        calls.append((what, done, total))

    slow = HalfAndHalf()
    with serving(Ranged(BLOB, faults=[slow])) as server:
        with (
            pytest.raises(BrokenPipeError),
            Downloads(sources(server), tmp_path, 1) as downloads,
            downloads.telling("x.sif", broken),
        ):
            downloads.complete()
        slow.opened.set()
