"""Changes to the disk: what each makes durable, what it does where others are in the way, and how a failure reads."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import FullError, InstallError, PermissionsError
from sifmod.tree.durable import is_directory, make_directory, move, opened, sync_directory, sync_file, take, write
from sifmod.tree.explain import explain, reported
from sifmod.tree.removal import prune, remove_tree
from support.identity import call_as
from support.user import OrdinaryUser

UNCHANGED = "; what was installed before is unchanged"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory."""
    path = tmp_path / "place"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (OSError(errno.ENOSPC, "x", "/f"), FullError, f"No space left on device (/f){UNCHANGED}", "sifmod gc"),
        (OSError(errno.EDQUOT, "x", b"/f"), FullError, f"Disk quota exceeded (/f){UNCHANGED}", "sifmod gc"),
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


@pytest.mark.usefixtures("needs_root")
def test_who_owns_what_a_sticky_directory_keeps_is_named(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """Where a member may write, but not replace what another one owns."""
    sticky, own = shared_tmp / "sticky", shared_tmp / "own"
    for place in (sticky, own):
        place.mkdir()
        place.chmod(0o1777)
        (place / "file").touch()
    ordinary_user.own(own)
    user = ordinary_user.user

    def said(do: Callable[[Path, Path, Path], None], source: Path, target: Path) -> tuple[str, str]:
        with pytest.raises(PermissionsError) as caught, reported("cannot do it"):
            do(source, target, shared_tmp)
        return caught.value.message, caught.value.hint

    message, hint = call_as(user, lambda: said(take, sticky / "file", own / "gone"))
    assert message == f"cannot do it: Operation not permitted ({own}/gone)"
    why = f"{sticky} is sticky, and {sticky}/file belongs to root: ask for a change there, or "
    assert hint.startswith(why)
    message, hint = call_as(user, lambda: said(move, own / "file", sticky / "file"))
    assert message == f"cannot do it: Operation not permitted ({sticky}/file)"
    assert hint.startswith(why)


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
def test_a_sync_that_fails(number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be synced at all is left alone; no other failure is hidden, and nothing stays open."""
    (place / "file").touch()
    before = descriptors()
    monkeypatch.setattr(os, "fsync", failing(number))
    if number in (errno.EINVAL, errno.ENOTSUP):
        sync_directory(place)
    else:
        with pytest.raises(OSError, match=r"error|space"):
            sync_directory(place)
    with pytest.raises(OSError, match=r"error|space|Invalid|supported"):
        sync_file(place / "file")
    with pytest.raises(OSError, match=r"error|space|Invalid|supported"):
        write(place / "new", b"x", place)
    monkeypatch.undo()
    sync_directory(place)
    sync_file(place / "file")
    assert descriptors() == before
    with pytest.raises(NotADirectoryError):
        sync_directory(place / "file")


def test_a_file_is_written_where_there_is_none(place: Path) -> None:
    before = os.umask(0o027)
    write(place / "file", b"abc", place)
    write(place / "sealed", b"", place, 0o444)
    os.umask(before)
    assert (place / "file").read_bytes() == b"abc"
    assert [(place / name).stat().st_mode & 0o777 for name in ("file", "sealed")] == [0o640, 0o440]
    (place / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            write(place / name, b"x", place)
    assert sorted(os.listdir(place)) == ["file", "link", "sealed"]


def make(directory: Path, top: Path) -> None:
    make_directory(directory, top)
    with opened(directory, top, make=True) as descriptor:
        assert os.fstat(descriptor).st_ino == directory.stat().st_ino


def test_directories_are_made_as_far_as_they_are_missing(place: Path) -> None:
    before, files = os.umask(0o027), descriptors()
    make(place / "a" / "b" / "c", place)
    make(place / "new" / "top" / "d", place / "new" / "top")
    make(place / "a" / "b" / "c", place / "a")
    os.umask(before)
    modes = [(place / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c", "new/top/d")]
    assert modes == [0o750] * 4
    (place / "file").touch()
    for path in ("file", "file/x"):
        with pytest.raises(NotADirectoryError):
            make(place / path, place)
    with pytest.raises(FileNotFoundError), opened(place / "none", place):
        pass
    with pytest.raises(NotADirectoryError), opened(place / "a" / ".." / "new", place):
        pass
    with pytest.raises(ValueError, match="subpath"), opened(place, place / "a"):
        pass
    assert descriptors() == files


class Calls:
    """A system call that fails so often for this name, and then is the real one."""

    def __init__(self, real: Callable[..., None], number: int, times: int, name: str) -> None:
        self.real, self.number, self.times, self.name, self.count = real, number, times, name, 0

    def __call__(self, path: str | Path, *args: object, **kwargs: object) -> None:
        if Path(path).name == self.name:
            self.count += 1
            if self.count <= self.times:
                raise OSError(self.number, os.strerror(self.number))
        self.real(path, *args, **kwargs)


@pytest.mark.parametrize("number", [errno.EEXIST, errno.ENOENT])
def test_a_directory_that_others_remove_is_tried_again_but_not_for_ever(
    number: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir
    monkeypatch.setattr(os, "mkdir", Calls(real, number, 3, "a"))
    make(place / "a", place)
    assert (place / "a").is_dir()
    always = Calls(real, number, 10_000, "b")
    monkeypatch.setattr(os, "mkdir", always)
    with pytest.raises(FileNotFoundError):
        make(place / "b", place)
    assert 1 < always.count < 1000
    make(place, place)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_that_is_there_need_not_be_writable_above(
    number: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = place / "there"
    there.mkdir()
    refused = Calls(os.mkdir, number, 10_000, "there")
    monkeypatch.setattr(os, "mkdir", refused)
    make(there, place)
    assert refused.count == 0
    there.rmdir()
    with pytest.raises(OSError, match=r"Permission denied|Read-only"):
        make(there, place)
    assert refused.count == 1


def test_a_move_makes_the_directories_and_a_taking_does_not(place: Path) -> None:
    (place / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        take(place / "file", place / "a" / "b", place)
    assert os.listdir(place) == ["file"]
    move(place / "file", place / "a" / "b", place)
    (place / "other").write_text("y")
    move(place / "other", place / "a" / "b", place)
    assert (place / "a" / "b").read_text() == "y"
    take(place / "a" / "b", place / "back", place)
    assert sorted(os.listdir(place)) == ["a", "back"]


def test_a_move_is_tried_again_where_the_directory_went(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").write_text("x")
    real, count = os.rename, []

    def rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        count.append(1)
        if len(count) < 3:
            Path(os.readlink(f"/proc/self/fd/{dst_dir_fd}")).rmdir()
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", rename)
    move(place / "file", place / "a" / "b", place)
    assert ((place / "a" / "b").read_text(), len(count)) == ("x", 3)
    with pytest.raises(FileNotFoundError):
        move(place / "none", place / "a" / "c", place)
    assert len(count) == 4
    always = Calls(real, errno.ENOENT, 10_000, "b")
    monkeypatch.setattr(os, "rename", always)
    with pytest.raises(FileNotFoundError):
        move(place / "a" / "b", place / "c" / "d", place)
    assert 1 < always.count < 1000


def test_a_link_is_no_directory(place: Path) -> None:
    (place / "link").symlink_to(place)
    (place / "file").touch()
    assert is_directory(place)
    assert [is_directory(place / name) for name in ("link", "file", "none", "file/x")] == [False] * 4


def test_a_tree_is_removed_and_nothing_that_it_links_to(place: Path) -> None:
    (place / "kept").mkdir()
    (place / "kept" / "file").touch()
    top = place / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    (top / "link").symlink_to(place / "kept")
    (top / "dangling").symlink_to("nothing")
    remove_tree(top / "link", place)
    (top / "link").symlink_to(place / "kept")
    for path in (top / "a" / "b", top / "a"):
        path.chmod(0o500)
    for _ in range(2):
        remove_tree(top, place)
        assert sorted(os.listdir(place)) == ["kept"]
    assert os.listdir(place / "kept") == ["file"]


def test_a_closed_directory_is_opened_to_be_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root sees none that is closed, the answer is faked: each bit counts."""
    opened: list[int] = []
    chmod = Path.chmod

    def noting(self: Path, mode: int) -> None:
        opened.append(mode)
        chmod(self, mode)

    for closed in (0o300, 0o500, 0o600):
        (place / "a").mkdir()
        (place / "a").chmod(closed | 0o2007)
        monkeypatch.setattr(os, "access", lambda path, mode: not ~(os.stat(path).st_mode >> 6) & mode & 7)
        monkeypatch.setattr(Path, "chmod", noting)
        remove_tree(place / "a", place)
        monkeypatch.undo()
    assert opened == [0o2707] * 3
    assert os.listdir(place) == []


def test_what_goes_meanwhile_is_gone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "a").mkdir()
    monkeypatch.setattr(os, "rmdir", failing(errno.ENOENT))
    remove_tree(place / "a", place)
    monkeypatch.setattr(os, "rmdir", failing(errno.EBUSY))
    with pytest.raises(OSError, match="busy"):
        remove_tree(place / "a", place)


def test_empty_directories_are_pruned_below_the_top_only(place: Path) -> None:
    for path in ("top/a/b/c", "top/d", "out/e"):
        (place / path).mkdir(parents=True)
    prune(place / "top" / "a" / "b" / "c", place / "top" / "a")
    prune(place / "top" / "d", place / "top")
    prune(place / "out" / "e", place / "top")
    prune(place / "top" / "a", place / "top" / "a")
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == ["out", "out/e", "top", "top/a"]
