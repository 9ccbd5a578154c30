"""Changes to the disk: what each makes durable, what it does where others are in the way, and how a failure reads."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import InstallError, PermissionsError
from sifmod.tree.disk import (
    explain,
    is_directory,
    make_directory,
    move,
    prune,
    remove_tree,
    reported,
    sync_directory,
    sync_file,
    take,
    write,
)

UNCHANGED = "; what was installed before is unchanged"


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (OSError(errno.ENOSPC, "x", "/f"), InstallError, f"No space left on device (/f){UNCHANGED}", "sifmod gc"),
        (OSError(errno.EDQUOT, "x", b"/f"), InstallError, f"Disk quota exceeded (/f){UNCHANGED}", "sifmod gc"),
        (OSError(errno.EACCES, "x", "/f"), PermissionsError, "Permission denied (/f)", "--prefix"),
        (OSError(errno.EPERM, "x", "/f"), PermissionsError, "Operation not permitted (/f)", "--prefix"),
        (OSError(errno.EROFS, "x", "/f"), PermissionsError, "Read-only file system (/f)", "--prefix"),
        (OSError(errno.EIO, "x", "/a", None, "/b"), InstallError, "Input/output error (/b)", ""),
        (OSError(errno.EIO, "x", 3), InstallError, "Input/output error", ""),
        (OSError(errno.EIO, "x"), InstallError, "Input/output error", ""),
        (OSError("only words"), InstallError, "only words", ""),
    ],
)
def test_what_a_failure_means(error: OSError, kind: type[Exception], message: str, hint: str) -> None:
    told = explain(error, "cannot do it")
    assert (type(told), told.message) == (kind, f"cannot do it: {message}")
    assert hint in told.hint
    assert bool(hint) == bool(told.hint)
    with pytest.raises(kind) as caught, reported("cannot do it"):
        raise error
    assert (caught.value.args, caught.value.__cause__) == (told.args, error)


def test_what_is_no_failure_of_the_disk_is_not_explained() -> None:
    with pytest.raises(ZeroDivisionError), reported("cannot do it"):
        _ = 1 / 0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def failing(number: int) -> Callable[..., None]:
    """A system call that fails so."""

    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be synced at all is left alone; no other failure is hidden, and nothing stays open."""
    (tmp_path / "file").touch()
    before = descriptors()
    monkeypatch.setattr(os, "fsync", failing(number))
    if number in (errno.EINVAL, errno.ENOTSUP):
        sync_directory(tmp_path)
    else:
        with pytest.raises(OSError, match=r"error|space"):
            sync_directory(tmp_path)
    with pytest.raises(OSError, match=r"error|space|Invalid|supported"):
        sync_file(tmp_path / "file")
    with pytest.raises(OSError, match=r"error|space|Invalid|supported"):
        write(tmp_path / "new", b"x")
    monkeypatch.undo()
    sync_directory(tmp_path)
    sync_file(tmp_path / "file")
    assert descriptors() == before
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")


def test_a_file_is_written_where_there_is_none(tmp_path: Path) -> None:
    before = os.umask(0o027)
    write(tmp_path / "file", b"abc")
    write(tmp_path / "sealed", b"", 0o444)
    os.umask(before)
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "sealed")] == [0o640, 0o440]
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            write(tmp_path / name, b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "sealed"]


def test_directories_are_made_as_far_as_they_are_missing(tmp_path: Path) -> None:
    before = os.umask(0o027)
    make_directory(tmp_path / "a" / "b" / "c", 0o700)
    make_directory(tmp_path / "d")
    make_directory(tmp_path / "a" / "b" / "c", 0o777)
    os.umask(before)
    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c", "d")]
    assert modes == [0o750, 0o750, 0o700, 0o750]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_directory(tmp_path / "file" / "x")


class Calls:
    """A system call that fails so often for this name, and then is the real one."""

    def __init__(self, real: Callable[..., None], number: int, times: int, name: str) -> None:
        self.real, self.number, self.times, self.name, self.count = real, number, times, name, 0

    def __call__(self, path: Path, *args: object, **kwargs: object) -> None:
        if Path(path).name == self.name:
            self.count += 1
            if self.count <= self.times:
                raise OSError(self.number, os.strerror(self.number))
        self.real(path, *args, **kwargs)


@pytest.mark.parametrize("number", [errno.EEXIST, errno.ENOENT])
def test_a_directory_that_others_remove_is_tried_again_but_not_for_ever(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir
    monkeypatch.setattr(os, "mkdir", Calls(real, number, 3, "a"))
    make_directory(tmp_path / "a")
    assert (tmp_path / "a").is_dir()
    always = Calls(real, number, 10_000, "b")
    monkeypatch.setattr(os, "mkdir", always)
    with pytest.raises(OSError, match=r"File exists|No such file") as caught:
        make_directory(tmp_path / "b")
    assert caught.value.errno == number
    assert 1 < always.count < 1000
    make_directory(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_that_is_there_need_not_be_writable_above(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    refused = Calls(os.mkdir, number, 10_000, "there")
    monkeypatch.setattr(os, "mkdir", refused)
    make_directory(there)
    there.rmdir()
    with pytest.raises(OSError, match=r"Permission denied|Read-only"):
        make_directory(there)
    assert refused.count == 2


def test_a_move_makes_the_directories_and_a_taking_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        take(tmp_path / "file", tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == ["file"]
    move(tmp_path / "file", tmp_path / "a" / "b")
    (tmp_path / "other").write_text("y")
    move(tmp_path / "other", tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").read_text() == "y"
    take(tmp_path / "a" / "b", tmp_path / "back")
    assert sorted(os.listdir(tmp_path)) == ["a", "back"]


def test_a_move_is_tried_again_where_the_directory_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    real, count = os.rename, []

    def rename(source: str | Path, target: str | Path) -> None:
        count.append(1)
        if len(count) < 3:
            Path(target).parent.rmdir()
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    move(tmp_path / "file", tmp_path / "a" / "b")
    assert ((tmp_path / "a" / "b").read_text(), len(count)) == ("x", 3)
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "none", tmp_path / "a" / "c")
    assert len(count) == 4
    always = Calls(real, errno.ENOENT, 10_000, "b")
    monkeypatch.setattr(os, "rename", always)
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "a" / "b", tmp_path / "c" / "d")
    assert 1 < always.count < 1000


def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    assert is_directory(tmp_path)
    assert [is_directory(tmp_path / name) for name in ("link", "file", "none", "file/x")] == [False] * 4


def test_a_tree_is_removed_and_nothing_that_it_links_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    (top / "link").symlink_to(tmp_path / "kept")
    (top / "dangling").symlink_to("nothing")
    remove_tree(top / "link")
    (top / "link").symlink_to(tmp_path / "kept")
    for path in (top / "a" / "b", top / "a"):
        path.chmod(0o500)
    for _ in range(2):
        remove_tree(top)
        assert sorted(os.listdir(tmp_path)) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["file"]


def test_a_closed_directory_is_opened_to_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root sees none that is closed, the answer is faked: each bit counts."""
    opened: list[int] = []
    chmod = Path.chmod

    def noting(self: Path, mode: int) -> None:
        opened.append(mode)
        chmod(self, mode)

    for closed in (0o300, 0o500, 0o600):
        (tmp_path / "a").mkdir()
        (tmp_path / "a").chmod(closed | 0o2007)
        monkeypatch.setattr(os, "access", lambda path, mode: not ~(os.stat(path).st_mode >> 6) & mode & 7)
        monkeypatch.setattr(Path, "chmod", noting)
        remove_tree(tmp_path / "a")
        monkeypatch.undo()
    assert opened == [0o2707] * 3
    assert os.listdir(tmp_path) == []


def test_what_goes_meanwhile_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os, "rmdir", failing(errno.ENOENT))
    remove_tree(tmp_path / "a")
    monkeypatch.setattr(os, "rmdir", failing(errno.EBUSY))
    with pytest.raises(OSError, match="busy"):
        remove_tree(tmp_path / "a")


def test_empty_directories_are_pruned_below_the_top_only(tmp_path: Path) -> None:
    for path in ("top/a/b/c", "top/d", "out/e"):
        (tmp_path / path).mkdir(parents=True)
    prune(tmp_path / "top" / "a" / "b" / "c", tmp_path / "top" / "a")
    prune(tmp_path / "top" / "d", tmp_path / "top")
    prune(tmp_path / "out" / "e", tmp_path / "top")
    prune(tmp_path / "top" / "a", tmp_path / "top" / "a")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["out", "out/e", "top", "top/a"]
