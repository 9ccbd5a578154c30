"""A download that was killed, interrupted or cut, and the next process that goes on with what is there."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.artifact import Remote
from sifmod.image.download import downloads, journal
from sifmod.image.download.arriving_file import Shared
from sifmod.image.download.journal import journal_path
from sifmod.image.download.transfer import Transfer
from sifmod.image.settings import Settings
from support.downloading import IMPATIENT, LENGTH, Place, content, getter, serving, sha256
from support.identity import call_on_small_disk
from support.ranged import Asked, Ranged, Span, ignores_ranges, says
from support.web import Handler

CONTENT = content()
DIGEST = sha256(CONTENT)
CHILD = """
import sys
from pathlib import Path
from sifmod.image.download import downloads
from sifmod.image.artifact import Remote
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http
from sifmod.image.registry.url import Url
from support.downloading import Place
downloads._SAVE_EVERY = 0.05
url, directory, digest = sys.argv[1:]
Place(Path(directory)).fetch(Remote("x.sif", Http().resource(Url.parse(url), Netrc()), digest=digest))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "partial")


def asked_for(file: Ranged) -> list[Span]:
    """What the server's log says, those that touch each other as one."""
    joined: list[Span] = []
    for span in file.spans:
        assert span is not None
        if joined and joined[-1][1] == span[0]:
            span = (joined.pop()[0], span[1])
        joined.append(span)
    return joined


def interrupted(place: Place, file: Ranged, digest: str = "") -> list[Span]:
    """Stop in the middle, as ^C does; gives what is missing then. The log is empty afterwards."""

    def stop(done: int) -> None:
        if done > LENGTH // 4:
            raise KeyboardInterrupt

    file.faults.append(slow)
    with serving(file) as server, pytest.raises(KeyboardInterrupt):
        place.fetch(Remote("x.sif", getter(server), digest=digest), stop)
    file.faults.clear()
    file.log.clear()
    return place.missing()


def slow(file: Ranged, handler: Handler, asked: Asked) -> bool:
    """The first half quickly, the rest never, until the server stops."""
    start, end = file.span(asked)
    file.answer(handler, asked, (end - start) // 2)
    handler.wfile.flush()
    handler.server.ended.wait(60)
    return True


def goes_on(place: Place, file: Ranged, digest: str = "") -> None:
    with serving(file) as server:
        assert place.fetch(Remote("x.sif", getter(server), digest=digest)).content == file.content


@pytest.mark.parametrize("digest", ["", DIGEST], ids=["etag", "digest"])
def test_kill_9_and_another_process_asks_only_for_what_is_missing(place: Place, digest: str) -> None:
    file = Ranged(CONTENT, faults=[slow])
    place.directory.mkdir()
    with serving(file) as server:
        path = os.pathsep.join(str(Path(__file__).parents[level]) for level in (1, 2))
        command = (sys.executable, "-c", CHILD, server.url("/0"), place.directory, digest)
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as child:
            try:
                while not _saved(place) or sum(end - start for start, end in place.missing()) > LENGTH * 3 // 4:
                    assert child.poll() is None
                    time.sleep(0.01)
            finally:
                child.send_signal(signal.SIGKILL)
    assert place.left() == ["file", "file.journal"]
    missing = place.missing()
    file.faults.clear()
    file.log.clear()
    goes_on(place, file, digest)
    assert asked_for(file) == missing
    assert file.sent == sum(end - start for start, end in missing) < LENGTH


def _saved(place: Place) -> bool:
    return journal.load(place.path) is not None


def test_an_interrupt_saves_what_came(place: Place) -> None:
    file = Ranged(CONTENT)
    missing = interrupted(place, file)
    assert 0 < sum(end - start for start, end in missing) < LENGTH * 3 // 4
    goes_on(place, file)
    assert asked_for(file) == missing
    assert {asked.if_range for asked in file.log} == {'"one"'}


def test_a_blob_is_known_by_its_digest_whatever_the_server_calls_it(place: Place) -> None:
    file = Ranged(CONTENT)
    missing = interrupted(place, file, DIGEST)
    file.etag = '"another mirror"'
    with serving(file) as server:
        remote = Remote("x.sif", getter(server), LENGTH, DIGEST, by_digest=True)
        assert place.fetch(remote).content == CONTENT
    assert asked_for(file) == missing


@pytest.mark.parametrize("digest", ["", sha256(content(2))], ids=["etag", "digest"])
def test_content_that_changed_between_two_runs_is_fetched_anew(place: Place, digest: str) -> None:
    interrupted(place, Ranged(CONTENT), digest)
    goes_on(place, Ranged(content(2), '"two"'), digest)


def test_a_shorter_file_between_two_runs(place: Place) -> None:
    interrupted(place, Ranged(CONTENT))
    goes_on(place, Ranged(content(2, 1000), '"two"'))


def test_ranges_that_are_ignored_in_the_second_run(place: Place) -> None:
    interrupted(place, Ranged(CONTENT))
    goes_on(place, Ranged(CONTENT, faults=[ignores_ranges]))


def test_another_promise_in_the_second_run(place: Place) -> None:
    """The server decides by its ETag whether what is there is still right; the promise is checked at the end."""
    file = Ranged(CONTENT)
    missing = interrupted(place, file, sha256(b"other"))
    goes_on(place, file, DIGEST)
    assert asked_for(file) == missing


def test_what_was_damaged_on_the_disk_is_fetched_again(place: Place) -> None:
    file = Ranged(CONTENT)
    interrupted(place, file, DIGEST)
    with place.path.open("r+b") as partial:
        partial.write(b"damage")
    goes_on(place, file, DIGEST)
    assert file.sent > LENGTH


def test_everything_was_there(place: Place) -> None:
    """Killed between the last byte and the end: the server is not asked at all."""
    file = Ranged(CONTENT)
    place.directory.mkdir()
    place.path.write_bytes(CONTENT)
    journal.save(place.path, journal.Record(LENGTH, DIGEST, "", ((0, LENGTH),)))
    goes_on(place, file, DIGEST)
    assert file.log == []


def test_a_file_without_journal_is_not_believed(place: Place) -> None:
    file = Ranged(CONTENT)
    interrupted(place, file)
    journal_path(place.path).unlink()
    goes_on(place, file)
    assert asked_for(file) == [(0, LENGTH)]


def test_a_connection_that_hangs_does_not_hold_up_an_interrupt(place: Place) -> None:
    """Threads that wait for a silent server are left behind, and write nothing when it speaks at last."""
    before = set(threading.enumerate())
    file = Ranged(CONTENT)
    missing = interrupted(place, file)  # its server speaks again when it ends
    content_then = place.path.read_bytes()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert place.path.read_bytes() == content_then
    assert place.missing() == missing


def test_a_run_that_fails_leaves_the_journal_of_the_one_before(place: Place) -> None:
    file = Ranged(CONTENT)
    missing = interrupted(place, file)
    file.faults.append(says(503))
    with serving(file) as server, pytest.raises(FetchError, match="503"):
        place.fetch(Remote("x.sif", getter(server)))
    assert place.missing() == missing
    file.faults.clear()
    file.log.clear()
    goes_on(place, file)
    assert asked_for(file) == missing


def test_no_room_for_the_journal_costs_a_resumption_and_not_the_download(tmp_path: Path) -> None:
    """The disk has the file's own room and not a page more, from the first byte to the last."""

    def fetch() -> None:
        place = Place(tmp_path / "disk" / "partial")
        place.directory.mkdir()
        file = Ranged(CONTENT, faults=[pauses])
        downloads._SAVE_EVERY = 0.02  # this is a process of its own

        with serving(file) as server:
            filled_up = False

            def fill(_done: int) -> None:
                nonlocal filled_up
                if place.path.exists() and place.path.stat().st_blocks * 512 >= LENGTH and not filled_up:
                    filled_up = True
                    free = os.statvfs(place.directory)
                    with (tmp_path / "disk" / "ballast").open("wb") as ballast:
                        os.posix_fallocate(ballast.fileno(), 0, free.f_bavail * free.f_frsize)

            outcome = place.fetch(Remote("x.sif", getter(server), LENGTH, DIGEST, by_digest=True), fill)
        assert filled_up
        assert outcome.content == CONTENT
        assert place.left() == ["file"]  # and no journal, for which there was no room

    call_on_small_disk(tmp_path / "disk", LENGTH + (8 << 20), fetch)


def pauses(file: Ranged, handler: Handler, asked: Asked) -> bool:
    """A server slow enough for several journals."""
    start, end = file.span(asked)
    extra = {"Content-Range": f"bytes {start}-{end - 1}/{len(file.content)}"}
    file.head(handler, 206, end - start, extra)
    time.sleep(0.3)
    file.send(handler, asked, file.content[start:end])
    return True


def test_a_journal_names_only_bytes_that_are_on_the_disk(place: Place, tmp_path: Path) -> None:
    """Data, then the journal's own, then its name: in this order, as the system sees it."""
    file = Ranged(CONTENT, faults=[pauses])
    trace = tmp_path / "trace"
    place.directory.mkdir()
    with serving(file) as server:
        path = os.pathsep.join(str(Path(__file__).parents[level]) for level in (1, 2))
        strace = ("strace", "-f", "-qq", "-y", "-o", trace, "-e", "trace=fdatasync,fsync,rename,pwrite64")
        command = (*strace, sys.executable, "-c", CHILD, server.url("/0"), place.directory, DIGEST)
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    lines = trace.read_text().splitlines()
    journals = [number for number, line in enumerate(lines) if "rename(" in line and "file.journal.new" in line]
    assert journals
    previous = 0
    for number in journals:
        before = lines[previous:number]
        data = max(place for place, line in enumerate(before) if "fdatasync(" in line and "/file>" in line)
        assert any("fsync(" in line and "file.journal.new>" in line for line in before[data:])
        previous = number + 1


@pytest.mark.parametrize("call", ["fdatasync", "fsync", "replace", "unlink", None])
def test_no_journal_names_bytes_that_were_discarded(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str | None
) -> None:
    """The content changes before or at any step of the system that writes one, or after the last (None)."""
    place.directory.mkdir()
    file = Ranged(CONTENT)
    with serving(file) as server:
        transfer = Transfer(Shared(), Remote("x.sif", getter(server)), place.path, Settings(connections=1), IMPATIENT)
        first, discarded = transfer.take(), False
        assert first is not None
        transfer.run(first)
        before = transfer.epoch

        def change() -> None:
            nonlocal discarded
            if not discarded:
                discarded = True
                file.content, file.etag = content(2), '"two"'
                piece = transfer.take()
                assert piece is not None
                transfer.run(piece)

        if call is not None:
            real = getattr(os, call)

            def changed(*args: object, **named: object) -> object:
                change()
                return real(*args, **named)

            monkeypatch.setattr(os, call, changed)
        transfer.save()
        monkeypatch.undo()
        change()
        assert (transfer.epoch, transfer.received) == (before + 1, 0)
        assert not journal_path(place.path).exists()
        transfer.close(None)
    goes_on(place, file)
