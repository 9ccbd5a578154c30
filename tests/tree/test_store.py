import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from sifmod.errors import InstallError
from sifmod.image.artifact import ImageStore
from sifmod.module.image_origin import ImageOrigin
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock, lock
from sifmod.tree.store import GC, Store, discard, pinned
from sifmod.tree.stored_image import entries
from support.disk_state import disk_state, file_state
from support.hold import Other
from support.small_disk import filled, small_disk
from support.tree import LEASE, MODULE, image_bytes, install, names, nobody, put_image

ABSENT = "0" * 64


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def held(layout: Layout) -> Iterator[HeldLock]:
    with lock(layout, "image-1", LEASE, nobody) as held:
        yield held


@pytest.fixture
def store(layout: Layout, held: HeldLock) -> Store:
    return Store(layout, held)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_was_added_is_found_read_only_under_its_digest(layout: Layout, store: Store) -> None:
    protocol: ImageStore = store
    sha256, path = put_image(store, "a")
    assert path == layout.image(sha256) == protocol.find(sha256)
    assert path.read_bytes() == image_bytes("a")
    assert path.stat().st_mode & 0o777 == 0o444
    assert [(image.sha256, image.size, image.path) for image in entries(layout)] == [
        (sha256, path.stat().st_size, path)
    ]


def test_what_was_not_added_is_not_found(layout: Layout, store: Store) -> None:
    assert store.find(ABSENT) is None
    assert entries(layout) == ()
    assert not layout.images.exists()


def test_adding_twice_keeps_the_first_and_takes_the_second_away(store: Store) -> None:
    sha256, path = put_image(store, "a")
    before = file_state(path)
    with store.incoming() as incoming:
        incoming.write_bytes(image_bytes("a"))
        assert store.add(incoming, sha256) == path
        assert not incoming.exists()
    assert file_state(path) == before


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o666, 0o444])
def test_modes_lose_what_writes_and_runs(store: Store, mode: int) -> None:
    with store.incoming() as incoming:
        incoming.write_bytes(b"x")
        incoming.chmod(mode)
        path = store.add(incoming, digest(b"x"))
    assert path.stat().st_mode & 0o777 == mode & 0o444


def test_a_hard_link_to_the_users_file_leaves_that_file_as_it_is(tmp_path: Path, store: Store) -> None:
    mine = tmp_path / "mine.sif"
    mine.write_bytes(b"x")
    mine.chmod(0o440)
    before = mine.stat()
    with store.incoming() as incoming:
        incoming.hardlink_to(mine)
        path = store.add(incoming, digest(b"x"))
    assert path.samefile(mine)
    assert (mine.stat().st_mode, mine.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_what_does_not_arrive_leaves_nothing(layout: Layout, store: Store) -> None:
    before = names(layout)
    with pytest.raises(ConnectionError), store.incoming() as incoming:
        incoming.write_bytes(b"half")
        raise ConnectionError
    with pytest.raises(ConnectionError), store.workspace() as workspace:
        (workspace / "cache").mkdir()
        (workspace / "cache" / "blob").write_bytes(b"x")
        (workspace / "cache").chmod(0)
        raise ConnectionError
    assert names(layout) == before


def test_every_incoming_and_workspace_is_another(store: Store) -> None:
    with store.incoming() as one, store.incoming() as two, store.workspace() as three, store.workspace() as four:
        assert len({one, two, three, four}) == 4
        assert three.is_dir()
        assert not one.exists()


def test_a_truncated_image_is_not_found_and_is_replaced(store: Store) -> None:
    sha256, path = put_image(store, "a")
    path.unlink()
    path.write_bytes(b"half")
    assert store.find(sha256) is None
    assert put_image(store, "a") == (sha256, path)
    assert path.read_bytes() == image_bytes("a")


def rot(path: Path) -> None:
    """Its last byte is another."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    path.chmod(0o444)


def test_a_damaged_image_of_the_right_size_is_replaced_by_a_good_one(layout: Layout, store: Store) -> None:
    sha256, path = put_image(store, "a")
    record = path.with_suffix(".json").read_bytes()
    rot(path)
    assert store.find(sha256) == path, "it is not read to be found"
    assert store.damaged(sha256)
    assert store.find(sha256) is None, "now that it is known"
    with path.open("rb") as running, store.incoming() as incoming:
        incoming.write_bytes(image_bytes("a"))
        assert store.add(incoming, sha256) == path
        assert not incoming.exists()
        assert running.read() != image_bytes("a"), "who runs it keeps what he has"
    assert path.read_bytes() == image_bytes("a")
    assert path.stat().st_mode & 0o777 == 0o444
    assert path.with_suffix(".json").read_bytes() == record
    assert not store.damaged(sha256)
    assert store.find(sha256) == path
    assert sorted(layout.images.iterdir()) == sorted((path, path.with_suffix(".json")))


def test_what_had_given_a_damaged_image_is_not_forgotten(layout: Layout, store: Store) -> None:
    data, origin = b"x" * 1000, ImageOrigin("", "sha256:m", (), "zstd:3", (("libzstd", "1"),))
    for source in ("docker://one/x", "docker://two/x"):
        with store.incoming() as incoming:
            incoming.write_bytes(data)
            path = store.add(incoming, digest(data), origin, source)
        rot(path)
    assert [given.source for given in entries(layout)[0].given] == ["docker://one/x", "docker://two/x"]


def test_a_hard_link_to_what_is_stored_changes_nothing(tmp_path: Path, store: Store) -> None:
    mine = tmp_path / "mine.sif"
    mine.write_bytes(b"x")
    mine.chmod(0o444)
    for _ in range(2):
        with store.incoming() as incoming:
            incoming.hardlink_to(mine)
            path = store.add(incoming, digest(b"x"))
    assert path.samefile(mine)
    assert mine.stat().st_nlink == 2


def test_a_store_that_fetches_again_offers_nothing_and_keeps_what_is_good(layout: Layout, store: Store) -> None:
    sha256, path = put_image(store, "a")
    before = file_state(path)
    again = store.refetching()
    assert again.find(sha256) is None
    assert pinned(layout) == {sha256}
    with again.incoming() as incoming:
        incoming.write_bytes(image_bytes("a"))
        assert again.add(incoming, sha256) == path
    assert file_state(path) == before


def test_nothing_is_no_damage(store: Store) -> None:
    sha256, path = put_image(store, "a")
    assert not store.damaged(ABSENT)
    assert not store.damaged(sha256)
    path.unlink()
    assert not store.damaged(sha256)
    path.mkdir()
    assert store.damaged(sha256)


def test_a_file_of_somebody_else_is_not_replaced(layout: Layout, store: Store) -> None:
    sha256 = digest(b"x")
    layout.images.mkdir(parents=True)
    layout.image(sha256).write_bytes(b"something else")
    before = disk_state(layout.images)
    assert store.find(sha256) is None
    with (
        pytest.raises(InstallError, match="has no valid receipt of sifmod"),
        store.incoming() as incoming,
    ):
        incoming.write_bytes(b"x")
        store.add(incoming, sha256)
    assert disk_state(layout.images) == before


def test_the_right_image_put_there_by_hand_is_taken_in(layout: Layout, store: Store) -> None:
    layout.images.mkdir(parents=True)
    layout.image(digest(b"x")).write_bytes(b"x")
    with store.incoming() as incoming:
        incoming.write_bytes(b"x")
        path = store.add(incoming, digest(b"x"))
    assert store.find(digest(b"x")) == path
    assert [image.sha256 for image in entries(layout)] == [digest(b"x")]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"sha256": 1}'])
def test_an_image_whose_receipt_cannot_be_read_is_nobodys(layout: Layout, store: Store, text: str) -> None:
    sha256, path = put_image(store, "a")
    path.with_suffix(".json").unlink()
    path.with_suffix(".json").write_text(text)
    assert entries(layout) == ()
    assert store.find(sha256) is None
    assert path.exists()


def test_an_image_in_use_is_not_discarded(layout: Layout, store: Store) -> None:
    """Nor away for a moment, which the change of its inode would tell."""
    sha256, path = put_image(store, "a")
    before = disk_state(layout.images)
    changed = path.stat().st_ctime_ns
    assert pinned(layout) == {sha256}
    with lock(layout, GC, LEASE, nobody) as other:
        assert not discard(layout, entries(layout)[0], other)
    assert disk_state(layout.images) == before
    assert path.stat().st_ctime_ns == changed


def test_pins_are_read_while_other_commands_end(layout: Layout, store: Store) -> None:
    """Their directories go away between the look at `.staging` and the look into them."""
    sha256, _ = put_image(store, "a")
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            for number in range(40):
                (layout.staging / f"image-{number}.1.2").mkdir()
            for number in range(40):
                (layout.staging / f"image-{number}.1.2").rmdir()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert {pinned(layout) for _ in range(400)} == {frozenset({sha256})}
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("bring", ["find", "add"])
def test_who_needs_an_image_waits_for_the_gc_that_may_take_it(layout: Layout, held: HeldLock, bring: str) -> None:
    sha256, path = put_image(Store(layout, held), "a")
    gc = Other(layout.prefix, LEASE, name=GC).take()
    waited: list[str] = []

    def end(who: str) -> None:
        if not waited:
            path.with_suffix(".json").unlink()
            path.unlink()
            gc.release()
        waited.append(who)

    store = Store(layout, held, end)
    if bring == "find":
        assert store.find(sha256) is None
    else:
        with store.incoming() as incoming:
            incoming.write_bytes(image_bytes("a"))
            assert store.add(incoming, sha256) == path
        assert path.exists()
    assert waited


def test_an_image_that_a_generation_links_to_is_not_discarded(layout: Layout) -> None:
    install(layout, "a")
    before = disk_state(layout.images)
    with lock(layout, "image-2", LEASE, nobody) as other:
        assert not discard(layout, entries(layout)[0], other)
    assert disk_state(layout.images) == before


def test_an_image_that_nobody_uses_is_discarded(layout: Layout) -> None:
    with lock(layout, str(MODULE), LEASE, nobody) as held:
        put_image(Store(layout, held), "a")
    (image,) = entries(layout)
    assert json.loads(image.path.with_suffix(".json").read_text())["size"] == len(image_bytes("a"))
    with lock(layout, "image-2", LEASE, nobody) as other:
        assert discard(layout, image, other)
        assert not discard(layout, image, other)
    assert entries(layout) == ()
    assert list(layout.images.iterdir()) == []


def test_looking_for_an_image_keeps_it_from_being_discarded(layout: Layout) -> None:
    with lock(layout, str(MODULE), LEASE, nobody) as held:
        sha256, _ = put_image(Store(layout, held), "a")
    with lock(layout, "image-1", LEASE, nobody) as mine, lock(layout, "image-2", LEASE, nobody) as other:
        assert Store(layout, mine).find(sha256) is not None
        assert not discard(layout, entries(layout)[0], other)
    with lock(layout, "image-2", LEASE, nobody) as other:
        assert discard(layout, entries(layout)[0], other)


@pytest.mark.parametrize("bring", ["find", "add"])
def test_what_a_run_finds_or_adds_stays_as_long_as_the_run(layout: Layout, bring: str) -> None:
    with lock(layout, str(MODULE), LEASE, nobody) as held:
        sha256, path = put_image(Store(layout, held), "a")
    with lock(layout, "image-1", LEASE, nobody) as mine:
        store = Store(layout, mine)
        if bring == "find":
            assert store.find(sha256) == path
        else:
            with store.incoming() as incoming:
                incoming.write_bytes(image_bytes("a"))
                assert store.add(incoming, sha256) == path
        assert pinned(layout) == {sha256}
    assert pinned(layout) == set()


@pytest.mark.parametrize("use", ["pin", "link", "nothing"])
def test_what_comes_into_use_while_it_is_discarded_stays(layout: Layout, use: str) -> None:
    """Between the first look and the second: the moment of the rename."""
    with lock(layout, str(MODULE), LEASE, nobody) as held:
        _, path = put_image(Store(layout, held), "a")
    root = Path(install(layout, "b").root)
    (image,) = (image for image in entries(layout) if image.path == path)
    before = disk_state(layout.images)

    def used(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and arguments[0] == path.name:
            if use == "pin":
                (layout.staging / "A@1.1.token").mkdir()
                (layout.staging / "A@1.1.token" / f"{path.stem}.pin").touch()
            elif use == "link":
                (root / "late.sif").symlink_to(path)

    def collect() -> None:
        sys.addaudithook(used)
        with lock(layout, GC, LEASE, nobody) as other:
            sys.exit(0 if discard(layout, image, other) else 9)

    process = get_context("fork").Process(target=collect)
    process.start()
    process.join()
    assert process.exitcode == (0 if use == "nothing" else 9)
    assert path.exists() == (use != "nothing")
    assert (disk_state(layout.images) == before) == (use != "nothing")


def test_a_full_disk_is_an_error_and_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        layout = Layout(disk / "prefix")
        with lock(layout, "image-1", LEASE, nobody) as held:
            _, path = put_image(Store(layout, held), "a")
        before = disk_state(layout.images)
        with lock(layout, "image-1", LEASE, nobody) as held, Store(layout, held).incoming() as incoming:
            os.link(path, incoming)  # an image that takes no space; its receipt does
            with filled(disk / "ballast", 0), pytest.raises(InstallError, match="No space left on device") as error:
                Store(layout, held).add(incoming, ABSENT)
            assert "sifmod gc" in error.value.hint
            incoming.unlink()
        assert disk_state(layout.images) == before


def test_a_full_disk_leaves_a_damaged_image_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        layout = Layout(disk / "prefix")
        with lock(layout, "image-1", LEASE, nobody) as held:
            sha256, path = put_image(Store(layout, held), "a")
        rot(path)
        before = disk_state(layout.images)
        with lock(layout, "image-1", LEASE, nobody) as held, Store(layout, held).incoming() as incoming:
            incoming.write_bytes(image_bytes("a"))
            Store(layout, held).find(sha256)
            with filled(disk / "ballast", 0), pytest.raises(InstallError, match="No space left on device"):
                Store(layout, held).add(incoming, sha256)
        assert disk_state(layout.images) == before
