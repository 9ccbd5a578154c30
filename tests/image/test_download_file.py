"""The file that a download is written into: by whom, until when, and with which mode."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image import disk as lustre
from sifmod.image.download import journal
from sifmod.image.download.journal import PartialFile, Record
from sifmod.image.settings import Striping

RECORD = Record(300, "", '"a"', ((0, 100),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "partial").mkdir()
    return tmp_path / "partial" / "file"


@pytest.fixture
def any_mode() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def descriptors() -> list[str]:
    """What this process has open, but for the directory that is just being listed."""
    return sorted(str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry))


@pytest.mark.usefixtures("any_mode")
@pytest.mark.parametrize(("directory", "file"), [(0o700, 0o600), (0o750, 0o640), (0o2775, 0o664), (0o777, 0o666)])
def test_it_is_open_to_whom_its_directory_is(path: Path, directory: int, file: int) -> None:
    path.parent.chmod(directory)
    PartialFile(path).close()
    journal.save(path, RECORD)
    for made in (path, journal.journal_path(path)):
        assert made.stat().st_mode & 0o7777 == file


def test_what_an_earlier_run_left_stays(path: Path) -> None:
    path.write_bytes(b"half of it")
    part = PartialFile(path)
    assert part.write(0, 8, b"all")
    part.close()
    assert path.read_bytes() == b"half of all"


def test_a_link_that_another_user_put_there_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("export PATH")
    path.symlink_to(tmp_path / "profile")
    with pytest.raises(FetchError, match=f"cannot write {path}: "):
        PartialFile(path)
    assert (tmp_path / "profile").read_text() == "export PATH"


def test_a_write_that_takes_less_at_a_time_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over NFS, or where a signal came in between."""
    write: Callable[[int, memoryview, int], int] = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, view, at: write(file, view[:3], at))
    part = PartialFile(path)
    assert part.write(0, 5, b"0123456789")
    part.close()
    assert path.read_bytes() == bytes(5) + b"0123456789"


def test_what_is_started_over_is_empty_and_nobody_writes_the_old(path: Path) -> None:
    part = PartialFile(path)
    assert part.epoch == 0
    assert part.write(0, 0, b"old")
    part.start_over()
    assert part.epoch == 1
    assert path.read_bytes() == b""
    assert not part.write(0, 0, b"old")
    assert path.read_bytes() == b""
    assert part.write(1, 0, b"new")
    part.close()
    part.start_over()
    assert path.read_bytes() == b"new"


def test_what_is_closed_is_not_written(path: Path) -> None:
    before = descriptors()
    part = PartialFile(path)
    assert descriptors() != before
    for _ in range(2):
        part.close()
        assert descriptors() == before
    assert not part.write(0, 0, b"x")
    part.reserve(1 << 60)
    part.sync()
    assert path.read_bytes() == b""


def test_what_is_removed_is_closed(path: Path) -> None:
    before = descriptors()
    part = PartialFile(path)
    for _ in range(2):
        part.remove()
        assert descriptors() == before
        assert not path.exists()


def test_room_is_taken(path: Path) -> None:
    part = PartialFile(path)
    part.reserve(1 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert path.read_bytes() == b""
    part.close()


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_a_sync_is_of_the_file_and_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    synced: list[str] = []

    def fdatasync(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        if error:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    part = PartialFile(path)
    before = descriptors()
    if error:
        with pytest.raises(FetchError, match=f"cannot write {path}: Input/output error"):
            part.sync()
    else:
        part.sync()
    assert synced == [str(path)]
    assert descriptors() == before
    part.close()


def test_a_new_file_is_striped_as_the_site_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(lustre, "is_lustre", lambda directory: directory == path.parent)
    PartialFile(path).close()
    assert not (tmp_path / "called").exists()
    path.unlink()
    PartialFile(path, Striping(4, 1 << 20)).close()
    assert (tmp_path / "called").read_text() == f"setstripe -c 4 -S 1048576 {path}\n"


def test_a_journal_has_all_of_its_text_on_the_disk_before_it_has_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def fsync(file: int) -> None:
        written = Path(f"/proc/self/fd/{file}")
        seen.append((str(written.readlink()), written.read_bytes().endswith(b"}")))
        assert not journal.journal_path(path).exists()

    monkeypatch.setattr(os, "fsync", fsync)
    path.write_bytes(bytes(300))
    journal.save(path, RECORD)
    assert seen == [(f"{path}.journal.new", True)]
    assert journal.load(path) == RECORD


def test_a_journal_that_was_begun_and_not_finished_is_no_trouble(path: Path) -> None:
    """By a process that was killed."""
    path.write_bytes(bytes(300))
    path.with_name("file.journal.new").write_text("{")
    journal.save(path, RECORD)
    assert journal.load(path) == RECORD
    assert sorted(os.listdir(path.parent)) == ["file", "file.journal"]


def test_a_journal_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    (path.with_name("file.journal") / "in the way").mkdir(parents=True)
    with pytest.raises(FetchError, match=r"cannot write .*file\.journal: "):
        journal.save(path, RECORD)
    assert os.listdir(path.parent) == ["file.journal"]


def test_all_of_a_journal_is_forgotten(path: Path) -> None:
    for name in ("file", "file.journal", "file.journal.new", "other.journal"):
        path.with_name(name).write_text("")
    journal.forget(path)
    assert sorted(os.listdir(path.parent)) == ["file", "other.journal"]
