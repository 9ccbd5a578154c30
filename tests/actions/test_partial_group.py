"""Two users of one group and one prefix: the broken download of the one is resumed, or removed, by the other."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.tree.layout import Layout
from support.command import User
from support.disk_state import disk_state
from support.downloading import serving
from support.fetching import Prefix, plan
from support.identity import call_as
from support.images import Images
from support.ranged import Asked, Ranged, once, says
from support.tree import ALONE, tree_of
from support.user import OrdinaryUser
from support.web import Handler

FORTNIGHT = 15 * 86400.0


def half(file: Ranged, handler: Handler, asked: Asked) -> bool:
    """Half of the file, and the end of the connection."""
    file.answer(handler, asked, len(file.content) // 2)
    handler.close_connection = True
    return True


class Group:
    """The prefix of a group, and the file that two of its users fetch."""

    def __init__(self, prefix: Path, ann: User, file: Ranged, url: str) -> None:
        self.ann, self.bob = ann, User(ann.uid + 50_000 if os.geteuid() == 0 else ann.uid, ann.gid)
        self.layout, self.file = Layout(prefix), file
        self._url = url
        call_as(ann, self._make)

    def _make(self) -> None:
        os.umask(0o007)
        self.layout.prefix.mkdir()
        self.layout.prefix.chmod(0o2770)

    def fetch(self, user: User, umask: int = 0o007) -> Artifact:
        """Fetch the file as this user."""

        def do() -> Artifact:
            os.umask(umask)
            return Prefix(self.layout.prefix).fetch(plan(self._url))

        return call_as(user, do)

    def breaks_off(self, user: User, umask: int = 0o007) -> Path:
        """A fetch of this user that ends in the middle: the directory of what it had received."""
        self.file.faults[:] = [once(half), says(403)]

        def do() -> None:
            os.umask(umask)
            with pytest.raises(FetchError, match="403"):
                Prefix(self.layout.prefix).fetch(plan(self._url))

        before = set(self.layout.partials.glob("*"))
        call_as(user, do)
        self.file.faults.clear()
        self.file.log.clear()
        (directory,) = set(self.layout.partials.iterdir()) - before
        return directory

    @property
    def alone(self) -> bool:
        """Whether both are the one ordinary user who runs the tests."""
        return self.ann == self.bob

    @property
    def resumed(self) -> bool:
        """Whether the last fetch asked for the second half only."""
        return all(asked.span is not None and asked.span[0] > 0 for asked in self.file.log)


@pytest.fixture
def group(
    shared_tmp: Path, tmp_path: Path, ordinary_user: OrdinaryUser, images: Images, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Group]:
    monkeypatch.setenv("HOME", str(ordinary_user.home))
    ordinary_user.own(shared_tmp)
    shared_tmp.chmod(0o775)
    file = Ranged(images.tiny_sif.read_bytes())
    with serving(file) as server:
        # what is imported late is imported here: its files may be closed to the users
        Prefix(tmp_path / "prefix").fetch(plan(server.url("/0")))
        file.log.clear()
        yield Group(shared_tmp / "prefix", ordinary_user.user, file, server.url("/0"))


def test_another_user_goes_on(group: Group) -> None:
    group.breaks_off(group.ann)
    artifact = group.fetch(group.bob)
    assert group.resumed
    assert artifact.path.read_bytes() == group.file.content
    assert artifact.path.stat().st_uid == group.bob.uid
    assert not group.layout.partials.exists()
    assert list(group.layout.staging.iterdir()) == []


def test_what_another_user_cannot_open_is_removed(group: Group) -> None:
    """Under a umask that no sharing of the site overrides."""
    for file in group.breaks_off(group.ann).iterdir():
        file.chmod(0o600)
    assert group.fetch(group.bob).path.read_bytes() == group.file.content
    assert group.resumed == group.alone
    assert not group.layout.partials.exists()


def test_what_another_user_cannot_enter_is_left_and_worked_around(group: Group) -> None:
    """Under a umask that no sharing of the site overrides."""
    directory = group.breaks_off(group.ann)
    directory.chmod(0o700)
    before = disk_state(directory)
    if not group.alone:
        assert group.breaks_off(group.bob).name == f"{directory.name}-{group.bob.uid}"
    assert group.fetch(group.bob).path.read_bytes() == group.file.content
    assert group.resumed
    if not group.alone:
        assert list(group.layout.partials.iterdir()) == [directory]
        assert disk_state(directory) == before


@pytest.mark.parametrize(("mode", "umask"), [(0o700, 0), (0o750, 0o002), (0o2775, 0o077)])
def test_it_is_as_open_as_the_prefix_whatever_the_umask(group: Group, mode: int, umask: int) -> None:
    group.layout.prefix.chmod(mode)
    directory = group.breaks_off(group.ann, umask)
    wanted = mode & 0o777
    assert directory.stat().st_mode & 0o777 == wanted
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {wanted & 0o666}
    assert len(list(directory.iterdir())) == 2


@pytest.mark.parametrize("closed", [False, True])
def test_gc_of_another_user(group: Group, closed: bool) -> None:
    """It removes what it may, and says why the rest stays."""
    directory = group.breaks_off(group.ann)
    old = time.time() - FORTNIGHT
    for path in (*directory.iterdir(), directory):
        os.utime(path, (old, old))
    if closed:
        directory.chmod(0o700)

    def gc() -> tuple[str, int]:
        gc_plan = plan_gc(group.layout, ask_jobs=False)
        done = apply_gc(tree_of(group.layout), gc_plan, ALONE)
        return gc_plan.partials[0].keep, len(done.partials)

    stays = closed and not group.alone
    assert call_as(group.bob, gc) == ("only another user can remove it" if stays else "", int(not stays))
    assert directory.exists() == stays
    assert list(group.layout.staging.iterdir()) == []
