"""Room on a disk, taken before the first byte is written."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sifmod.errors import FetchError, PermissionsError, SifmodError
from sifmod.image import disk
from sifmod.image.disk import NoSpaceError, check_space, reading, reserve, writing
from sifmod.system import size_text
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
    room = tmp_path / "disk"

    def check() -> None:
        before = free(room)
        with opened(room / "file") as file:
            os.write(file, b"content")
            for size in (5 << 20, 5 << 20, 1 << 20, 0):
                reserve(file, room / "file", size)
                assert before - free(room) == 5 << 20
        assert (room / "file").read_bytes() == b"content"

    call_on_small_disk(room, 8 << 20, check)


def test_no_room_takes_nothing(tmp_path: Path) -> None:
    room = tmp_path / "disk"

    def check() -> None:
        with opened(room / "file") as file:
            os.write(file, b"content")
            before = free(room)
            with pytest.raises(NoSpaceError) as caught:
                reserve(file, room / "file", 9 << 20)
            assert free(room) == before
        assert (room / "file").read_bytes() == b"content"
        assert caught.value.message.startswith(f"not enough space in {room}: 9.4 MB needed, 8.4 MB free")
        assert "--prefix PATH or the variable SIFMOD_PREFIX" in caught.value.hint
        assert caught.value.exit_code == 18

    call_on_small_disk(room, 8 << 20, check)


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


def test_what_just_fits_fits(tmp_path: Path) -> None:
    room = tmp_path / "disk"

    def check() -> None:
        check_space(room, free(room))
        with pytest.raises(NoSpaceError) as caught:
            check_space(room, free(room) + 1, "for the SIF", "nothing happened")
        assert caught.value.message == (
            f"not enough space in {room}: 8.4 MB needed (for the SIF), 8.4 MB free; nothing happened"
        )

    call_on_small_disk(room, 8 << 20, check)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (1_400_000, "1.4 MB"),
        (20_300_000_000, "20.3 GB"),
        (5_000_000_000_000, "5.0 TB"),
        (5_000_000_000_000_000, "5000.0 TB"),
    ],
)
def test_a_number_of_bytes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.ENOSPC, NoSpaceError, " free; "),
        (errno.EDQUOT, NoSpaceError, "1.0 MB needed (parts), your quota allows less; "),
        (errno.EIO, FetchError, "Input/output error"),
        (errno.EACCES, PermissionsError, "Permission denied"),
    ],
)
@pytest.mark.parametrize(("content", "done"), [(b"", "nothing was written"), (b"x", "downloaded data is kept")])
def test_what_the_system_refuses_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[SifmodError],
    message: str,
    content: bytes,
    done: str,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    monkeypatch.setattr(disk, "_fallocate", lambda *_: number)
    size = 1_000_000 + path.stat().st_blocks * 512
    with opened(path) as file, pytest.raises(kind) as caught:
        reserve(file, path, size, "parts")
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert caught.value.message.endswith(done) is (kind is NoSpaceError)
    assert path.read_bytes() == content
    if kind is NoSpaceError:
        with opened(path) as file, pytest.raises(kind, match=r"; of its own$"):
            reserve(file, path, size, "parts", "of its own")


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM])
def test_a_file_system_that_reserves_nothing_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(disk, "_fallocate", lambda *_: number)
    with opened(tmp_path / "file") as file:
        reserve(file, tmp_path / "file", 1000)
        with pytest.raises(NoSpaceError, match=r"; nothing was written$"):
            reserve(file, tmp_path / "file", 1 << 60)


def test_what_a_file_has_already_is_not_wanted_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a download of 7 MiB on a disk of 8 MiB, which reserves nothing, 5 MiB are there: the rest fits."""
    room = tmp_path / "disk"
    monkeypatch.setattr(disk, "_fallocate", lambda *_: errno.EOPNOTSUPP)

    def check() -> None:
        with opened(room / "file") as file:
            os.write(file, bytes(5 << 20))
            reserve(file, room / "file", 7 << 20)
            with pytest.raises(NoSpaceError, match=r"4\.2 MB needed, 3\.1 MB free; downloaded data is kept"):
                reserve(file, room / "file", 9 << 20)

    call_on_small_disk(room, 8 << 20, check)


@pytest.mark.parametrize(
    ("number", "read", "written"),
    [
        (errno.EACCES, PermissionsError, PermissionsError),
        (errno.EPERM, PermissionsError, PermissionsError),
        (errno.EROFS, PermissionsError, PermissionsError),
        (errno.ENOSPC, FetchError, NoSpaceError),
        (errno.EDQUOT, FetchError, NoSpaceError),
        (errno.EIO, FetchError, FetchError),
    ],
)
def test_what_goes_wrong_with_a_file_is_told(number: int, read: type[SifmodError], written: type[SifmodError]) -> None:
    for how, verb, kind in ((reading, "read", read), (writing, "write", written)):
        error = OSError(number, os.strerror(number))
        with pytest.raises(SifmodError) as caught, how(Path("/x")):
            raise error
        assert type(caught.value) is kind
        assert caught.value.message.startswith(f"cannot {verb} /x: {os.strerror(number)}")
        assert caught.value.__cause__ is error
        with pytest.raises(FetchError, match=f"^cannot {verb} /x: no number$"), how(Path("/x")):
            raise OSError("no number")
