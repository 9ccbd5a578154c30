"""Leases: what an entry says, who is dead, and what a claim does while others claim, forget and crash."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import InstallError, LockError
from sifmod.tree import lease as leases
from sifmod.tree.layout import Workplace
from sifmod.tree.lease import Holder, Lease
from sifmod.tree.lock import left_over, lock
from support.tree import LEASE, nobody

ELSEWHERE = Holder("0" * 16, "elsewhere", "boot", 7, "1", LEASE)


def claimed(chain: Path, holder: Holder | None = None) -> Holder:
    """The chain's newest lease is this holder's."""
    holder = holder or leases.this_process(LEASE)
    assert leases.claim(chain, leases.newest(chain), holder)
    return holder


def test_an_entry_says_who_holds_it_and_beats(tmp_path: Path) -> None:
    assert leases.newest(tmp_path / "none") == Lease(0, "", b"")
    assert leases.newest(tmp_path / "none").free
    for number in (1, 2):
        holder = claimed(tmp_path)
        text = json.dumps(holder._asdict())
        assert leases.newest(tmp_path) == Lease(number, text, b"")
        leases.beat(tmp_path, number, 41)
        found = leases.newest(tmp_path)
        assert (found.beat, found.holder, found.free, found.vacant) == (b"000000000041", holder, False, False)
        leases.free(tmp_path, number)
        found = leases.newest(tmp_path)
        assert (found.beat, found.holder, found.free, found.vacant) == (b"free", holder, True, True)
        assert sorted(os.listdir(tmp_path)) == [f"{number}.beat", f"{number}.lease"]
    assert (holder.pid, holder.host, holder.seconds) == (os.getpid(), os.uname().nodename, LEASE)
    assert leases.this_process(LEASE).token != holder.token
    assert str(ELSEWHERE) == "process 7 on elsewhere"


@pytest.mark.parametrize("text", ["nonsense", "[1]", "3", '{"token": 1}', "null"])
def test_an_entry_without_sense_has_no_holder_and_is_not_vacant(text: str) -> None:
    lease = Lease(3, text, b"000000000001")
    assert (lease.holder, lease.free, lease.vacant) == (None, False, False)
    assert Lease(3, text, b"free").vacant


def test_other_names_are_no_entries(tmp_path: Path) -> None:
    for name in ("x.lease", "9.beat", "8.lease.tmp", "7", "lease", ".lease", "6.leases"):
        (tmp_path / name).touch()
    assert leases.newest(tmp_path).number == 0
    claimed(tmp_path)
    assert leases.newest(tmp_path).number == 1
    assert (leases.holds(tmp_path, 1), leases.holds(tmp_path, 2), leases.holds(tmp_path, 0)) == (True, False, False)


def test_a_beat_is_on_the_disk_and_all_may_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    before = os.umask(0), len(os.listdir("/proc/self/fd"))
    try:
        leases.beat(tmp_path, 1, 2)
        leases.free(tmp_path, 2)
    finally:
        os.umask(before[0])
    assert synced == [str(tmp_path / "1.beat"), str(tmp_path / "2.beat")]
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in os.listdir(tmp_path)} == {0o666}
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


def test_a_programs_name_may_hold_anything(tmp_path: Path) -> None:
    """Its state and its start are read behind that."""
    program = tmp_path / "x) Z (1 2"
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
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(tmp_path)
    seen, readlink = leases.newest(tmp_path), os.readlink
    taken: list[Holder] = []

    def taking(path: Path) -> str:
        monkeypatch.setattr(os, "readlink", readlink)
        taken.append(claimed(tmp_path))
        return readlink(path)

    monkeypatch.setattr(os, "readlink", taking)
    if again:
        assert not leases.claim(tmp_path, seen, leases.this_process(LEASE))
    found = leases.newest(tmp_path)
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
    error: type[OSError] | None, happens: Meanwhile | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its entry, or between its entry and the look after that."""
    seen, symlink = leases.newest(tmp_path), os.symlink

    def made(text: str, path: Path, *_: object) -> None:
        monkeypatch.setattr(os, "symlink", symlink)
        if error:
            raise error
        symlink(text, path)
        if happens:
            happens(tmp_path)

    monkeypatch.setattr(os, "symlink", made)
    wins = error is None and happens is None
    assert leases.claim(tmp_path, seen, leases.this_process(LEASE)) == wins
    left = ["1.lease"] if wins else ["2.lease"] if error is None else []
    assert os.listdir(tmp_path) == left


def test_a_claim_in_a_chain_that_began_again_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed(tmp_path, ELSEWHERE)
    leases.free(tmp_path, 1)
    seen, symlink = leases.newest(tmp_path), os.symlink

    def made(text: str, path: Path, *_: object) -> None:
        begun_again(tmp_path)
        symlink("another", tmp_path / "1.lease")
        symlink(text, path)

    monkeypatch.setattr(os, "symlink", made)
    assert not leases.claim(tmp_path, seen, leases.this_process(LEASE))
    assert os.listdir(tmp_path) == ["1.lease"]
    assert os.readlink(tmp_path / "1.lease") == "another"


def test_only_a_vacant_lock_is_forgotten(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    child = subprocess.Popen(("true",))
    child.wait()
    for holder, beat in ((leases.this_process(LEASE)._replace(pid=child.pid), b"1"), (ELSEWHERE, b"free")):
        claimed(chain, holder)
        (chain / "1.beat").write_bytes(beat)
        leases.forget(chain)
        assert os.listdir(tmp_path) == []
    claimed(chain, ELSEWHERE)
    leases.forget(chain)
    assert os.listdir(chain) == ["1.lease"]


# locks, as far as one process shows them


def test_who_took_it_over_is_said(tmp_path: Path) -> None:
    with lock(Workplace(tmp_path), "A/1", LEASE, nobody) as held:
        held.check()
        assert held.lease == LEASE
        assert [held.path("x").name, held.path("y").name] == ["1.x", "2.y"]
        assert held.directory.is_dir()
        claimed(tmp_path / ".locks" / "A@1", ELSEWHERE)
        with pytest.raises(LockError) as caught:
            held.check()
        with pytest.raises(LockError), held.changing("cannot do it"):
            raise OSError(5, "x")
        with pytest.raises(ZeroDivisionError), held.changing("cannot do it"):
            _ = 1 / 0
    because = "because this process gave no sign of life for 30 seconds; this run has changed nothing since"
    assert caught.value.message == f"A/1 was taken over by process 7 on elsewhere, {because}"
    assert caught.value.hint == "run the same command again"
    assert leases.newest(tmp_path / ".locks" / "A@1").beat == b"", "it is not this run's to give up"


def test_a_directory_that_is_gone_is_nobodys_doing(tmp_path: Path) -> None:
    with lock(Workplace(tmp_path), "A/1", LEASE, nobody) as held:
        with pytest.raises(InstallError, match="cannot do it: Input/output error"), held.changing("cannot do it"):
            raise OSError(5, "x")
        held.directory.rmdir()
        with pytest.raises(LockError, match="A/1 was taken over, because"):
            held.check()


def test_remains_of_earlier_holders_are_out_of_reach_and_go(tmp_path: Path) -> None:
    chain, staging = tmp_path / ".locks" / "A@1", tmp_path / ".staging"
    for _ in range(3):
        holder = claimed(chain)
    leases.free(chain, 3)
    ours = ("A@1.1.a", "A@1.2.b.fenced", "A@1.3.c")
    others = ("A@1.4.d", "A@1.x.e", "A@2.1.f", "notes", "A@1.txt")
    for name in (*ours, *others):
        (staging / name / "inner").mkdir(parents=True)
    with lock(Workplace(tmp_path), "A/1", LEASE, nobody) as held:
        assert held.directory.name.startswith("A@1.4.")
        assert held.directory.name != f"A@1.4.{holder.token}"
        assert {path.name for path in held.remains} == {"A@1.1.a.fenced", "A@1.2.b.fenced", "A@1.3.c.fenced"}
        assert all(path.is_dir() for path in held.remains)
    assert sorted(os.listdir(staging)) == sorted(others)


def test_what_dead_holders_left_is_told_sorted(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    assert left_over(place) == ()
    for name in ("B@1.1.a", "A@2.7.b.fenced", "A@2.8.c", "image-1.1.d", "notes", "x.y.z", "C@1.1.e"):
        (place.staging / name).mkdir(parents=True)
    claimed(place.locks / "C@1")
    claimed(place.locks / "B@1", ELSEWHERE)
    leases.free(place.locks / "B@1", 1)
    assert left_over(place) == ("A/2", "B/1", "image-1")


def test_the_error_of_the_block_comes_out(tmp_path: Path) -> None:
    """Not what goes wrong while the directory is removed."""
    (tmp_path / ".locks").mkdir()
    with pytest.raises(ZeroDivisionError), lock(Workplace(tmp_path), "A/1", LEASE, nobody) as held:
        held.directory.rmdir()
        _ = 1 / 0
    assert leases.newest(tmp_path / ".locks" / "A@1").free
