"""Leases: what an entry says, who is dead, and what a claim does while others claim, forget and crash."""

import errno
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import InstallError, LockError
from sifmod.tree import lease as leases
from sifmod.tree.layout import Chain, LockRoot
from sifmod.tree.lease import Holder, Lease
from sifmod.tree.locking import left_over, lock
from support.disk_state import disk_state
from support.small_disk import filled, small_disk
from support.tree import LEASE, chain_at, nobody

ELSEWHERE = Holder("0" * 16, "elsewhere", "boot", 7, "1", LEASE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory."""
    path = tmp_path / "place"
    path.mkdir()
    return path


def claimed(chain: Path, holder: Holder | None = None) -> Holder:
    """The chain's newest lease is this holder's."""
    holder = holder or leases.this_process(LEASE)
    assert leases.claim(chain_at(chain), leases.newest(chain_at(chain)), holder)
    return holder


def test_an_entry_says_who_holds_it_and_beats(place: Path) -> None:
    assert leases.newest(chain_at(place / "none")) == Lease(0, "", b"")
    assert leases.newest(chain_at(place / "none")).free
    for number in (1, 2):
        holder = claimed(place)
        text = json.dumps(holder._asdict())
        assert leases.newest(chain_at(place)) == Lease(number, text, b"")
        leases.beat(chain_at(place), number, 41)
        found = leases.newest(chain_at(place))
        assert (found.beat, found.holder, found.free, found.vacant) == (b"000000000041", holder, False, False)
        leases.free(chain_at(place), number)
        found = leases.newest(chain_at(place))
        assert (found.beat, found.holder, found.free, found.vacant) == (b"free", holder, True, True)
        assert sorted(os.listdir(place)) == [f"{number}.beat", f"{number}.lease"]
    assert (holder.pid, holder.host, holder.seconds) == (os.getpid(), os.uname().nodename, LEASE)
    assert leases.this_process(LEASE).token != holder.token
    assert str(ELSEWHERE) == "process 7 on elsewhere"


@pytest.mark.parametrize("text", ["nonsense", "[1]", "3", '{"token": 1}', "null"])
def test_an_entry_without_sense_has_no_holder_and_is_not_vacant(text: str) -> None:
    lease = Lease(3, text, b"000000000001")
    assert (lease.holder, lease.free, lease.vacant) == (None, False, False)
    assert Lease(3, text, b"free").vacant


def test_other_names_are_no_entries(place: Path) -> None:
    for name in ("x.lease", "9.beat", "8.lease.tmp", "7", "lease", ".lease", "6.leases"):
        (place / name).touch()
    assert leases.newest(chain_at(place)).number == 0
    claimed(place)
    assert leases.newest(chain_at(place)).number == 1
    assert (leases.holds(chain_at(place), 1), leases.holds(chain_at(place), 2), leases.holds(chain_at(place), 0)) == (
        True,
        False,
        False,
    )


def test_a_beat_is_on_the_disk_and_all_may_write_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    before = os.umask(0), len(os.listdir("/proc/self/fd"))
    try:
        leases.beat(chain_at(place), 1, 2)
        leases.free(chain_at(place), 2)
    finally:
        os.umask(before[0])
    assert synced == [str(place / "1.beat"), str(place / "2.beat")]
    assert {(place / name).stat().st_mode & 0o777 for name in os.listdir(place)} == {0o666}
    assert len(os.listdir("/proc/self/fd")) == before[1]


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    child = subprocess.Popen(("true",))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert leases.dead(leases.this_process(LEASE)._replace(pid=child.pid, start=""))
    child.wait()


def test_a_stopped_process_is_not_dead() -> None:
    with subprocess.Popen(("sleep", "60")) as child:
        child.send_signal(signal.SIGSTOP)
        assert not leases.dead(leases.this_process(LEASE)._replace(pid=child.pid, start=""))
        child.kill()


def test_another_users_process_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be sent a signal; whether it began when the lease says can be seen all the same."""

    def refused(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    holder = leases.this_process(LEASE)
    assert not leases.dead(holder)
    assert leases.dead(holder._replace(start="1"))
    assert not leases.dead(holder._replace(start=""))
    assert not leases.dead(holder._replace(pid=2**22 + 1)), "nothing of it can be seen"


def test_a_programs_name_may_hold_anything(place: Path) -> None:
    """Its state and its start are read behind that."""
    program = place / "x) Z (1 2"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen((program, "60")) as child:
        while Path(f"/proc/{child.pid}/comm").read_text() != "x) Z (1 2\n":
            pass
        assert not leases.dead(leases.this_process(LEASE)._replace(pid=child.pid, start=""))
        child.kill()


def test_where_nothing_can_be_seen_of_processes_nobody_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\n" not in leases.this_process(LEASE).boot
    assert len(leases.this_process(LEASE).boot.split()) == 2

    def hidden(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    monkeypatch.setattr(os, "readlink", hidden)
    holder = leases.this_process(LEASE)
    assert (holder.boot, holder.start, leases.dead(holder)) == (" ", "", False)


@pytest.mark.parametrize("again", [False, True])
def test_an_entry_that_goes_while_it_is_read_is_followed_by_a_newer_one(
    again: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(place)
    seen, ours, readlink = leases.newest(chain_at(place)), leases.this_process(LEASE), os.readlink
    taken: list[Holder] = []

    def taking(path: str, *, dir_fd: int) -> str:
        monkeypatch.setattr(os, "readlink", readlink)
        taken.append(claimed(place))
        return readlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "readlink", taking)
    if again:
        assert not leases.claim(chain_at(place), seen, ours)
    found = leases.newest(chain_at(place))
    assert (found.number, found.holder) == (2, taken[0])


Meanwhile = Callable[[Path], None]


def grown(chain: Path) -> None:
    (chain / "2.lease").symlink_to("later")


def begun_again(chain: Path) -> None:
    for path in chain.glob("*"):
        path.unlink()


@pytest.mark.parametrize("error", [None, FileExistsError, FileNotFoundError])
@pytest.mark.parametrize("happens", [grown, None])
def test_a_claim_that_is_overtaken_leaves_no_entry(
    error: type[OSError] | None, happens: Meanwhile | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its entry, or between its entry and the look after that."""
    seen, symlink = leases.newest(chain_at(place)), os.symlink

    def made(text: str, path: str, *, dir_fd: int) -> None:
        monkeypatch.setattr(os, "symlink", symlink)
        if error:
            raise error
        symlink(text, path, dir_fd=dir_fd)
        if happens:
            happens(place)

    monkeypatch.setattr(os, "symlink", made)
    wins = error is None and happens is None
    assert leases.claim(chain_at(place), seen, leases.this_process(LEASE)) == wins
    left = ["1.lease"] if wins else ["2.lease"] if error is None else []
    assert os.listdir(place) == left


def test_a_claim_in_a_chain_that_began_again_is_taken_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed(place, ELSEWHERE)
    leases.free(chain_at(place), 1)
    seen, symlink = leases.newest(chain_at(place)), os.symlink

    def made(text: str, path: str, *, dir_fd: int) -> None:
        begun_again(place)
        symlink("another", place / "1.lease")
        symlink(text, path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "symlink", made)
    assert not leases.claim(chain_at(place), seen, leases.this_process(LEASE))
    assert os.listdir(place) == ["1.lease"]
    assert os.readlink(place / "1.lease") == "another"


def test_a_claim_counts_although_earlier_entries_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file server does not remove just now is removed by the next one."""
    first = leases.this_process(LEASE)
    assert leases.claim(chain_at(place), leases.newest(chain_at(place)), first)
    leases.free(chain_at(place), 1)

    def unlink(path: Path, **_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))

    with monkeypatch.context() as busy:
        busy.setattr(Path, "unlink", unlink)
        assert leases.claim(chain_at(place), leases.newest(chain_at(place)), leases.this_process(LEASE))
    assert leases.newest(chain_at(place)).number == 2
    leases.free(chain_at(place), 2)
    assert leases.claim(chain_at(place), leases.newest(chain_at(place)), first)
    assert not [path for path in place.iterdir() if path.name[0] in "12"]


@pytest.mark.parametrize(
    "look",
    [
        leases.newest,
        lambda chain: leases.claim(chain, Lease(1, "another", b""), ELSEWHERE),
        lambda chain: leases.holds(chain, 1),
        lambda chain: leases.beat(chain, 1, 1),
        lambda chain: leases.skip_beat(chain, 1),
        lambda chain: leases.free(chain, 1),
        leases.forget,
    ],
)
@pytest.mark.parametrize("link", ["layers", "layers/.locks", "layers/.locks/A@1"])
def test_a_link_on_the_way_to_a_lock_is_not_followed(link: str, look: Callable[[Chain], object], place: Path) -> None:
    """As a member of the group may put it there while a run works under the lock."""
    private, prefix, name = place / "private", place / "prefix", "layers/.locks/A@1"
    (private / name).mkdir(parents=True)
    (private / name / "1.lease").symlink_to("another")
    (private / name / "1.beat").write_text("words")
    (prefix / link).parent.mkdir(parents=True)
    (prefix / link).symlink_to(private / link)
    before = disk_state(private)
    with pytest.raises(OSError, match=f"{re.escape(link)} is a symlink, which sifmod does not follow"):
        look(Chain(prefix / name, prefix))
    assert disk_state(private) == before


def test_only_a_vacant_lock_is_forgotten(place: Path) -> None:
    chain = place / "chain"
    child = subprocess.Popen(("true",))
    child.wait()
    for holder, beat in ((leases.this_process(LEASE)._replace(pid=child.pid), b"1"), (ELSEWHERE, b"free")):
        claimed(chain, holder)
        (chain / "1.beat").write_bytes(beat)
        leases.forget(chain_at(chain))
        assert os.listdir(place) == []
    claimed(chain, ELSEWHERE)
    leases.forget(chain_at(chain))
    assert os.listdir(chain) == ["1.lease"]


# locks, as far as one process shows them


def test_who_took_it_over_is_said(place: Path) -> None:
    with lock(LockRoot(place), "A/1", LEASE, nobody) as held:
        held.check()
        assert held.lease == LEASE
        assert [held.path("x").name, held.path("y").name] == ["1.x", "2.y"]
        assert held.directory.is_dir()
        claimed(place / ".locks" / "A@1", ELSEWHERE)
        with pytest.raises(LockError) as caught:
            held.check()
        with pytest.raises(LockError), held.changing("cannot do it"):
            raise OSError(5, "x")
        with pytest.raises(ZeroDivisionError), held.changing("cannot do it"):
            _ = 1 / 0
    because = "because this process did not respond for 30 seconds; this run has changed nothing since"
    assert caught.value.message == f"the lock A/1 was taken over by process 7 on elsewhere, {because}"
    assert caught.value.hint == "run the same command again"
    assert leases.newest(chain_at(place / ".locks" / "A@1")).beat == b"", "it is not this run's to give up"


def test_a_directory_that_is_gone_is_nobodys_doing(place: Path) -> None:
    with lock(LockRoot(place), "A/1", LEASE, nobody) as held:
        with pytest.raises(InstallError, match="cannot do it: Input/output error"), held.changing("cannot do it"):
            raise OSError(5, "x")
        held.directory.rmdir()
        with pytest.raises(
            LockError,
            match=r"the lock A/1 was taken over, because .* seconds, or its files were removed;",
        ):
            held.check()


def test_remains_of_earlier_holders_are_out_of_reach_and_go(place: Path) -> None:
    chain, staging = place / ".locks" / "A@1", place / ".staging"
    for _ in range(3):
        holder = claimed(chain)
    leases.free(chain_at(chain), 3)
    ours = ("A@1.1.a", "A@1.2.b.fenced", "A@1.3.c")
    others = ("A@1.5.d", "A@1.x.e", "A@2.1.f", "notes", "A@1.txt")
    for name in (*ours, *others):
        (staging / name / "inner").mkdir(parents=True)
    with lock(LockRoot(place), "A/1", LEASE, nobody) as held:
        assert held.directory.name.startswith("A@1.4.")
        assert held.directory.name != f"A@1.4.{holder.token}"
        assert {path.name for path in held.remains} == {"A@1.1.a.fenced", "A@1.2.b.fenced", "A@1.3.c.fenced"}
        assert all(path.is_dir() for path in held.remains)
    assert sorted(os.listdir(staging)) == sorted(others)


def test_what_dead_holders_left_is_told_sorted(place: Path) -> None:
    tree = LockRoot(place)
    assert left_over(tree) == ()
    for name in ("B@1.1.a", "A@2.7.b.fenced", "A@2.8.c", "image-1.1.d", "notes", "x.y.z", "C@1.1.e"):
        (tree.staging / name).mkdir(parents=True)
    claimed(tree.locks / "C@1")
    claimed(tree.locks / "B@1", ELSEWHERE)
    leases.free(tree.chain("B/1"), 1)
    assert left_over(tree) == ("A/2", "B/1", "image-1")


def test_the_error_of_the_block_comes_out(place: Path) -> None:
    """Not what goes wrong while the directory is removed."""
    (place / ".locks").mkdir()
    with pytest.raises(ZeroDivisionError), lock(LockRoot(place), "A/1", LEASE, nobody) as held:
        held.directory.rmdir()
        _ = 1 / 0
    assert leases.newest(chain_at(place / ".locks" / "A@1")).free


def test_a_lease_without_a_block() -> None:
    """A later sifmod reads it; an earlier one finds no sense in it, sees the beat change, and waits."""
    holder = leases.this_process(LEASE)
    text = leases.short(holder)
    assert len(leases.short(holder._replace(pid=(1 << 31) - 1, start=str(10**11), seconds=leases.LONGEST))) < 60
    assert (Lease(1, text, b"").holder, Lease(1, text, b"").vacant) == (holder, False)
    assert Lease(1, leases.short(holder._replace(start="1")), b"").vacant, "its process is gone"
    other = Lease(1, leases.short(holder._replace(host="another")), b"")
    assert (str(other.holder), other.vacant) == (f"process {os.getpid()} on another node", False)
    for nonsense in (
        text[:-1].replace(".", "", 1),
        "~",
        "~x.zz.1.1.1",
        "~x.0.1.1.1",
        "~x.1.1.ffffffff.1",
        f"~x.1.1.{'f' * 300}.1",  # larger than any float
    ):
        assert (Lease(1, nonsense, b"").holder, Lease(1, nonsense, b"").vacant) == (None, False)
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text)


def test_a_full_disk_takes_a_lease_and_its_beats(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        chain = disk / "tree" / ".locks" / "Tiny@1.0"
        chain.mkdir(parents=True)
        with filled(disk / "ballast", 0):
            holder = claimed(chain)
            seen = []
            for count in range(1, 4):
                leases.beat(chain_at(chain), 1, count)
                seen.append(leases.newest(chain_at(chain)).beat)
            assert len(set(seen)) == 3
            assert os.readlink(chain / "1.lease") == leases.short(holder)
            assert not leases.newest(chain_at(chain)).vacant
            assert os.statvfs(disk).f_bavail == 0
            assert not leases.claim(chain_at(chain), Lease(0, "", b""), holder._replace(token="f" * 16))
            leases.free(chain_at(chain), 1)
            assert leases.newest(chain_at(chain)).free
            assert leases.newest(chain_at(chain)).beat not in seen
