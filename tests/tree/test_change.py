"""A Change: all of its steps or none, whichever of them the system refuses."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import LockError
from sifmod.tree.change import Change
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from support.tree import LEASE, nobody

STEPS: tuple[Callable[[Change, Path], None], ...] = (
    lambda change, top: change.file(top / "a" / "replaced", "new"),
    lambda change, top: change.file(top / "a" / "b" / "made", "new"),
    lambda change, top: change.link(top / "a" / "link", "new"),
    lambda change, top: change.link(top / "c" / "new-link", "new"),
    lambda change, top: change.remove(top / "d" / "removed"),
    lambda change, top: change.remove(top / "d" / "never"),
)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Files of a tree."""
    path = tmp_path / "prefix" / "software"
    for directory in ("a", "d"):
        (path / directory).mkdir(parents=True)
    (path / "a" / "replaced").write_text("old")
    (path / "a" / "replaced").chmod(0o640)
    (path / "a" / "link").symlink_to("old")
    (path / "d" / "removed").write_text("old")
    return path


def state(top: Path) -> dict[str, tuple[int, str]]:
    """Every path with its mode and content."""
    return {
        str(path.relative_to(top)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text(),
        )
        for path in sorted(top.rglob("*"))
    }


@pytest.mark.parametrize("count", range(len(STEPS) + 1))
def test_where_one_step_is_refused_none_is_done(top: Path, count: int) -> None:
    """Behind so many steps comes one onto a directory, which appears when all has been prepared."""
    before = state(top)
    with lock(Layout(top.parent), "Tiny/1.0", LEASE, nobody) as held:
        change = Change(held)
        for step in STEPS[:count]:
            step(change, top)
        change.file(top.parent / "refused", "new")
        for step in STEPS[count:]:
            step(change, top)
        (top.parent / "refused" / "inner").mkdir(parents=True)
        with pytest.raises(IsADirectoryError):
            change.apply()
        assert state(top) == before
        assert state(top.parent / "refused") == {"inner": ((top.parent / "refused" / "inner").stat().st_mode, "")}


def test_where_the_lock_was_lost_none_is_done(top: Path) -> None:
    before = state(top)
    with lock(Layout(top.parent), "Tiny/1.0", LEASE, nobody) as held:
        change = Change(held)
        for step in STEPS:
            step(change, top)
        held.directory.rename(held.directory.with_name("taken"))
        with pytest.raises(LockError):
            change.apply()
        assert state(top) == before


def test_all_steps_are_done(top: Path) -> None:
    with lock(Layout(top.parent), "Tiny/1.0", LEASE, nobody) as held:
        change = Change(held)
        for step in STEPS:
            step(change, top)
        change.apply()
    texts = {path: content for path, (_, content) in state(top).items() if content}
    assert texts == {"a/replaced": "new", "a/b/made": "new", "a/link": "new", "c/new-link": "new"}
    assert not (top / "d").exists()
