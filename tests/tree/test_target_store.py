"""A store of one file: what is incomplete lies beside the target, and what is there is replaced only when told."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from sifmod.cli.main import run
from sifmod.errors import FetchError, InstallError, PermissionsError
from sifmod.tree.layout import Layout
from sifmod.tree.target_store import TargetStore, target_store
from support.command import SIFMOD, User
from support.config import write
from support.disk_state import disk_state, file_state
from support.hosts import on_host
from support.identity import call_as
from support.images import Images
from support.steps import some
from support.tree import tree_of
from support.user import OrdinaryUser
from support.victim import Outcome, Victim


@pytest.fixture
def place(shared_tmp: Path) -> Path:
    """An empty directory."""
    return shared_tmp


KEY = "0123456789abcdef"


def at(target: Path, *, replace: bool = False) -> AbstractContextManager[TargetStore]:
    """The store of this file, for which nobody else is waited."""
    return target_store(target, tree_of(Layout(target.parent)), replace=replace)


def put(store: TargetStore, content: bytes) -> Path:
    with store.incoming() as incoming:
        incoming.write_bytes(content)
        return store.add(incoming, "0" * 64)


def test_a_complete_file_takes_its_place_alone(place: Path) -> None:
    target = place / "x.sif"
    with at(target) as store:
        assert put(store, b"image") == target
    assert target.read_bytes() == b"image"
    assert os.listdir(place) == ["x.sif"]


def test_a_file_that_is_there_stays(place: Path) -> None:
    target = place / "x.sif"
    target.write_bytes(b"mine")
    before = disk_state(place)
    with pytest.raises(FetchError, match="exists already") as caught, at(target):
        pass
    assert "--force" in caught.value.hint
    assert disk_state(place) == before


def test_a_file_that_comes_meanwhile_stays(place: Path) -> None:
    target = place / "x.sif"
    with pytest.raises(FetchError, match="exists already"), at(target) as store:
        target.write_bytes(b"another was faster")
        before = file_state(target)
        put(store, b"image")
    assert file_state(target) == before
    assert os.listdir(place) == ["x.sif"]


def test_with_force_it_is_replaced(place: Path) -> None:
    target = place / "x.sif"
    target.write_bytes(b"old")
    with at(target, replace=True) as store:
        put(store, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(place) == ["x.sif"]


def test_a_directory_is_no_target(place: Path) -> None:
    with pytest.raises(FetchError, match="is a directory"), at(place, replace=True):
        pass


def test_what_was_received_stays_until_it_is_finished(place: Path) -> None:
    with pytest.raises(RuntimeError), at(place / "x.sif") as store, store.partial(KEY) as partial:
        (partial / "blob").write_bytes(b"half")
        raise RuntimeError
    assert [path.name for path in place.rglob("blob")] == ["blob"]
    with at(place / "x.sif") as store, store.partial(KEY) as again:
        assert (again / "blob").read_bytes() == b"half"
        store.finished(again)
    assert list(place.iterdir()) == []


def test_the_workspace_goes(place: Path) -> None:
    with at(place / "x.sif") as store, store.workspace() as workspace:
        (workspace / "inner").mkdir()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("what", ["locks", "locks/fetch", "beat", "staging"])
def test_of_a_lock_that_fails_nothing_is_left(place: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """At its directories and at its first beat."""
    made = {"locks": 2, "locks/fetch": 3, "staging": 4}
    calls = 0
    usual = os.mkdir

    def mkdir(*arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == made.get(what):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        usual(*arguments, **named)

    def beat(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "mkdir", mkdir)
    if what == "beat":
        monkeypatch.setattr("sifmod.tree.lease.beat", beat)
    with pytest.raises(InstallError, match="cannot lock fetch: Input/output error"), at(place / "x.sif"):
        pass
    assert os.listdir(place) == []


def test_a_directory_that_cannot_be_written_is_told(place: Path, ordinary_user: OrdinaryUser) -> None:
    place.chmod(0o555)
    before = disk_state(place)

    def fetch() -> str:
        try:
            with at(place / "x.sif"):
                return "it could be written"
        except PermissionsError as error:
            return error.message

    assert call_as(ordinary_user.user, fetch) == f"cannot write into {place}"
    assert disk_state(place) == before


def test_a_directory_that_is_not_there_is_told(place: Path) -> None:
    with pytest.raises(FetchError, match=f"there is no directory {place}/a"), at(place / "a" / "x.sif"):
        pass
    assert list(place.iterdir()) == []


class Sticky:
    """A directory like /tmp, a victim who writes there, and a neighbour who has prepared the name that is used."""

    def __init__(self, place: Path, sif: Path) -> None:
        self.directory, self.sif = place / "like tmp", sif
        self.target = self.directory / "x.sif"
        self.planted = self.directory / ".x.sif.fetching"
        self.directory.mkdir()
        self.directory.chmod(0o1777)
        self.neighbour, self.user = User(71_100, 71_100), User(71_101, 71_101)
        place.chmod(0o755)
        home = place / "home"
        home.mkdir()
        os.chown(home, self.user.uid, self.user.gid)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "SIFMOD_LOCK_LEASE": "60", "SIFMOD_SITE": "generic"}

    def words(self, verb: str, target: str = "x.sif") -> tuple[str | Path, ...]:
        return (verb, self.sif, *(("--to", "sif") if verb == "export" else ()), "-o", self.directory / target)

    def replace_all(self) -> None:
        """As the neighbour: whatever lies in the planted directory becomes a file of one's own."""
        if not os.access(self.planted, os.W_OK):
            return
        for name in os.listdir(self.planted):
            mine = shutil.copytree(self.planted / name, self.planted / os.urandom(4).hex(), symlinks=True)
            for file in mine.rglob("*.incoming"):
                file.write_text("evil")
            (self.planted / name).rename(self.planted / os.urandom(4).hex())
            mine.rename(self.planted / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as two users")
@pytest.mark.parametrize("verb", ["fetch", "export"])
def test_a_neighbour_in_a_sticky_directory_decides_nothing(shared_tmp: Path, images: Images, verb: str) -> None:
    sif = shared_tmp / "a.sif"
    sif.write_bytes(images.tiny("neighbours").read_bytes())
    here = Sticky(shared_tmp, sif)

    def plant() -> None:
        here.planted.mkdir()
        here.planted.chmod(0o777)

    call_as(here.neighbour, plant)
    who = (here.user.uid, here.user.gid, 0o002)
    with Victim(here.env) as victim:
        assert victim.warm(here.words(verb, "warm")).code == 0
        (here.directory / "warm").unlink()
        for back in range(1, 12):
            whole = victim.run(here.words(verb), who=who)
            assert whole.code == 0, whole.stderr
            here.target.unlink()
            outcome = victim.run(here.words(verb), "stopped", whole.steps - back, who=who)
            assert outcome.code is None
            call_as(here.neighbour, here.replace_all)
            ended = victim.resume(outcome)
            assert ended.code == 0, ended.stderr
            assert here.target.stat().st_uid == here.user.uid
            assert here.target.read_bytes() == sif.read_bytes()
            here.target.unlink()
            assert os.listdir(here.directory) == [here.planted.name]

        def plant_both() -> None:
            here.planted.with_name(f"{here.planted.name}-{here.user.uid}").mkdir()

        call_as(here.neighbour, plant_both)
        before = disk_state(here.directory)
        refused = victim.run(here.words(verb), who=who)
        assert refused.code == 25
        assert f"belongs to user {here.neighbour.uid}" in refused.stderr
        assert "hint: " in refused.stderr
        assert disk_state(here.directory) == before
        own = (here.neighbour.uid, here.neighbour.gid, 0o022)
        assert victim.run(here.words(verb), who=own).code == 0
        assert here.target.stat().st_uid == here.neighbour.uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as two users")
@pytest.mark.parametrize("verb", ["fetch", "export"])
def test_a_neighbour_who_takes_the_name_before_the_lock_is_held(shared_tmp: Path, images: Images, verb: str) -> None:
    """The directory was the user's when it was looked at; an earlier run of the user's has removed it since."""
    sif = shared_tmp / "a.sif"
    sif.write_bytes(images.tiny("neighbours").read_bytes())
    here, refused = Sticky(shared_tmp, sif), 0

    def plant() -> None:
        here.planted.mkdir()
        here.planted.chmod(0o777)

    with Victim(here.env) as victim:
        assert victim.warm(here.words(verb, "warm")).code == 0
        (here.directory / "warm").unlink()
        for step in range(1, 20):
            outcome = victim.run(here.words(verb), "stopped", step, who=(here.user.uid, here.user.gid, 0o022))
            taken = here.planted.is_dir() and not list(here.planted.iterdir())
            if taken:
                here.planted.rmdir()
                call_as(here.neighbour, plant)
            ended = victim.resume(outcome)
            assert ended.code == 0 or (taken and ended.code == 25), ended.stderr
            if ended.code:
                refused += 1
                assert f"{here.planted} belongs to user {here.neighbour.uid}" in ended.stderr
            assert here.target.exists() == (ended.code == 0)
            here.target.unlink(missing_ok=True)
            assert not taken or list(here.planted.iterdir()) == []
            for left in here.directory.iterdir():
                left.rmdir()
    assert refused


class Hosts:
    """Two hosts that fetch one SIF into one file, whose directory both see."""

    def __init__(self, place: Path, sif: Path, stack: ExitStack) -> None:
        self.target = place / "x.sif"
        self.words = ("fetch", "--prefix", place / "prefix", sif, "-o", self.target)
        self.content = sif.read_bytes()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "SIFMOD_LOCK_LEASE": "1"}
        victims = [stack.enter_context(Victim(self.env, *on_host(name))) for name in ("one", "two")]
        self.one, self.two = victims
        self.steps = self.one.run(self.words).steps
        self.target.unlink()

    def stopped(self, step: int) -> Outcome:
        """A run on the first host, stopped at this step."""
        outcome = self.one.run(self.words, "stopped", step)
        assert (outcome.code, outcome.steps) == (None, step)
        return outcome

    @property
    def held(self) -> bool:
        """Whether a run has its directory in the staging of the lock."""
        return any(self.target.parent.glob(".x.sif.fetching/.staging/*"))

    def check(self, before: tuple[object, ...] = ()) -> None:
        """The file is whole, and (as `before` says) still the same one; nothing lies beside it."""
        assert self.target.read_bytes() == self.content
        assert before in ((), file_state(self.target))
        assert [path.name for path in self.target.parent.rglob("*")] == ["x.sif"]
        self.target.unlink()


@pytest.fixture
def hosts(place: Path, images: Images) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(place, images.tiny_sif, stack)


def test_of_a_run_that_died_at_some_step_nothing_is_left(hosts: Hosts) -> None:
    """It is another host that finishes: it waits until the lease has run out, where the lock was held."""
    waited = 0
    for step in some(1, hosts.steps, 2):
        assert hosts.one.run(hosts.words, "killed", step).code == -9
        held = hosts.held
        outcome = (hosts.two if held and not waited else hosts.one).run((*hosts.words, "--force"))
        assert outcome.code == 0, outcome.stderr
        waited += held
        hosts.check()
    assert waited > 3


def test_a_run_that_is_overtaken_changes_nothing_more(hosts: Hosts) -> None:
    """Stopped for longer than its lease, on another host."""
    overtaken = 0
    for step in some(1, hosts.steps, 2):
        stopped = hosts.stopped(step)
        if not hosts.held:
            hosts.one.resume(stopped)
            hosts.target.unlink(missing_ok=True)
            continue
        outcome = hosts.two.run((*hosts.words, "--force"))
        assert outcome.code == 0, outcome.stderr
        before = file_state(hosts.target)
        woken = hosts.one.resume(stopped)
        if woken.code != 0:  # it had all but the end behind it
            overtaken += 1
            assert "fetch was taken over" in woken.stderr, woken.stderr
        hosts.check(before)
    assert overtaken > 2


def test_a_run_on_another_host_that_lives_is_waited_for(hosts: Hosts) -> None:
    hosts.env["SIFMOD_LOCK_LEASE"] = "60"
    with Victim(hosts.env, *on_host("one")) as one:
        for step in range(hosts.steps, 0, -1):
            stopped = one.run(hosts.words, "stopped", step)
            begun = any(path.stat().st_size for path in hosts.target.parent.rglob("*incoming*"))
            if begun and not hosts.target.exists():
                break
            one.resume(stopped)
            hosts.target.unlink(missing_ok=True)
        words = (*on_host("two"), *SIFMOD, *map(str, hosts.words))
        other = subprocess.Popen(words, env=hosts.env, stderr=subprocess.PIPE, text=True)
        assert other.stderr is not None
        said = [other.stderr.readline(), other.stderr.readline()]
        assert f"waiting for {hosts.target}, which process {stopped.pid} on one is working on" in said[1]
        assert one.resume(stopped).code == 0
        before = file_state(hosts.target)
        assert "exists already; nothing was written" in other.communicate()[1]
        assert other.returncode == 10
    hosts.check(before)


OUTPUTS = (
    "export Tiny/1 --to sif --force -o {}",
    "export Tiny/1 --to sqsh --force -o {}",
    "export Tiny/1 --to sandbox -o {}",
    "fetch {sif} --force -o {}",
    "lock Tiny-1.yaml -o {}",
    "stack lock stack.yaml -o {}",
    "stack bundle stack.yaml --no-wheels -o {}",
    "stack bundle stack.yaml --no-wheels -o {}.tar",
    "stack catalogue -o {}",
    "stack init {}",
    "import {shpc} --force -o {}.d",
    "sbom Tiny/1 -o {}",
    "jobscript Tiny/1 -o {}",
    "new {sif} --name New --version 3 -o {}",
    "site new hilltop -o {}",
    "test Tiny/1 --junit {}",
)


def test_no_output_replaces_a_file_of_a_tree(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither an image, a record nor a file of a generation or layer, by any path; elsewhere in the prefix is room."""
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.chdir(tmp_path)
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}"
    write(tmp_path / "Tiny-1.yaml", f"name: Tiny\nversion: '1'\naccelerator: none\n{image}\n")
    write(tmp_path / "stack.yaml", "name: small\neasyconfigs: [Tiny-1.yaml]\n")
    tags = f"{{'1': 'sha256:{'a' * 64}'}}"
    shpc = write(tmp_path / "shpc/tiny/container.yaml", f"docker: tiny\nlatest: {tags}\ntags: {tags}\n")
    assert run(["install", "Tiny-1.yaml", "--skip-sanity-check"]) == run(["stack", "lock", "stack.yaml"]) == 0
    (tmp_path / "to the store").symlink_to(prefix / "images")
    stored = next(prefix.glob("images/sha256/*.sif"))
    layer = write(tmp_path / "layers/Tiny/1/default/0/1/layer.json", "{}").with_name("layer.squashfs")
    outputs = (
        layer,
        prefix / "stacks/small.json",
        prefix / "stacks/small/stack.yaml",
        stored,
        tmp_path / "to the store/sha256" / stored.name,
        prefix / "images/sha256/new.sif",
        prefix / "software/Tiny/1/tiny.sif",
        prefix / "software/Tiny/1/bin",
        prefix / "modules/Tiny/1.lua",
        prefix / "log/store.log",
    )
    before = disk_state(prefix)
    for words in OUTPUTS:
        for output in outputs:
            line = [word.format(output, sif=images.tiny_sif, shpc=shpc) for word in words.split()]
            capfd.readouterr()
            assert run(line) == (10 if "sandbox" in line and output.exists() else 2), line
            assert "nothing was written" in capfd.readouterr().err
            after = disk_state(prefix)
            assert before.items() <= after.items(), line
            assert all("/.locks/" in path or path.endswith(".inventory.json") for path in after.keys() - before), line
    assert run(["sbom", "Tiny/1", "-o", str(prefix / "life")]) == 2  # which is not there yet
    other = str(tmp_path / "other")
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "small.tar"]) == 0
    assert run(["stack", "apply", "--bundle", "small.tar", "--prefix", other]) == 0
    assert run(["stack", "lock", f"{other}/stacks/small/stack.yaml", "--prefix", other]) == 0
    (tmp_path / "link.sif").symlink_to(stored)
    for free in (prefix / "tiny.sif", prefix / "user-software/Tiny/1/tiny.sif", tmp_path / "link.sif"):
        assert run(["export", "Tiny/1", "--to", "sif", "--force", "-o", str(free)]) == 0
        assert free.is_file()
    assert before.items() <= disk_state(prefix).items()
