"""A SIF on this machine: copied, hard-linked or referenced; the user's own file stays as it is, whatever happens."""

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from sifmod.errors import FetchError, InstallError
from sifmod.image.disk import NoSpaceError
from sifmod.system import size_text
from support.command import run
from support.disk_state import disk_state, file_state
from support.fetching import Prefix, plan
from support.identity import call_as, call_on_small_disk
from support.images import Images
from support.oci import Entry
from support.user import OrdinaryUser


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture(scope="session")
def big_sif(images: Images) -> Path:
    """About 6 MB, so that it is copied in several steps."""
    return images.tiny("big", entries=(Entry("opt/noise", random.Random(1).randbytes(5_000_000), mode=0o644),))


def own_copy(original: Path, directory: Path, mode: int = 0o640) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "my image.sif"
    path.write_bytes(original.read_bytes())
    path.chmod(mode)
    os.utime(path, ns=(10**18, 10**18 + 7))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_path_is_copied_into_the_store(images: Images, prefix: Prefix, tmp_path: Path) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine")
    before = file_state(mine)
    told: list[tuple[str, int, int | None]] = []
    artifact = prefix.fetch(plan(mine), lambda *what: told.append(what))
    assert artifact.path == prefix.layout.image(digest(mine))
    assert artifact.path.read_bytes() == mine.read_bytes()
    assert (artifact.sha256, artifact.size, artifact.arch) == (digest(mine), mine.stat().st_size, "amd64")
    assert artifact.source == str(mine)
    assert not artifact.path.stat().st_mode & 0o222
    assert artifact.path.stat().st_ino != mine.stat().st_ino
    assert file_state(mine) == before
    assert told[-1] == ("copying my image.sif", mine.stat().st_size, mine.stat().st_size)


@pytest.mark.parametrize("spelling", ["file", "symlink", "relative"])
def test_other_ways_to_say_a_path(
    images: Images, prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine")
    link = tmp_path / "link.sif"
    link.symlink_to(mine)
    monkeypatch.chdir(mine.parent)
    sources = {"file": f"file://{str(mine).replace(' ', '%20')}", "symlink": str(link), "relative": f"./{mine.name}"}
    before = disk_state(mine.parent, link)
    assert prefix.fetch(plan(sources[spelling])).sha256 == digest(mine)
    assert disk_state(mine.parent, link) == before


def test_a_bare_name_is_looked_up_in_the_image_dirs_in_order(images: Images, prefix: Prefix, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    first.mkdir()
    wanted, other = own_copy(images.tiny_sif, second), own_copy(images.tiny("other"), third)
    artifact = prefix.fetch(plan(wanted.name, image_dirs=(first, second, third)))
    assert artifact.sha256 == digest(wanted) != digest(other)
    assert artifact.source == wanted.name


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(prefix: Prefix, tmp_path: Path) -> None:
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan("x.sif", image_dirs=(tmp_path / "a", tmp_path / "b")))
    assert f"x.sif: no file with this name; searched in: {tmp_path / 'a'}, {tmp_path / 'b'}" in caught.value.message
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan("x.sif"))
    assert "no image_dirs are set" in caught.value.message
    assert prefix.state() == before


def test_what_is_no_regular_file_is_refused(prefix: Prefix, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.sif"
    os.mkfifo(pipe)
    before = prefix.state()
    expected = {pipe: "is not a regular file", tmp_path: "is a directory", tmp_path / "no.sif": "cannot read"}
    for path, message in expected.items():
        with pytest.raises(FetchError) as caught:
            prefix.fetch(plan(path))
        assert message in caught.value.message
    assert prefix.state() == before


def test_a_file_that_may_not_be_read_is_told(images: Images, ordinary_user: OrdinaryUser, shared_tmp: Path) -> None:
    mine = own_copy(images.tiny_sif, shared_tmp / "mine", mode=0)

    def fetch() -> str:
        prefix = Prefix(ordinary_user.home / "prefix")
        before = prefix.state(), mine.stat()
        with pytest.raises(FetchError) as caught:
            prefix.fetch(plan(mine))
        assert (prefix.state(), mine.stat()) == before
        return caught.value.message

    assert f"cannot read {mine}: Permission denied" in call_as(ordinary_user.user, fetch)


def test_a_file_for_another_architecture_is_refused_before_it_is_copied(
    images: Images, prefix: Prefix, tmp_path: Path
) -> None:
    mine = own_copy(images.foreign("arm64"), tmp_path / "mine")
    before, told = prefix.state(mine.parent), list[object]()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(mine), lambda *what: told.append(what))
    assert "expected amd64, its header says arm64" in caught.value.message
    assert prefix.state(mine.parent) == before
    assert told == []


def test_a_hard_link_shares_the_inode_and_changes_only_its_number_of_names(
    images: Images, prefix: Prefix, tmp_path: Path
) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=0o444)
    before = mine.stat()
    artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
    after = mine.stat()
    assert artifact.path == prefix.layout.image(digest(mine))
    assert os.path.samefile(artifact.path, mine)
    assert artifact.notes == ()
    assert after.st_nlink == before.st_nlink + 1
    unchanged = ("st_mode", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ino")
    assert [getattr(after, name) for name in unchanged] == [getattr(before, name) for name in unchanged]


@pytest.mark.parametrize("mode", [0o644, 0o400, 0o555, 0o440])
def test_a_hard_link_that_would_change_the_mode_becomes_a_copy(
    images: Images, prefix: Prefix, tmp_path: Path, mode: int
) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=mode)
    before = file_state(mine)
    artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
    (note,) = artifact.notes
    assert note.startswith(f"{mine} was copied, not hard-linked: its mode is {mode:04o}")
    assert artifact.path.read_bytes() == mine.read_bytes()
    assert not artifact.path.stat().st_mode & 0o222
    assert file_state(mine) == before


def test_a_hard_link_to_the_file_of_somebody_else_becomes_a_copy(
    images: Images, prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=0o444)
    if os.geteuid() == 0:
        os.chown(mine, 12345, -1)
    else:  # who cannot give a file away, but can take himself for somebody else
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    before = file_state(mine)
    artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
    assert f"it belongs to user {mine.stat().st_uid}" in artifact.notes[0]
    assert not os.path.samefile(artifact.path, mine)
    assert file_state(mine) == before


@pytest.mark.usefixtures("needs_root")
def test_a_file_that_a_member_of_its_group_may_have_open_for_writing_is_copied(
    images: Images, prefix: Prefix, tmp_path: Path
) -> None:
    """Its mode is 0444 by now; who opened it before can write into the published image for ever."""
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=0o664)
    os.chown(mine.parent, -1, 100)
    mine.parent.chmod(0o2775)
    with mine.open("r+b") as member:
        mine.chmod(0o444)
        artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
        member.write(b"#!/bin/evil")
    assert artifact.path.read_bytes() == images.tiny_sif.read_bytes()
    assert artifact.notes[0].endswith("others can write to its directory, and may still have it open for writing")


def test_a_hard_link_to_what_has_taken_its_place_becomes_a_copy(
    images: Images, prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owner and mode were another file's; of this one the owner writes into the store's image later."""
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=0o444)
    other = own_copy(images.tiny_sif, tmp_path / "other", mode=0o644)
    link = os.link

    def linked(source: Path, target: Path, **options: Any) -> None:
        if source == mine and other.exists():
            other.replace(mine)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", linked)
    artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
    assert not other.exists()
    assert artifact.notes == (f"{mine} was copied, not hard-linked: it was replaced meanwhile",)
    assert not os.path.samefile(artifact.path, mine)
    assert artifact.path.stat().st_mode & 0o777 == 0o444
    assert artifact.path.read_bytes() == images.tiny_sif.read_bytes()


def test_a_hard_link_to_another_file_system_becomes_a_copy(images: Images, prefix: Prefix, tmp_path: Path) -> None:
    disk = tmp_path / "disk"

    def fetch() -> tuple[str, ...]:
        mine = own_copy(images.tiny_sif, disk / "mine", mode=0o444)
        before = file_state(mine)
        artifact = prefix.fetch(plan(mine, link="hardlink", sha256=digest(mine)))
        assert artifact.path.read_bytes() == mine.read_bytes()
        assert file_state(mine) == before
        return artifact.notes

    notes = call_on_small_disk(disk, 8 << 20, fetch)
    assert notes == (f"{disk / 'mine' / 'my image.sif'} was copied, not hard-linked: Invalid cross-device link",)


def test_a_reference_leaves_the_file_where_it_is(images: Images, prefix: Prefix, tmp_path: Path) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine")
    before = prefix.state(mine.parent)
    artifact = prefix.fetch(plan(mine, link="reference"))
    assert artifact.path == mine
    assert (artifact.sha256, artifact.size) == (digest(mine), mine.stat().st_size)
    assert prefix.state(mine.parent) == before


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
def test_a_broken_promise_changes_nothing(images: Images, prefix: Prefix, tmp_path: Path, link: str) -> None:
    mine = own_copy(images.tiny_sif, tmp_path / "mine", mode=0o444)
    before = prefix.state(mine.parent)
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(mine, link=link, sha256="0" * 64))  # type: ignore[arg-type]
    assert f"expected {'0' * 64}\n    got      {digest(mine)}" in caught.value.message
    assert prefix.state(mine.parent) == before


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
def test_a_file_that_changes_meanwhile_is_refused(big_sif: Path, prefix: Prefix, tmp_path: Path, link: str) -> None:
    mine = own_copy(big_sif, tmp_path / "mine", mode=0o444)
    before = prefix.state()

    def grow(what: str, done: int, total: int | None) -> None:
        assert what in ("copying my image.sif", "hashing tiny.sif")
        if done == 1 << 20:
            assert total == big_sif.stat().st_size
            mine.chmod(0o644)
            with mine.open("ab") as file:
                file.write(b"more")
            mine.chmod(0o444)

    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(mine, link=link), grow)  # type: ignore[arg-type]
    assert "was changed while it was read" in caught.value.message
    assert prefix.state() == before
    assert mine.read_bytes() == big_sif.read_bytes() + b"more"


@pytest.mark.parametrize("link", ["copy", "reference"])
def test_a_file_that_is_overwritten_meanwhile_is_refused(
    big_sif: Path, prefix: Prefix, tmp_path: Path, link: str
) -> None:
    """Its size stays, and so does each byte: what is read then may be half of either."""
    mine = own_copy(big_sif, tmp_path / "mine", mode=0o644)
    before = prefix.state()

    def overwrite(_what: str, done: int, _total: int | None) -> None:
        if done == 1 << 20:
            with mine.open("r+b") as file:
                file.write(big_sif.read_bytes())

    with pytest.raises(FetchError, match="was changed while it was read"):
        prefix.fetch(plan(mine, link=link), overwrite)  # type: ignore[arg-type]
    assert prefix.state() == before


def test_no_space_is_told_before_anything_is_written(big_sif: Path, tmp_path: Path) -> None:
    mine = own_copy(big_sif, tmp_path / "mine")

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        before = prefix.state(mine.parent)
        with pytest.raises(NoSpaceError) as caught:
            prefix.fetch(plan(mine))
        assert "not enough space in" in caught.value.message
        assert f"{size_text(big_sif.stat().st_size)} needed, 4." in caught.value.message
        assert "--prefix PATH" in caught.value.hint
        assert prefix.state(mine.parent) == before

    call_on_small_disk(tmp_path / "disk", 4 << 20, fetch)


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(big_sif: Path, tmp_path: Path) -> None:
    """The room for the copy was taken before; there is none for the store's record of it."""
    mine, filler = own_copy(big_sif, tmp_path / "mine"), tmp_path / "disk" / "filler"

    def fill(what: str, done: int, total: int | None) -> None:
        assert (what, total) == ("copying my image.sif", mine.stat().st_size)
        assert done
        run(("dd", "if=/dev/zero", f"of={filler}", "bs=64k", "oflag=append", "conv=notrunc"))

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        before = prefix.state(mine.parent)
        with pytest.raises(InstallError) as caught:
            prefix.fetch(plan(mine), fill)
        assert "No space left on device" in caught.value.message
        assert prefix.state(mine.parent) == before
        filler.unlink()
        assert prefix.fetch(plan(mine)).path.read_bytes() == mine.read_bytes()

    call_on_small_disk(tmp_path / "disk", 16 << 20, fetch)


def test_an_ordinary_user_copies_what_only_can_be_read(
    images: Images, ordinary_user: OrdinaryUser, shared_tmp: Path
) -> None:
    mine = own_copy(images.tiny_sif, shared_tmp / "mine", mode=0o444)
    before = file_state(mine)
    path = call_as(ordinary_user.user, lambda: Prefix(ordinary_user.home / "prefix").fetch(plan(mine)).path)
    assert path.stat().st_uid == ordinary_user.user.uid
    assert path.read_bytes() == mine.read_bytes()
    assert file_state(mine) == before
