import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from sifmod.errors import LockError
from sifmod.tree import lease as leases
from sifmod.tree.layout import Layout
from sifmod.tree.lease import Lease
from sifmod.tree.locking import left_over, lock
from support.command import User
from support.hold import Other
from support.tree import LEASE, MODULE, become, chain_at, install, names, nobody, say
from support.user import OrdinaryUser

NAME = "image-1"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def others() -> Iterator[list[Other]]:
    """Processes that are gone at the end, whatever the test does."""
    started: list[Other] = []
    yield started
    for other in started:
        other.signal(signal.SIGCONT)
        other.kill()


def count(prefix: Path, barrier: Barrier, times: int) -> None:
    """Add to a number in a file, in a way that loses additions when two do it at once."""
    layout = Layout(prefix)
    barrier.wait()
    for _ in range(times):
        with lock(layout, NAME, LEASE, say):
            number = int((prefix / "number").read_text())
            (prefix / "number").write_text(str(number + 1))


def test_one_at_a_time(layout: Layout) -> None:
    layout.prefix.mkdir()
    (layout.prefix / "number").write_text("0")
    context = get_context("spawn")
    barrier = context.Barrier(4)
    processes = [context.Process(target=count, args=(layout.prefix, barrier, 15)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (layout.prefix / "number").read_text() == "60"
    assert names(layout) == {".staging", "number"}


def test_nothing_is_left_but_the_lock_itself(layout: Layout) -> None:
    for _ in range(3):
        with lock(layout, NAME, LEASE, nobody) as held:
            (held.directory / "rubbish").write_text("x")
            (held.directory / "sealed").mkdir()
            (held.directory / "sealed" / "file").write_text("x")
            (held.directory / "sealed").chmod(0o500)
    assert names(layout) == {".staging"}
    assert sorted(path.name for path in (layout.locks / NAME).iterdir()) == ["3.beat", "3.lease"]


def test_an_exception_gives_the_lock_up(layout: Layout) -> None:
    with pytest.raises(ZeroDivisionError), lock(layout, NAME, LEASE, nobody):
        _ = 1 / 0
    with lock(layout, NAME, LEASE, nobody) as held:
        held.check()


def test_a_first_run_that_fails_leaves_not_even_a_lock(layout: Layout) -> None:
    layout.prefix.mkdir()
    with pytest.raises(ZeroDivisionError), lock(layout, NAME, LEASE, nobody), lock(layout, "A/1", LEASE, nobody):
        _ = 1 / 0
    assert list(layout.prefix.iterdir()) == []


@pytest.mark.parametrize("there", ["modules", ".locks"])
def test_where_there_was_anything_the_lock_stays(layout: Layout, there: str) -> None:
    (layout.prefix / there).mkdir(parents=True)
    before = set(layout.prefix.iterdir())
    with pytest.raises(ZeroDivisionError), lock(layout, NAME, LEASE, nobody):
        _ = 1 / 0
    assert before <= set(layout.prefix.iterdir())


def test_what_came_to_be_meanwhile_stays(layout: Layout) -> None:
    with pytest.raises(ZeroDivisionError), lock(layout, NAME, LEASE, nobody):
        (layout.prefix / "images").mkdir()
        _ = 1 / 0
    assert sorted(path.name for path in layout.prefix.iterdir()) == [".locks", ".staging", "images"]


def test_a_lock_that_another_holds_is_not_forgotten(layout: Layout, others: list[Other]) -> None:
    other = Other(layout.prefix, LEASE).take()
    others.append(other)
    with pytest.raises(ZeroDivisionError), lock(layout, NAME, LEASE, nobody):
        _ = 1 / 0
    assert other.ask("check") == "ok"
    assert other.ask("install a") == "installed 1"


def fail(prefix: Path, barrier: Barrier, times: int) -> None:
    """Take a lock and fail, again and again."""
    barrier.wait()
    for _ in range(times):
        with suppress(ZeroDivisionError), lock(Layout(prefix), NAME, LEASE, say) as held:
            held.check()
            _ = 1 / 0
        with suppress(OSError):  # as a first run that failed does, here every time
            leases.forget(Layout(prefix).chain(NAME))


def test_forgetting_and_taking_at_once_is_no_trouble(layout: Layout) -> None:
    context = get_context("spawn")
    barrier = context.Barrier(4)
    processes = [context.Process(target=fail, args=(layout.prefix, barrier, 10)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert list(layout.staging.glob("*")) == []


def test_different_names_do_not_wait_for_each_other(layout: Layout) -> None:
    with (
        lock(layout, "image-1", LEASE, nobody),
        lock(layout, "image-2", LEASE, nobody),
        lock(layout, "A/1", LEASE, nobody),
    ):
        assert len(list(layout.staging.iterdir())) == 3


def test_who_holds_it_is_said_and_the_next_one_gets_it(layout: Layout, others: list[Other]) -> None:
    first = Other(layout.prefix, LEASE, name=NAME).take()
    others.append(first)
    second = Other(layout.prefix, LEASE, name=NAME)
    others.append(second)
    line = second.heard()
    pids = {first.pid, *_children(first.pid)}
    assert line in {f"waiting process {pid} on {os.uname().nodename}" for pid in pids}
    assert first.ask("check") == "ok"
    first.release()
    second.take()
    assert second.ask("check") == "ok"
    second.release()
    assert names(layout) == {".staging"}


def test_a_holder_killed_on_this_node_is_gone_at_once(layout: Layout, others: list[Other]) -> None:
    first = Other(layout.prefix, LEASE, name=NAME).take()
    children = _children(first.pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    first.kill()
    while not all(_ended(pid) for pid in children):
        time.sleep(0.01)
    assert left_over(layout) == (NAME,)
    hour = 3600.0  # nobody could wait for that
    second = Other(layout.prefix, hour, name=NAME).take()
    others.append(second)
    assert left_over(layout) == ()
    second.release()
    assert names(layout) == {".staging"}


def test_a_stopped_holder_is_overtaken_and_finds_out(layout: Layout, others: list[Other]) -> None:
    first = Other(layout.prefix, 0.5).take()
    others.append(first)
    first.signal(signal.SIGSTOP)
    heard: list[str] = []
    installation = install(layout, "mine", lease=0.5, on_wait=heard.append)
    assert heard == [f"process {first.pid} on {os.uname().nodename}"]
    before = names(layout)
    first.signal(signal.SIGCONT)
    assert "was taken over" in first.ask("check")
    assert f"process {os.getpid()} on" in first.ask("install other")
    first.release()
    assert names(layout) == before
    assert layout.switch(MODULE).resolve() == Path(installation.root)


def test_a_silent_holder_is_not_overtaken_before_its_own_lease_is_over(layout: Layout, others: list[Other]) -> None:
    """The one who waits has the shorter lease; what counts is the promise of the one who holds."""
    first = Other(layout.prefix, 60, name=NAME).take()
    second = Other(layout.prefix, 0.1, name=NAME)
    others += [first, second]
    first.signal(signal.SIGSTOP)
    assert second.heard().startswith("waiting")
    assert not second.speaks_within(2)  # twenty of its own leases, in which it looks again and again
    first.signal(signal.SIGCONT)
    assert first.ask("check") == "ok"
    first.release()
    assert second.take().ask("check") == "ok"


def test_a_recycled_process_number_is_not_the_holder() -> None:
    holder = leases.this_process(LEASE)
    assert not leases.dead(holder)
    assert leases.dead(holder._replace(start="1"))
    child = subprocess.Popen(("true",))
    child.wait()
    assert leases.dead(holder._replace(pid=child.pid))


def test_of_another_host_or_boot_nothing_is_known() -> None:
    holder = leases.this_process(LEASE)._replace(pid=2**22 + 1)
    assert leases.dead(holder)
    assert not leases.dead(holder._replace(host="elsewhere"))
    assert not leases.dead(holder._replace(boot="before"))


def claimed(directory: Path, barrier: Barrier, seen: Lease) -> None:
    barrier.wait()
    sys.exit(0 if leases.claim(chain_at(directory), seen, leases.this_process(LEASE)) else 9)


def test_of_several_takers_one_wins(tmp_path: Path) -> None:
    context = get_context("fork")
    for number in range(1, 10):
        barrier = context.Barrier(4)
        seen = leases.newest(chain_at(tmp_path))
        processes = [context.Process(target=claimed, args=(tmp_path, barrier, seen)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert sorted(process.exitcode or 0 for process in processes) == [0, 9, 9, 9]
        assert [path.name for path in tmp_path.glob("*.lease")] == [f"{number}.lease"]


def test_a_number_of_the_past_cannot_be_claimed(tmp_path: Path) -> None:
    """A process that slept between its look and its claim finds the entry gone, and must not think it won."""
    seen = [leases.newest(chain_at(tmp_path))]
    for number in (1, 2, 3):
        assert leases.claim(chain_at(tmp_path), seen[-1], leases.this_process(LEASE))
        leases.free(chain_at(tmp_path), number)
        seen.append(leases.newest(chain_at(tmp_path)))
    for before in seen[:-1]:
        assert not leases.claim(chain_at(tmp_path), before, leases.this_process(LEASE))
        assert leases.newest(chain_at(tmp_path)) == seen[-1]
    assert seen[-1].free


def test_a_request_that_nfs_repeats_is_one_claim(tmp_path: Path) -> None:
    seen, holder = leases.newest(chain_at(tmp_path)), leases.this_process(LEASE)
    assert leases.claim(chain_at(tmp_path), seen, holder)
    assert leases.claim(chain_at(tmp_path), seen, holder)
    assert not leases.claim(chain_at(tmp_path), seen, leases.this_process(LEASE))


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"token": 1}'])
def test_an_entry_that_makes_no_sense_is_waited_out(layout: Layout, text: str) -> None:
    chain = layout.locks / NAME
    chain.mkdir(parents=True)
    (chain / "7.lease").symlink_to(text)
    heard: list[str] = []
    with lock(layout, NAME, 0.3, heard.append):
        assert (chain / "8.lease").is_symlink()
    assert heard == ["another process"]


def test_what_a_second_run_that_died_had_taken_over_goes_too(layout: Layout, others: list[Other]) -> None:
    """It was fenced off already; the next run removes both."""
    for count in (1, 2):
        other = Other(layout.prefix, LEASE).take()
        assert len(list(layout.staging.iterdir())) == count
        (next(layout.staging.glob(f"*.{count}.*")) / "rubbish").write_text("x")
        other.kill()
    last = Other(layout.prefix, LEASE).take()
    others.append(last)
    assert sorted(path.suffix for path in layout.staging.iterdir() if ".3." not in path.name) == [".fenced", ".fenced"]
    last.release()
    assert list(layout.staging.iterdir()) == []


def test_a_directory_that_a_fenced_holder_has_made_again_goes_too(layout: Layout, others: list[Other]) -> None:
    """Both of it and of the run that fenced it off something is left; no lock may be refused for that."""
    Other(layout.prefix, LEASE).take().kill()
    first = next(layout.staging.iterdir())
    (first / "rubbish").write_text("x")
    Other(layout.prefix, LEASE).take().kill()
    (first / "3.generation").mkdir(parents=True)
    assert first.with_name(f"{first.name}.fenced").is_dir()
    last = Other(layout.prefix, LEASE).take()
    others.append(last)
    last.release()
    assert list(layout.staging.iterdir()) == []


def test_strangers_in_the_staging_directory_are_left_alone(layout: Layout) -> None:
    stranger = layout.staging / "notes.txt"
    layout.staging.mkdir(parents=True)
    stranger.write_text("mine")
    with lock(layout, NAME, LEASE, nobody):
        pass
    assert left_over(layout) == ()
    assert stranger.read_text() == "mine"


def test_a_holder_without_its_directory_may_change_nothing(layout: Layout) -> None:
    with lock(layout, NAME, LEASE, nobody) as held:
        held.directory.rmdir()
        with pytest.raises(LockError, match="taken over"):
            held.check()


def test_a_tree_that_may_not_be_written(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    (shared_tmp / "prefix").mkdir(mode=0o555)
    code = (
        "from pathlib import Path; from sifmod.errors import PermissionsError; from sifmod.tree.layout import Layout\n"
        "from sifmod.tree.locking import lock\n"
        "try:\n"
        f"    with lock(Layout(Path('{shared_tmp}/prefix')), 'image-1', 30, print): print('held')\n"
        "except PermissionsError as error: print(error.message, error.hint)\n"
    )
    result = _as(ordinary_user.user, code)
    assert "cannot lock image-1: Permission denied" in result
    assert "--prefix" in result
    assert list((shared_tmp / "prefix").iterdir()) == []


def _as(user: User, code: str) -> str:
    """Run Python code as a user, with what this process has imported already: its files may be closed to the user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 1)
        become(user)
        sys.stdout = os.fdopen(1, "w")
        exec(code)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


WAITING = 16


def test_of_many_waiting_processes_one_looks_at_the_lease(layout: Layout, others: list[Other], tmp_path: Path) -> None:
    """Each look costs the file server requests: without filelock all of them look, some thirty times a second."""
    others.append(Other(layout.prefix, LEASE, name=NAME).take())
    for number in range(WAITING):
        trace = ("strace", "-f", "-ttt", "-e", "trace=openat", "-o", str(tmp_path / f"{number}.trace"))
        others.append(Other(layout.prefix, LEASE, *trace, name=NAME))
    for other in others[1:]:
        assert other.heard().startswith("waiting")
    time.sleep(3)  # the first process in the queue looks more often to begin with
    began = time.time()
    time.sleep(4)
    ended = time.time()
    looks = [
        moment
        for trace in tmp_path.glob("*.trace")
        for line in trace.read_text().splitlines()
        if f', "{NAME}"' in line and began < (moment := float(line.split()[1])) < ended
    ]
    assert 4 <= len(looks) <= 2 * 4 + 1, looks
    for other in reversed(others):
        other.tell("release")  # as soon as it holds the lock
    for other in others[1:]:
        other.take()


def test_who_stops_in_front_of_the_queue_keeps_nobody_from_the_lock(layout: Layout, others: list[Other]) -> None:
    holder = Other(layout.prefix, 1, name=NAME).take()
    others.append(holder)
    for _ in range(2):
        others.append(waiting := Other(layout.prefix, 1, name=NAME))
        assert waiting.heard().startswith("waiting")
        time.sleep(0.3)
    others[1].signal(signal.SIGSTOP)  # it has the turn
    holder.tell("release")
    others[2].take()
