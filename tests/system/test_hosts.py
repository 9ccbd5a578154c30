"""Two hosts on one tree: two UTS namespaces with host names of their own, so that neither can ask about the other."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sifmod.tree.layout import Layout
from sifmod.tree.lease import newest
from support import outlook
from support.command import SIFMOD
from support.hold import Other
from support.hosts import on_host
from support.images import Images
from support.outlook import Known
from support.steps import some
from support.trial import Place, make_place
from support.victim import Victim

LEASE = (
    1  # seconds, the shortest that a site may set; a holder that is silent for so long is overtaken by the other host
)
PAIRS = 3  # most of the time is waiting for leases to run out, so several pairs of hosts wait at once


class Hosts:
    """Host one and host two, and the one tree that both see."""

    def __init__(self, place: Place, one: Victim, two: Victim) -> None:
        self.place, self.one, self.two = place, one, two
        known = {}
        for number, tag in ((1, "a"), (2, "b")):
            outcome = one.run(place.install(tag))
            assert outcome.code == 0, outcome.stderr
            known[tag] = outlook.generation(place.prefix, str(number))
            outlook.copy(place.prefix, place.directory / f"after-{tag}")
        self.known = Known(known, (place.prefix / "modules" / "Tiny" / "1.0.lua").read_bytes())
        self.reset()
        self.steps = one.run(place.install("b")).steps

    def reset(self) -> None:
        """Build a is installed."""
        outlook.copy(self.place.directory / "after-a", self.place.prefix)

    @property
    def seen(self) -> str:
        return outlook.seen(self.place.prefix, self.known)


@pytest.fixture(scope="module")
def pairs(images: Images) -> Iterator[list[Hosts]]:
    with TemporaryDirectory(dir="/dev/shm", prefix="sifmod-test-") as directory, ExitStack() as stack:
        yield [make_hosts(make_directory(Path(directory, str(number))), images, stack) for number in range(PAIRS)]


def make_directory(path: Path) -> Path:
    path.mkdir()
    return path


def make_hosts(directory: Path, images: Images, stack: ExitStack) -> Hosts:
    place = make_place(images, directory)
    env = {**place.env, "SIFMOD_LOCK_LEASE": str(LEASE)}
    victims = [stack.enter_context(Victim(env, *on_host(name))) for name in ("one", "two")]
    for victim in victims:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
    return Hosts(place, *victims)


def at_steps(pairs: list[Hosts], do: Callable[[Hosts, int], bool], stride: int) -> float:
    """Do it for each `stride`th step of a reinstall, spread over the pairs: in what part of them the answer was yes."""
    steps = tuple(some(1, min(hosts.steps for hosts in pairs), stride))

    def part(first: int) -> int:
        return sum(do(pairs[first], step) for step in steps[first::PAIRS])

    with ThreadPoolExecutor(PAIRS) as pool:
        return sum(pool.map(part, range(PAIRS))) / len(steps)


def test_the_hosts_have_names_of_their_own(pairs: list[Hosts]) -> None:
    hosts = pairs[0]
    hosts.reset()
    assert last_holder(hosts) == "one"
    hosts.two.run((*hosts.place.install("a"), "--rebuild"))
    assert last_holder(hosts) == "two"


def last_holder(hosts: Hosts) -> str:
    holder = newest(Layout(hosts.place.prefix).chain("Tiny/1.0")).holder
    return holder.host if holder else ""


def test_a_holder_stopped_at_some_step_is_overtaken_and_changes_nothing_more(pairs: list[Hosts]) -> None:
    """Host one stops on the way from a to b; host two takes over and installs a anew; then host one wakes up."""
    assert at_steps(pairs, stop_and_wake, 8) > 0.8


def stop_and_wake(hosts: Hosts, step: int) -> bool:
    again = (*hosts.place.install("a"), "--rebuild")
    hosts.reset()
    stopped = hosts.one.run(hosts.place.install("b"), "stopped", step)
    assert (stopped.code, stopped.steps) == (None, step)
    held = holds(hosts.place.prefix, "one")
    other = hosts.two.run(again)
    assert other.code == 0, other.stderr
    assert hosts.seen == "a"
    between = visible(hosts.place.prefix)
    woken = hosts.one.resume(stopped)
    if held:
        assert visible(hosts.place.prefix) == between
        assert hosts.seen == "a"
        if "installed, generation 2" not in woken.stderr:  # it had all but the end behind it when it was stopped
            assert woken.code == 18, woken.stderr
            assert "was taken over by process" in woken.stderr
            assert "on two" in woken.stderr
    else:  # it had no lock yet, or none any more: one after the other
        assert woken.code == 0, woken.stderr
        assert hosts.seen in "ab"
    final = hosts.two.run(again)
    assert final.code == 0, final.stderr
    assert hosts.seen == "a"
    assert list(hosts.place.prefix.glob(".staging/*")) == []
    outlook.published_are_whole(hosts.place.prefix, hosts.known)
    return held


def holds(prefix: Path, host: str) -> bool:
    """Whether a process of this host holds the module's lock now."""
    chain = prefix / ".locks" / "Tiny@1.0"
    number = max(int(path.name.split(".")[0]) for path in chain.glob("*.lease"))
    free = (chain / f"{number}.beat").exists() and (chain / f"{number}.beat").read_bytes() == b"free"
    return not free and f'"host": "{host}"' in os.readlink(chain / f"{number}.lease")


def visible(prefix: Path) -> dict[str, tuple[int, int, bytes]]:
    """What is in the tree, apart from locks, staging and the log (where a late line is true), to the inode."""
    found = {}
    for path in prefix.rglob("*"):
        if path.relative_to(prefix).parts[0] not in (".locks", ".staging", "log"):
            status = path.lstat()
            held = os.fsencode(os.readlink(path)) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
            found[str(path)] = (status.st_ino, status.st_mode, held)
    return found


def test_a_holder_that_died_at_some_step_is_overtaken(pairs: list[Hosts]) -> None:
    """Host two cannot know that the process on host one is dead: it waits for the lease to run out."""
    assert at_steps(pairs, die, 12) > 0.8


def die(hosts: Hosts, step: int) -> bool:
    hosts.reset()
    assert hosts.one.run(hosts.place.install("b"), "killed", step).code == -9
    assert hosts.seen in "ab"
    waits = holds(hosts.place.prefix, "one")
    outcome = hosts.two.run((*hosts.place.install("b"), "--rebuild"))
    assert outcome.code == 0, outcome.stderr
    assert ("waiting for Tiny/1.0, which process" in outcome.stderr) == waits
    assert hosts.seen == "b"
    left = [path.name for path in hosts.place.prefix.glob(".staging/*")]
    assert not any(name.startswith("Tiny@") for name in left)
    outlook.published_are_whole(hosts.place.prefix, hosts.known)
    return waits


def test_gc_completes_what_died_on_another_host(pairs: list[Hosts]) -> None:
    """An uninstall between the modulefile and the switch. Host two cannot ask whether it has died."""
    hosts = pairs[0]
    tree = ("--prefix", hosts.place.prefix)
    die_half_uninstalled(hosts)
    assert hosts.two.run(("verify", *tree)).code == 1
    outcome = hosts.two.run(("gc", "--yes", "--ignore-jobs", *tree))
    assert outcome.code == 0, outcome.stderr
    verified = hosts.two.run(("verify", *tree))
    assert (verified.code, verified.stdout.strip()) == (0, "")
    assert outcome.stderr.count("waiting for") == 1, "its lease was waited for twice"
    assert list(hosts.place.prefix.glob(".staging/*")) == []
    restored = hosts.two.run(("rollback", "Tiny/1.0", *tree))
    assert restored.code == 0, restored.stderr
    assert hosts.seen == "a"


def die_half_uninstalled(hosts: Hosts) -> None:
    """Host one dies when the modulefile is gone and the switch is still there."""
    prefix = hosts.place.prefix
    for step in range(1, hosts.steps):
        hosts.reset()
        assert hosts.one.run(("uninstall", "Tiny/1.0", "--prefix", prefix), "killed", step).code == -9
        if not (prefix / "modules" / "Tiny" / "1.0.lua").exists():
            break
    assert (prefix / "software" / "Tiny" / "1.0").is_symlink()


def test_gc_frees_what_died_on_another_host(pairs: list[Hosts]) -> None:
    """Its directories, and the images that it works with."""
    assert at_steps(pairs, die_and_free, 12) > 0.8


def die_and_free(hosts: Hosts, step: int) -> bool:
    hosts.reset()
    assert hosts.one.run(hosts.place.install("b"), "killed", step).code == -9
    held = holds(hosts.place.prefix, "one")
    words = ("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs", "--prefix", hosts.place.prefix)
    outcome = hosts.two.run(words)
    assert outcome.code == 0, outcome.stderr
    assert hosts.seen in "ab"
    assert list(hosts.place.prefix.glob(".staging/*")) == []
    assert len(list(hosts.place.prefix.glob("images/sha256/*.sif"))) == 1
    outlook.published_are_whole(hosts.place.prefix, hosts.known)
    return held


def test_gc_leaves_alone_what_lives_on_another_host(pairs: list[Hosts]) -> None:
    hosts = pairs[0]
    hosts.reset()
    one = Other(hosts.place.prefix, LEASE, *on_host("one")).take()
    try:
        outcome = hosts.two.run(("gc", "--yes", "--ignore-jobs", "--prefix", hosts.place.prefix))
        assert outcome.code == 0, outcome.stderr
        assert f"waiting for the tree, which process {one.pid} on one is working on" in outcome.stderr
        assert one.ask("check") == "ok"
        assert one.ask("install c").startswith("installed")
        one.release()
    finally:
        one.kill()


def test_a_holder_that_lives_is_waited_for(tmp_path: Path) -> None:
    """Longer than its lease: the heartbeat keeps it."""
    one = Other(tmp_path / "tree", LEASE, *on_host("one")).take()
    two = Other(tmp_path / "tree", LEASE, *on_host("two"))
    try:
        assert two.heard() == f"waiting process {one.pid} on one"
        for tag in ("a", "b", "c"):
            waiter = subprocess.Popen(("sleep", str(2 * LEASE)))
            waiter.wait()
            assert one.ask("check") == "ok"
            assert one.ask(f"install {tag}").startswith("installed")
        one.release()
        assert two.take().ask("check") == "ok"
        assert two.ask("install d") == "installed 4"
        two.release()
    finally:
        for other in (one, two):
            other.kill()


def test_a_stopped_and_a_dead_holder_one_after_the_other(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    stopped = Other(tree, LEASE, *on_host("one")).take()
    stopped.signal(signal.SIGSTOP)
    dead = Other(tree, LEASE, *on_host("two")).take()
    assert dead.ask("install a") == "installed 1"
    dead.kill()
    third = Other(tree, LEASE, *on_host("three")).take()
    try:
        assert third.ask("install b") == "installed 2"
        stopped.signal(signal.SIGCONT)
        assert f"was taken over by process {third.pid} on three" in stopped.ask("install c")
        assert third.ask("check") == "ok"
        assert third.ask("install d") == "installed 3"
        stopped.release()
        third.release()
    finally:
        for other in (stopped, third):
            other.kill()
    assert [path.name for path in (tree / ".staging").iterdir()] == []
    assert outlook.live_number(tree) == "3"


def test_four_at_once_on_two_hosts_make_one_generation(images: Images, tmp_path: Path) -> None:
    place = make_place(images, tmp_path)
    command = [str(part) for part in (*SIFMOD, *place.install("a"))]
    hosts = ("one", "two") * 2
    runs = [
        subprocess.Popen((*on_host(host), *command), env=place.env, text=True, stderr=subprocess.PIPE) for host in hosts
    ]
    said = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, said
    assert sum("installed, generation 1" in text for text in said) == 1
    assert sorted(path.name for path in place.prefix.glob("software/Tiny/.generations/1.0/*")) == ["1", "history.json"]
    assert list(place.prefix.glob(".staging/*")) == []
