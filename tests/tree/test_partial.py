"""Partials: what a fetch leaves for the next one stays, and goes when nobody wants it any more."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.errors import FetchError
from sifmod.module.image_origin import ImageOrigin
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.partial import open_partial, partials
from sifmod.tree.store import Store
from sifmod.tree.stored_image import entries
from support.disk_state import disk_state
from support.tree import ALONE, LEASE, nobody, tree_of

KEY = "0123456789abcdef"
DAY = 86400


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


def leave(layout: Layout, age: float = 0) -> Path:
    """What a fetch that failed leaves."""
    with (
        lock(layout, "any", LEASE, nobody) as held,
        pytest.raises(FetchError),
        Store(layout, held).partial(KEY) as path,
    ):
        (path / "blob").write_bytes(b"half of it")
        raise FetchError("the network is gone")
    for place in (path / "blob", path):
        os.utime(place, (time.time() - age, time.time() - age))
    return path


def test_what_was_received_is_there_for_the_next_run(layout: Layout) -> None:
    first = leave(layout)
    with lock(layout, "any", LEASE, nobody) as held:
        store = Store(layout, held)
        with store.partial(KEY) as path:
            assert path == first
            assert (path / "blob").read_bytes() == b"half of it"
            store.finished(path)
    assert not layout.partials.exists()


def test_a_fetch_that_received_nothing_leaves_nothing(layout: Layout) -> None:
    with lock(layout, "any", LEASE, nobody) as held, Store(layout, held).partial(KEY):
        pass
    assert not layout.partials.exists()


def test_only_its_owner_can_read_it_where_the_prefix_is_private(layout: Layout) -> None:
    layout.prefix.mkdir(mode=0o700)
    assert leave(layout).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("age", [0, 13 * DAY])
def test_gc_keeps_what_is_young_and_says_so(layout: Layout, age: float) -> None:
    path = leave(layout, age)
    before = disk_state(layout.prefix)
    plan = plan_gc(layout, ask_jobs=False)
    assert [(old.partial.path, "can resume it" in old.keep) for old in plan.partials] == [(path, True)]
    assert apply_gc(tree_of(layout), plan, ALONE).partials == ()
    assert disk_state(layout.prefix) == before


def test_gc_takes_what_is_old(layout: Layout) -> None:
    path = leave(layout, 15 * DAY)
    plan = plan_gc(layout, ask_jobs=False)
    assert plan.size > 0
    done = apply_gc(tree_of(layout), plan, ALONE)
    assert [partial.path for partial in done.partials] == [path]
    assert done.size == plan.size
    assert not path.exists()
    assert partials(layout) == ()


def test_gc_leaves_what_a_fetch_wrote_since(layout: Layout) -> None:
    path = leave(layout, 15 * DAY)
    plan = plan_gc(layout, ask_jobs=False)
    (path / "blob").write_bytes(b"nearly all of it")
    assert apply_gc(tree_of(layout), plan, ALONE).partials == ()
    assert (path / "blob").exists()


def test_an_image_is_found_again_by_what_gave_it(layout: Layout) -> None:
    origin = ImageOrigin("sha256:i", "sha256:m", ("sha256:l",), "zstd:3", (("libzstd", "1.5.7"),))
    place, sha256 = "docker://docker.io/library/x", "a" * 64
    with lock(layout, "any", LEASE, nobody) as held:
        store = Store(layout, held)
        with store.incoming() as incoming:
            incoming.write_bytes(b"an image")
            path = store.add(incoming, sha256, origin, place)
        added = entries(layout)[0].added
        assert store.find_made(place, "sha256:i") == ((path, origin),)
        assert store.find_made(place, "sha256:m") == ((path, replace(origin, index="")),)
        assert store.find_made(place, "sha256:j") == ()
        assert store.find_made("docker://ghcr.io/x", "sha256:m") == ()
        assert store.find_made(place, "") == ()
        store.gave(path, replace(origin, index="sha256:j"), place)
        record = path.with_suffix(".json").read_bytes()
        store.gave(path, replace(origin, index="sha256:j"), place)
        assert path.with_suffix(".json").read_bytes() == record
        assert store.find_made(place, "sha256:j") == ((path, replace(origin, index="sha256:j")),)
        assert store.find_made(place, "sha256:i") == ((path, origin),)
        assert store.find_made("docker://ghcr.io/x", "sha256:j") == ()
        assert entries(layout)[0].added == added
        path.unlink()
        assert store.find_made(place, "sha256:m") == ()


def test_the_directory_above_goes_while_one_is_made_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = tmp_path / "images/partial"
    made: list[str] = []
    mkdir = os.mkdir

    def late(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if name == "key" and not made:
            made.append(name)
            above.rmdir()  # as `prune` of another run does
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", late)
    assert open_partial(above / "key", tmp_path)
    assert made
    assert (above / "key").is_dir()
