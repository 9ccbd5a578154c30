"""Three users of one group, each with a umask of their own, work on one prefix; none ever shuts another out."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.command import User
from support.disk_state import disk_state
from support.images import Images
from support.members import make_members
from support.memory import temporary
from support.steps import some
from support.trial import Command, Place, make_place
from support.user import OrdinaryUser
from support.victim import Outcome, Victim

UMASKS = (0o077, 0o022, 0o002)
ALIKE = (0o002, 0o002, 0o002)


@dataclass(frozen=True)
class Group:
    """The users, each with a umask, and what they install."""

    users: tuple[User, ...]
    umasks: tuple[int, ...]
    place: Place
    victim: Victim

    @property
    def prefix(self) -> Path:
        """The tree of them all."""
        return self.place.prefix

    def run(self, who: int, *words: str | Path, how: str = "whole", step: int = 0) -> Outcome:
        """A command line of sifmod by this user; `how` and `step` as Victim has them."""
        user = self.users[who]
        return self.victim.run(words, how, step, who=(user.uid, user.gid, self.umasks[who]))

    def ok(self, who: int, *words: str | Path) -> str:
        """What it says on standard error, when it does what it should."""
        outcome = self.run(who, *words, "--prefix", self.prefix)
        assert outcome.code == 0, outcome.stderr
        return outcome.stderr

    def install(self, tag: str, *words: str) -> Command:
        """The words that install one of the builds."""
        return ("install", self.place.directory / tag / "Tiny-1.0.yaml", "--skip-sanity-check", *words)

    def everything_can_go(self) -> None:
        """Each of the users could remove every name there is."""
        for directory in (self.prefix, *(path for path in self.prefix.rglob("*") if path.is_dir())):
            status = directory.lstat()
            for user in self.users:
                open_to_all = status.st_gid == user.gid and status.st_mode & 0o070 == 0o070
                assert status.st_uid == user.uid or open_to_all, directory


@pytest.fixture(scope="module")
def started(images: Images) -> Iterator[tuple[Place, Victim]]:
    """sifmod, in a directory that is emptied before each test."""
    if os.geteuid() != 0:
        pytest.skip("only root can run commands as three different users")
    with TemporaryDirectory(dir=temporary(), prefix="sifmod-test-") as directory:
        place = make_place(images, Path(directory))
        with Victim(place.env) as victim:
            assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
            yield place, victim


@pytest.fixture
def group(
    started: tuple[Place, Victim],
    shared_tmp: Path,
    ordinary_user: OrdinaryUser,
    images: Images,
    request: pytest.FixtureRequest,
) -> Group:
    place, victim = started
    shutil.rmtree(place.directory)
    place.directory.mkdir(mode=0o755)
    make_place(images, place.directory)
    for tag in "abc":
        sif = place.directory / f"{tag}.sif"
        sif.write_bytes(images.tiny(f"crash-{tag}").read_bytes())
        easyconfig = place.directory / tag / "Tiny-1.0.yaml"
        easyconfig.write_text(easyconfig.read_text().replace(str(images.tiny(f"crash-{tag}")), str(sif)))
    members = make_members(shared_tmp, ordinary_user)
    ordinary_user.own(place.directory)
    members.prefix.rename(place.prefix)
    return Group(members.three, getattr(request, "param", UMASKS), place, victim)


@pytest.mark.parametrize(
    "group",
    [*(UMASKS[n:] + UMASKS[:n] for n in range(3)), ALIKE],
    indirect=True,
    ids=[*map(oct, UMASKS), "one umask"],
)
def test_each_goes_on_with_what_the_others_have_made(group: Group) -> None:
    """Whoever begins; the modes are the prefix's own."""
    group.ok(0, *group.install("a"))
    group.ok(1, *group.install("b"))
    group.ok(2, "rollback", "Tiny/1.0")
    group.ok(2, *group.install("c"))
    group.ok(0, "uninstall", "Tiny/1.0")
    group.ok(1, *group.install("a", "--rebuild"))
    group.everything_can_go()
    assert "removed 2 generations" in group.ok(2, "gc", "--yes", "--days", "0", "--ignore-jobs")
    for who in range(3):
        group.ok(who, "verify")
    assert list(group.prefix.glob(".staging/*")) == []
    files = [path for path in group.prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files)


@pytest.mark.parametrize(
    ("group", "dies"), [(UMASKS, 0), (UMASKS, 1), (UMASKS, 2), (ALIKE, 0)], indirect=["group"], ids="012a"
)
def test_what_a_killed_run_has_left_another_cleans_up(group: Group, dies: int) -> None:
    """The run is killed at every tenth step of it, by a user whose umask would shut the others out."""
    other = (dies + 1) % 3
    group.ok(other, *group.install("a"))
    for step in some(1, 1000, 10):
        run = group.run(dies, *group.install("b", "--rebuild"), "--prefix", group.prefix, how="killed", step=step)
        if run.code == 0:  # it has no such step any more
            break
        assert run.code == -9
        group.everything_can_go()
        group.ok(other, "gc", "--yes", "--days", "0", "--ignore-jobs")
        assert list(group.prefix.glob(".staging/*")) == [], step
    assert step > 100
    group.ok(other, *group.install("c"))
    group.ok(dies, "verify")


def test_what_a_killed_run_left_closed_stops_nobody(group: Group) -> None:
    """A killed run under umask 077: its directory is closed to the others, and pins an image."""
    group.ok(1, *group.install("a"))
    closed = group.prefix / ".staging" / "Tiny@1.0.1.ab"
    (closed / "1.generation" / "bin").mkdir(parents=True)
    (image,) = group.prefix.glob("images/sha256/*.sif")
    (closed / f"{image.stem}.pin").touch()
    for path in (*closed.rglob("*"), closed):
        os.chown(path, group.users[0].uid, group.users[0].gid)
        path.chmod(0o700)
    group.ok(1, *group.install("b"))
    group.ok(1, "uninstall", "Tiny/1.0")
    group.ok(1, "gc", "--yes", "--days", "0", "--ignore-jobs")
    assert not image.exists()
    group.ok(1, *group.install("b"))
    group.ok(2, "verify")
    group.ok(0, *group.install("a"))  # whose it is
    assert list(group.prefix.glob(".staging/*")) == []


@pytest.mark.parametrize("group", [UMASKS, ALIKE], indirect=True, ids=["umasks", "one umask"])
def test_who_may_only_read_is_told_that_it_is_installed(group: Group) -> None:
    """After an edit that changes nothing too; what a dead run has left is for others to clean up."""
    group.ok(0, *group.install("a"))
    (group.prefix / ".staging" / "Tiny@1.0.1.ab").mkdir(parents=True)
    reader = (group.users[2].uid + 1, group.users[2].gid + 1, 0o022)
    before = disk_state(group.prefix)
    words = (*group.install("a"), "--prefix", group.prefix)
    for _ in range(2):
        outcome = group.victim.run(words, who=reader)
        assert outcome.code == 0, outcome.stderr
        assert "already installed, nothing to do" in outcome.stderr
        with Path(words[1]).open("a") as easyconfig:
            easyconfig.write("# a comment\n")
    refused = group.victim.run((*words, "--rebuild"), who=reader)
    assert refused.code == 25, refused.stderr
    assert disk_state(group.prefix) == before


def test_a_umask_of_the_site_wins(group: Group) -> None:
    sites = Path(group.place.env["SIFMOD_CONFIG_DIR"]) / "sites"
    sites.mkdir(parents=True)
    (sites / "ours.yaml").write_text("name: ours\numask: '027'\n")
    group.ok(0, *group.install("a", "--site", "ours"))
    assert {path.stat().st_mode & 0o777 for path in group.prefix.glob("modules/Tiny/*.lua")} == {0o640}
