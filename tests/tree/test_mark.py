"""Marks in a directory in which everybody may make files: whose they are, how old, and what hostile users can do."""

import os
import time
from pathlib import Path

import pytest

from sifmod.tree.layout import Layout
from sifmod.tree.mark import all_marks, forget, in_force, leave, remove
from support.command import User
from support.identity import call_as

SHA, OTHER = "a" * 64, "b" * 64
DAY = 86400.0
UMA, EVE = User(72_001, 72_001), User(72_002, 72_002)

as_others = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")


@pytest.fixture
def layout(shared_tmp: Path) -> Layout:
    layout = Layout(shared_tmp / "site")
    layout.marks.mkdir(parents=True)
    layout.marks.chmod(0o1777)
    return layout


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def test_a_mark_is_renewed_and_removed(layout: Layout, tmp_path: Path) -> None:
    path, new = leave(layout, SHA, tmp_path / "own")
    assert new
    age(path, 100)
    assert in_force(layout, (SHA,), 99) == {}
    assert list(in_force(layout, (SHA, OTHER), 101)) == [SHA]
    assert in_force(layout, (SHA,), 0) == {}
    assert leave(layout, SHA, tmp_path / "own") == (path, False)
    (mark,) = all_marks(layout, (SHA,))[SHA]
    assert time.time() - mark.since < 60
    other, _ = leave(layout, SHA, tmp_path / "another")
    remove(layout, SHA, tmp_path / "own")
    assert [one.path for one in all_marks(layout, (SHA,)).get(SHA, ())] == [other]
    assert leave(layout, SHA, tmp_path / "own", path.name) == (path, True)
    forget(layout, {SHA})
    assert len(list(layout.marks.iterdir())) == 2
    forget(layout, set())
    assert list(layout.marks.iterdir()) == []


@as_others
def test_a_colleague_who_installs_leaves_an_own_mark(layout: Layout, tmp_path: Path) -> None:
    """Only the first member of a team had a mark; a colleague's `install` and `rollback` renewed nothing, silently."""
    prefix = tmp_path / "team"
    path = call_as(UMA, lambda: leave(layout, SHA, prefix))[0]
    age(path, 100)
    own = call_as(EVE, lambda: leave(layout, SHA, prefix, path.name))
    assert own[1]
    assert own[0] != path
    assert [mark.path for mark in in_force(layout, (SHA,), 99)[SHA]] == [own[0]]
    age(own[0], 50)
    assert call_as(EVE, lambda: leave(layout, SHA, prefix, path.name)) == (own[0], False)
    assert in_force(layout, (SHA,), 1)


def test_without_a_place_for_marks_there_are_none(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "site")
    assert all_marks(layout, (SHA,)).get(SHA, ()) == ()
    remove(layout, SHA, tmp_path)
    forget(layout, set())
    with pytest.raises(FileNotFoundError):
        leave(layout, SHA, tmp_path)
    layout.marks.mkdir(parents=True)
    with pytest.raises(PermissionError):  # others could remove it
        leave(layout, SHA, tmp_path)
    layout.marks.rmdir()
    layout.marks.symlink_to(tmp_path)
    with pytest.raises(OSError, match="is a symlink"):
        leave(layout, SHA, tmp_path)


@as_others
def test_hostile_users_reach_nothing_but_that_images_stay(layout: Layout) -> None:
    prefix = layout.prefix.parent / "own"
    path, _ = call_as(UMA, lambda: leave(layout, SHA, prefix))
    target = layout.prefix / "precious"
    target.write_text("x")
    target.chmod(0o666)

    def plant() -> None:
        for name in ("x", "-rf", f"{SHA}.{'0' * 16}", f"{SHA}.{'0' * 16}.zzzzzzzz", "é" * 100):
            (layout.marks / name).write_text("not a mark")
        (layout.marks / f"{OTHER}.{'0' * 16}.00000000").symlink_to(target)
        (layout.marks / f"{OTHER}.{'0' * 16}.00000001").mkdir()
        os.mkfifo(layout.marks / f"{OTHER}.{'0' * 16}.00000002")
        for number in range(1000):
            (layout.marks / f"{SHA}.{number:016x}.00000000").touch()
        far = time.time() + 1000 * DAY
        os.utime(layout.marks / f"{SHA}.{0:016x}.00000000", (far, far))
        for change in (lambda: path.unlink(), lambda: path.rename(path.with_name("y")), lambda: os.utime(path)):
            with pytest.raises(PermissionError):
                change()
        remove(layout, SHA, prefix)  # of one's own alone
        forget(layout, set())

    call_as(EVE, plant)
    late, _ = call_as(EVE, lambda: leave(layout, SHA, layout.prefix))  # the others she has forgotten herself
    far = time.time() + 1000 * DAY
    call_as(EVE, lambda: os.utime(late, (far, far)))
    assert late.stat().st_mtime > time.time() + 999 * DAY
    found = all_marks(layout, (SHA, OTHER))
    assert sorted(mark.user for mark in found.pop(SHA)) == [f"user {UMA.uid}", f"user {EVE.uid}"]
    assert found == {}
    assert max(mark.since for mark in all_marks(layout, (SHA,)).get(SHA, ())) < time.time() + 60
    assert call_as(UMA, lambda: leave(layout, SHA, prefix)) == (path, False)
    call_as(UMA, lambda: remove(layout, SHA, prefix))
    assert [mark.user for mark in all_marks(layout, (SHA,)).get(SHA, ())] == [f"user {EVE.uid}"]
    assert target.read_text() == "x"
