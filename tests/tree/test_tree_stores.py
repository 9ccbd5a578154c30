"""Where images come in: the store's receipts, partials, and one file beside its target."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sifmod.errors import FetchError, InstallError, LockError, PermissionsError
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock, lock
from sifmod.tree.partial import Partial, discard_partial, lock_name, open_partial, own_key, partials
from sifmod.tree.removal import remove_tree
from sifmod.tree.store import Store, discard, pinned
from sifmod.tree.stored_image import entries
from sifmod.tree.target_store import TargetStore, target_store
from support.tree import LEASE, image_bytes, nobody, put_image, tree_of
from support.user import ONLY_ROOT

KEY = "0123abcd"
ORIGIN = ImageOrigin("sha256:i", "sha256:m", ("sha256:l",), "zstd:3", (("libzstd", "1"),))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory."""
    path = tmp_path / "place"
    path.mkdir()
    return path


@contextmanager
def held(layout: Layout) -> Iterator[HeldLock]:
    with lock(layout, "image-1", LEASE, nobody) as lock_held:
        yield lock_held


def test_the_stores_receipt_says_what_is_known(place: Path) -> None:
    layout = Layout(place)
    with held(layout) as run:
        store = Store(layout, run)
        sha256, path = put_image(store, "a")
        record = path.with_suffix(".json")
        plain = {"sha256": sha256, "size": len(image_bytes("a"))}
        assert json.loads(record.read_text()) == plain
        os.utime(record, (5, 5))
        store.gave(path, NO_ORIGIN, "docker://x")
        assert json.loads(record.read_text()) == plain
        store.gave(path, ORIGIN, "docker://x")
        given = {"source": "docker://x", "index": "sha256:i", "manifest": "sha256:m"}
        noted = plain | {"origin": json.loads(json.dumps(ORIGIN.as_data())), "given": [given]}
        assert json.loads(record.read_text()) == noted
        assert record.stat().st_mtime == 5
        store.gave(path, ORIGIN, "docker://y")
        assert json.loads(record.read_text())["given"] == [given, given | {"source": "docker://y"}]
        store.gave(layout.image("b" * 64), ORIGIN, "docker://x")
        assert [image.sha256 for image in entries(layout)] == [sha256]


def test_what_an_image_that_is_there_was_made_from_is_noted(place: Path) -> None:
    """It arrives again from another source; that is added, and the image itself stays."""
    layout = Layout(place)
    with held(layout) as run:
        store = Store(layout, run)
        sha256, path = put_image(store, "a")
        before = path.stat()
        with store.incoming() as incoming:
            incoming.write_bytes(image_bytes("a"))
            assert store.add(incoming, sha256, ORIGIN, "docker://x") == path
            assert not incoming.exists()
        assert path.stat() == before
        assert store.find_made("docker://x", "sha256:i") == ((path, ORIGIN),)
        assert pinned(layout) == {sha256}


def test_a_stored_image_is_on_the_disk_before_its_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(place / "prefix")
    with held(layout) as run:
        store = Store(layout, run)
        done: list[str] = []
        fsync, rename = os.fsync, os.rename

        def syncing(descriptor: int) -> None:
            done.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix)
            fsync(descriptor)

        def renaming(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            done.append("name " + Path(target).suffix)
            rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        opened = len(os.listdir("/proc/self/fd"))
        with store.incoming() as incoming:
            incoming.write_bytes(image_bytes("a"))
            monkeypatch.setattr(os, "fsync", syncing)
            monkeypatch.setattr(os, "rename", renaming)
            store.add(incoming, "a" * 64)
            monkeypatch.undo()
        assert len(os.listdir("/proc/self/fd")) == opened
    image = [step for step in done if step.endswith((".incoming", ".record", ".json", ".sif"))]
    assert image == ["sync .incoming", "sync .record", "name .json", "name .sif"]
    assert done[-1] == "sync "


def test_an_image_whose_receipt_went_meanwhile(place: Path) -> None:
    """It was the last thing of another gc; that this one took the image away counts."""
    layout = Layout(place)
    with held(layout) as run:
        _, path = put_image(Store(layout, run), "a")
    (image,) = entries(layout)
    path.with_suffix(".json").unlink()
    with held(layout) as run:
        assert discard(layout, image, run)
        assert not path.exists()
        assert not discard(layout, image, run)


# partials


def test_partials_are_told_with_their_size_and_age(place: Path) -> None:
    layout = Layout(place)
    assert partials(layout) == ()
    for key, when in (("b", 5), ("a", 9)):
        path = layout.partials / key
        (path / "inner").mkdir(parents=True)
        (path / "blob").write_bytes(b"x" * 10_000)
        for each, time in ((path / "inner", when - 1), (path / "blob", when), (path, when - 2)):
            os.utime(each, (time, time))
    (layout.partials / "gone").symlink_to("nothing")
    found = [partial for partial in partials(layout) if partial.key != "gone"]
    assert len(found) + 1 == len(partials(layout))  # a link is named too, which gc keeps
    assert [(partial.key, partial.path, partial.changed) for partial in found] == [
        (key, layout.partials / key, when) for key, when in (("a", 9), ("b", 5))
    ]
    blocks = sum(path.stat().st_blocks for path in (found[0].path, *found[0].path.rglob("*")))
    assert found[0].size == 512 * blocks >= 10_000
    assert lock_name("a/b") == "partial-a@b"


def test_a_partial_is_discarded_only_as_it_was_seen(place: Path) -> None:
    layout = Layout(place)
    (layout.partials / KEY).mkdir(parents=True)
    (layout.partials / KEY / "blob").write_text("x")
    (seen,) = partials(layout)
    with held(layout) as run:
        assert not discard_partial(layout, seen._replace(changed=seen.changed - 1), run)
        assert (layout.partials / KEY / "blob").exists()
        assert not discard_partial(layout, Partial("x", layout.partials / "x", 1, 0.0), run)
        assert discard_partial(layout, seen, run)
        assert not layout.partials.exists()
        assert not discard_partial(layout, seen, run)


@pytest.mark.parametrize(
    ("top", "umask", "mode"),
    [(0o755, 0, 0o755), (0o2770, 0o022, 0o750), pytest.param(0o500, 0, 0o700, marks=ONLY_ROOT), (0o755, 0o077, 0o700)],
)
def test_a_partial_is_as_open_as_its_top(top: int, umask: int, mode: int, place: Path) -> None:
    place.chmod(top)
    before = os.umask(umask)
    try:
        assert open_partial(place / "partial", place)
        assert open_partial(place / "partial", place)
    finally:
        os.umask(before)
        place.chmod(0o700)
    assert (place / "partial").stat().st_mode & 0o777 == mode


def closed(monkeypatch: pytest.MonkeyPatch, *names: str, to: int = 7) -> None:
    """Files of these names are closed to this user, as none is to root: for reading (4), writing (2), entering (1)."""
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: real(path, mode) and not (Path(path).name in names and mode & to)
    )


@pytest.mark.parametrize("to", [4, 2])
def test_what_cannot_be_opened_in_a_partial_is_removed(to: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "partial"
    path.mkdir()
    for name in ("mine", "another"):
        (path / name).touch()
    closed(monkeypatch, "another", to=to)
    assert open_partial(path, place)
    assert os.listdir(path) == ["mine"]
    monkeypatch.undo()
    closed(monkeypatch, "mine")
    monkeypatch.setenv("PATH", "")  # without a program that has namespaces, where an ordinary user may remove it
    monkeypatch.setattr(os, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError()))
    assert not open_partial(path, place)


@pytest.mark.parametrize("to", [4, 2, 1])
def test_a_partial_that_cannot_be_used_is_worked_around(to: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(place / "prefix")
    (layout.partials / KEY).mkdir(parents=True)
    (layout.partials / KEY / "theirs").touch()
    own = f"{KEY}-{os.geteuid()}"
    assert own_key(KEY) == own
    with held(layout) as run:
        closed(monkeypatch, KEY, to=to)
        with Store(layout, run).partial(KEY) as path:
            assert path == layout.partials / own
            assert path.is_dir()
        assert os.listdir(layout.partials) == [KEY]
        closed(monkeypatch, KEY, own, to=to)
        with pytest.raises(PermissionsError) as caught, Store(layout, run).partial(KEY):
            pass
        assert caught.value.message == f"cannot write in {layout.partials / own}"
    monkeypatch.undo()
    assert os.listdir(layout.partials / KEY) == ["theirs"]


def test_a_partial_is_under_a_lock_of_its_own(place: Path) -> None:
    layout = Layout(place)
    with held(layout) as run, Store(layout, run).partial(KEY) as path:
        assert path == layout.partials / KEY
        assert len(list(layout.staging.glob(f"partial-{KEY}.1.*"))) == 1
        (path / "blob").touch()
    assert os.listdir(path) == ["blob"]


def test_what_failed_because_the_lock_was_lost_says_so(place: Path) -> None:
    layout = Layout(place)
    with held(layout) as run:
        store = Store(layout, run)
        with pytest.raises(ZeroDivisionError), store.workspace() as workspace:
            assert workspace.is_dir()
            _ = 1 / 0
        assert not workspace.exists()
        with store.incoming() as incoming:
            incoming.touch()
        assert not incoming.exists()
        with pytest.raises(LockError), store.incoming():
            remove_tree(run.directory, place)
            _ = 1 / 0
        with pytest.raises(LockError), store.workspace():
            pass


# one file beside its target


def fetch(target: Path, content: bytes = b"image", *, replace: bool = False) -> Path:
    with target_store(target, tree_of(Layout(target.parent)), replace=replace) as store, store.incoming() as incoming:
        incoming.write_bytes(content)
        return store.add(incoming, "0" * 64)


def test_a_store_of_one_file_keeps_nothing(place: Path) -> None:
    target = place / "x.sif"
    target.write_bytes(b"there")
    with target_store(target, tree_of(Layout(target.parent)), replace=True) as store:
        assert isinstance(store, TargetStore)
        assert store.find("0" * 64) is None
        assert store.find_made("docker://x", "sha256:i") == ()
        store.gave(target, ORIGIN, "docker://x")
        assert sorted(os.listdir(place)) == [".x.sif.fetching", "x.sif"]
        with store.partial(KEY) as path:
            assert path == place / ".x.sif.fetching" / KEY
            (path / "blob").touch()
        assert os.listdir(path) == ["blob"]
        store.finished(path)
        with store.partial(KEY) as path:
            pass
        assert not path.exists()
    assert os.listdir(place) == ["x.sif"]


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        ("directory", "{} is a directory", "name the file: -o DIRECTORY/NAME"),
        ("pipe", "{} is a device, a pipe or a socket, which a file would replace", "name a file"),
        ("none", "there is no directory {}", "create it first, or choose another"),
        ("file", "{} exists already; nothing was written", "give --force to replace it"),
        ("link", "{} exists already; nothing was written", "give --force to replace it"),
    ],
)
def test_what_cannot_be_a_target(kind: str, message: str, hint: str, place: Path) -> None:
    target = place / "x.sif"
    if kind == "directory":
        target.mkdir()
    elif kind == "pipe":
        os.mkfifo(target)
    elif kind == "file":
        target.touch()
    elif kind == "link":
        target.symlink_to("nothing")
    before = sorted(os.listdir(place))
    with pytest.raises(FetchError) as caught:
        fetch(target / "x" if kind == "none" else target, replace=kind in ("directory", "pipe"))
    assert (caught.value.message, caught.value.hint) == (message.format(target), hint)
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("to", [2, 1])
def test_a_target_that_cannot_be_written(to: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(monkeypatch, place.name, to=to)
    with pytest.raises(PermissionsError) as caught:
        fetch(place / "x.sif")
    assert caught.value.message == f"cannot write into {place}"
    assert os.listdir(place) == []


@pytest.mark.parametrize("meanwhile", [False, True])
def test_without_hard_links_the_file_is_renamed(meanwhile: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = place / "x.sif"

    def refused(_source: Path, _target: Path, **_: object) -> None:
        if meanwhile:
            target.write_bytes(b"faster")
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    if meanwhile:
        with pytest.raises(FetchError, match="exists already"):
            fetch(target)
    else:
        assert fetch(target) == target
    assert target.read_bytes() == (b"faster" if meanwhile else b"image")
    assert os.listdir(place) == ["x.sif"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_fetched_file_is_on_the_disk_before_its_name(
    replace: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = place / "x.sif"
    if replace:
        target.write_bytes(b"old")
    synced: list[tuple[str, bytes]] = []

    def noting(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if name.suffix == ".incoming" or name == place:
            synced.append((name.suffix, target.read_bytes() if target.exists() else b""))

    monkeypatch.setattr(os, "fsync", noting)
    fetch(target, replace=replace)
    assert synced == [(".incoming", b"old" if replace else b""), ("", b"image")]
    assert target.stat().st_nlink == 1


def test_a_failure_to_put_it_in_place_is_explained(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def broken(source: Path, target: Path, **named: int) -> None:
        if Path(target).name == "x.sif":
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target, **named)

    monkeypatch.setattr(os, "link", broken)
    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(InstallError, match=r"cannot write .*x\.sif: Input/output error"):
        fetch(place / "x.sif")
    assert os.listdir(place) == []


def test_a_partial_of_another_user_beside_the_target_is_worked_around(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = place / ".x.sif.fetching" / KEY
    theirs.mkdir(parents=True)
    (theirs / "blob").touch()
    closed(monkeypatch, KEY)
    with target_store(place / "x.sif", tree_of(Layout(place))) as store, store.partial(KEY) as path:
        assert path == theirs.with_name(own_key(KEY))
        assert path.is_dir()
    assert not path.exists()
    assert os.listdir(theirs) == ["blob"]
