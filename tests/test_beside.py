"""A store of one file: what is incomplete lies beside the target, and what is there is replaced only when told."""

import fcntl
import os
from pathlib import Path

import pytest

from sifmod.errors import FetchError, PermissionsError
from sifmod.image.beside import Beside
from support.disk_state import disk_state
from support.identity import call_as
from support.user import OrdinaryUser


@pytest.fixture
def place(shared_tmp: Path) -> Path:
    """An empty directory."""
    return shared_tmp


KEY = "0123456789abcdef"


def put(store: Beside, content: bytes) -> Path:
    with store.incoming() as incoming:
        incoming.write_bytes(content)
        return store.add(incoming, "0" * 64)


def test_a_complete_file_takes_its_place_alone(place: Path) -> None:
    target = place / "x.sif"
    assert put(Beside(target), b"image") == target
    assert target.read_bytes() == b"image"
    assert os.listdir(place) == ["x.sif"]


def test_a_file_that_is_there_stays(place: Path) -> None:
    target = place / "x.sif"
    target.write_bytes(b"mine")
    before = disk_state(place)
    with pytest.raises(FetchError, match="exists already") as caught:
        Beside(target)
    assert "--force" in caught.value.hint
    assert disk_state(place) == before


def test_a_file_that_comes_meanwhile_stays(place: Path) -> None:
    target = place / "x.sif"
    store = Beside(target)
    target.write_bytes(b"somebody was faster")
    before = disk_state(place)
    with pytest.raises(FetchError, match="exists already"):
        put(store, b"image")
    assert disk_state(place) == before


def test_with_force_it_is_replaced(place: Path) -> None:
    target = place / "x.sif"
    target.write_bytes(b"old")
    put(Beside(target, replace=True), b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(place) == ["x.sif"]


def test_a_directory_is_no_target(place: Path) -> None:
    with pytest.raises(FetchError, match="is a directory"):
        Beside(place, replace=True)


def test_what_was_received_stays_until_it_is_finished(place: Path) -> None:
    store = Beside(place / "x.sif")
    with pytest.raises(RuntimeError), store.partial(KEY) as partial:
        (partial / "blob").write_bytes(b"half")
        raise RuntimeError
    assert [path.name for path in place.rglob("blob")] == ["blob"]
    with store.partial(KEY) as again:
        assert (again / "blob").read_bytes() == b"half"
        store.finished(again)
    assert list(place.iterdir()) == []


def test_one_at_a_time(place: Path) -> None:
    first, second = Beside(place / "x.sif"), Beside(place / "x.sif")
    with first.incoming(), pytest.raises(FetchError, match="another sifmod is fetching"), second.incoming():
        pass
    assert list(place.iterdir()) == []


def test_a_lock_that_somebody_else_left_is_none(place: Path) -> None:
    store = Beside(place / "x.sif")
    with store.partial(KEY) as partial:
        descriptor = os.open(partial.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.close(descriptor)
    with store.partial(KEY):
        pass


def test_the_workspace_goes(place: Path) -> None:
    with Beside(place / "x.sif").workspace() as workspace:
        (workspace / "inner").mkdir()
    assert list(place.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told(place: Path, ordinary_user: OrdinaryUser) -> None:
    place.chmod(0o555)
    before = disk_state(place)

    def fetch() -> str:
        try:
            Beside(place / "x.sif")
        except PermissionsError as error:
            return error.message
        return "it could be written"

    assert call_as(ordinary_user.user, fetch) == f"cannot write into {place}"
    assert disk_state(place) == before


def test_a_directory_that_is_not_there_is_told(place: Path) -> None:
    with pytest.raises(FetchError, match=f"there is no directory {place}/a"):
        Beside(place / "a" / "x.sif")
    assert list(place.iterdir()) == []


def test_what_a_killed_run_had_begun_goes(place: Path) -> None:
    target = place / "x.sif"
    hidden = place / ".x.sif.fetching"
    (hidden / KEY).mkdir(parents=True)
    (hidden / KEY / "blob").write_bytes(b"half")
    (hidden / "incoming-1234").write_bytes(bytes(1000))
    (hidden / "workspace-1234" / "inner").mkdir(parents=True)
    with Beside(target).incoming():
        assert {path.name for path in hidden.iterdir()} == {KEY}
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["blob"]
