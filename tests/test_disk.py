"""Room on a disk, taken before the first byte is written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sifmod.image.disk import NoSpaceError, check_space, reserve
from support.identity import call_on_small_disk


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def free(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def test_what_is_reserved_is_nobody_elses(tmp_path: Path) -> None:
    """The file keeps its size and its content; a second call takes nothing more."""
    disk = tmp_path / "disk"

    def check() -> None:
        before = free(disk)
        with opened(disk / "file") as file:
            os.write(file, b"content")
            for size in (5 << 20, 5 << 20, 1 << 20, 0):
                reserve(file, disk / "file", size)
                assert before - free(disk) == 5 << 20
        assert (disk / "file").read_bytes() == b"content"

    call_on_small_disk(disk, 8 << 20, check)


def test_no_room_takes_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"

    def check() -> None:
        with opened(disk / "file") as file:
            os.write(file, b"content")
            before = free(disk)
            with pytest.raises(NoSpaceError) as caught:
                reserve(file, disk / "file", 9 << 20)
            assert free(disk) == before
        assert (disk / "file").read_bytes() == b"content"
        assert caught.value.message.startswith(f"not enough space in {disk}: 9.4 MB needed, 8.4 MB free")
        assert "--prefix PATH or the variable SIFMOD_PREFIX" in caught.value.hint
        assert caught.value.exit_code == 18

    call_on_small_disk(disk, 8 << 20, check)


def test_where_nothing_can_be_reserved_the_free_space_is_looked_at(tmp_path: Path) -> None:
    """A device knows no fallocate, like NFS 3 and old Lustre."""
    with opened(Path("/dev/null")) as file:
        reserve(file, tmp_path / "file", 1 << 20)
        with pytest.raises(NoSpaceError, match=r"needed, .* free; nothing was written"):
            reserve(file, tmp_path / "file", 1 << 60)


def test_too_little_free_space_is_told(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    with pytest.raises(NoSpaceError, match=f"not enough space in {tmp_path}"):
        check_space(tmp_path, 1 << 60)
