"""File systems that fail, or lack something: a clear error, and what was there still loads, or success.

A few of the calls that fuzz/file_system.py goes through one by one.
"""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from file_system import ERRORS, FULL, Bench, made_bench

from support import outlook
from support.fault_fs import NOBODY, WRITING, Rules
from support.images import Images
from support.module_tool import ModuleTool
from support.steps import EVERY
from support.trial import VERBS, Case
from support.victim import Outcome

MOUNT = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "true")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not there, or closed to this user")
    if subprocess.run(MOUNT, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user cannot have mounts of its own")
    with TemporaryDirectory(dir="/dev/shm", prefix="sifmod-fault-") as directory, made_bench(Path(directory)) as bench:
        yield bench


@pytest.fixture(autouse=True)
def _no_findings(bench: Bench) -> Iterator[None]:
    """Each test leaves the bench without any."""
    yield
    found = list(bench.findings)
    bench.findings.clear()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("verb", ["install", "reinstall"])
def test_a_call_that_fails(bench: Bench, verb: str, name: str) -> None:
    """The seed is in the failure's output. Of the calls that fail most do write."""
    kinds = WRITING if name in FULL else ()
    writing = [number for number, call in enumerate(bench.calls(verb), 1) if call.partition(" ")[0] in WRITING]
    numbers = range(1, len(writing) + 1) if name in FULL else writing
    seed = random.randrange(1 << 32)
    print("seed", seed)
    ends = [
        bench.attempt(verb, Rules(number, getattr(errno, name), kinds)).code
        for number in random.Random(seed).sample(numbers, 2 if EVERY else 1)
    ]
    assert set(ends) <= {0, 10, 18}


def test_what_a_purge_could_not_remove_at_first_is_removed(bench: Bench) -> None:
    """The module is gone then, so that a second purge would not come so far."""
    calls = bench.calls("purge")
    removals = [number for number, call in enumerate(calls, 1) if call.startswith("rmdir /tree/.staging/")]
    for number in removals[-2:]:
        assert bench.attempt("purge", Rules(number, errno.EIO)).code == 0


@pytest.mark.parametrize(
    ("verb", "decisive"),
    [
        (
            "uninstall",
            ("getattr /tree/modules/Tiny/1.0.lua", "readlink /tree/software/Tiny/1.0", "readlink /tree/.locks/"),
        ),
        ("rollback", ("getattr /tree/software/Tiny/.generations/1.0/1/modulefile.lua",)),
        ("rollback", ("flush /tree/software/Tiny/.generations/1.0/1/receipt.json",)),
        ("rebuild", ("access /tree/modules",)),
    ],
)
def test_what_decides_is_read_or_an_error(bench: Bench, verb: str, decisive: tuple[str, ...]) -> None:
    """A switch, a stub, a file or a lock that the disk does not give is not taken for one that is not there."""
    numbers = [number for number, call in enumerate(bench.calls(verb), 1) if call.startswith(decisive)]
    assert numbers
    for number in numbers[::3]:
        bench.attempt(verb, Rules(number, errno.EIO))


def test_a_receipt_that_is_not_read_never_loses_sight_of_what_the_user_added(bench: Bench) -> None:
    case = bench.trial.cases["reinstall"]
    live = bench.trial.prefix / "software" / "Tiny" / "1.0"

    def reinstall(rules: Rules) -> tuple[list[str], Outcome]:
        bench.trial.reset(case)
        (live / "mine").write_text("my own")
        with bench.file_system.under(rules) as calls:
            outcome = bench.trial.victim.run(case.arguments)
        assert (live / "mine").read_text() == "my own", outcome.stderr
        return calls, outcome

    calls, _ = reinstall(Rules())
    receipt = "/tree/software/Tiny/.generations/1.0/1/receipt.json"
    numbers = [number for number, call in enumerate(calls, 1) if call in (f"open {receipt}", f"read {receipt}")]
    assert len(numbers) > 1
    for number in numbers:
        assert reinstall(Rules(number, errno.EIO))[1].code in (0, 1, 18)


@pytest.mark.parametrize("kind", ["readlink", "read", "readdir"])
def test_gc_removes_nothing_where_the_disk_does_not_say_what_is_live(bench: Bench, kind: str) -> None:
    """With a switch or a history that cannot be read, all would be old."""
    case = bench.trial.cases["gc"]
    bench.trial.reset(case)
    before = outlook.paths(bench.trial.prefix)
    with bench.file_system.under(Rules(1, errno.EIO, (kind,), lasting=True)):
        outcome = bench.trial.victim.run((*case.arguments, "--rollbacks"))
    assert "Traceback" not in outcome.stderr
    assert outcome.code == 18, outcome.stderr
    assert outlook.paths(bench.trial.prefix) == before


def test_what_is_there_loads_after_every_failure(bench: Bench, lmod: ModuleTool) -> None:
    case = bench.trial.cases["reinstall"]
    calls = [call for call in bench.calls("reinstall") if call.partition(" ")[0] in WRITING]
    for number in range(len(calls), 0, -len(calls) // 4):
        bench.trial.reset(case)
        with bench.file_system.under(Rules(number, errno.EIO, WRITING, lasting=True)):
            assert bench.trial.victim.run(case.arguments).code in (0, 10, 18)
        step = lmod.run("module load Tiny/1.0", bench.trial.prefix / "modules")
        assert (step.code, step.stderr) == (0, "")
        assert step.environment["SINGULARITYENV_TAG"] == outlook.seen(bench.trial.prefix, bench.trial.known)


@pytest.mark.parametrize("verb", ["install", "reinstall", "fetch"])
def test_without_mknod(bench: Bench, verb: str) -> None:
    assert bench.attempt(verb, Rules(always={"mknod": errno.EPERM})).code == 0


def test_without_hard_links(bench: Bench) -> None:
    """What a user has added, and a file that is fetched, are copied and renamed."""
    case = bench.trial.cases["reinstall"]
    bench.trial.reset(case)
    image = Images().tiny("crash-a")
    live = bench.trial.prefix / "software" / "Tiny" / "1.0"
    (live / "mine").write_text("my own")
    fetched = bench.trial.prefix / "fetched.sif"
    with bench.file_system.under(Rules(always={"link": errno.EPERM})):
        for words in (case.arguments, ("fetch", image, "-o", fetched)):
            outcome = bench.trial.victim.run(words)
            assert outcome.code == 0, outcome.stderr
    assert (live / "mine").read_text() == "my own"
    assert fetched.read_bytes() == image.read_bytes()


@pytest.mark.parametrize("verb", ["reinstall", "gc"])
def test_slow_renames(bench: Bench, verb: str) -> None:
    assert bench.attempt(verb, Rules(slow={"rename": 0.2})).code == 0


def test_a_file_system_without_symlinks_is_refused(bench: Bench) -> None:
    """It is neither for leases nor for switches."""
    outcome = bench.attempt("install", Rules(error=errno.EPERM, always={"symlink": errno.EPERM}))
    assert outcome.code == 25, outcome.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_root_that_is_squashed_changes_nothing_of_others(bench: Bench, verb: str) -> None:
    """As on NFS: root may do what anybody may, and no more; the tree is another user's."""
    case = prepared(bench, verb, 0)
    before = outlook.paths(bench.trial.prefix)
    outcome = squashed(bench, case)
    assert outcome.code == 25, outcome.stderr
    assert "Permission denied" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outlook.paths(bench.trial.prefix) == before
    assert outlook.seen(bench.trial.prefix, bench.trial.known) == case.may_be_seen[0]
    for reader in ("verify", "list", "show") if before else ():
        prepared(bench, reader, 0)
        assert squashed(bench, bench.trial.cases[reader]).code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_root_that_is_squashed_works_in_a_tree_of_its_own(bench: Bench, verb: str) -> None:
    case = prepared(bench, verb, NOBODY)
    outcome = squashed(bench, case)
    assert outcome.code == 0, outcome.stderr
    assert outlook.seen(bench.trial.prefix, bench.trial.known) == case.may_be_seen[-1]
    assert outlook.paths(bench.trial.prefix) == case.done
    assert {path.lstat().st_uid for path in bench.trial.prefix.rglob("*")} == {NOBODY}


def prepared(bench: Bench, verb: str, owner: int) -> Case:
    """The tree that the verb starts from, of this owner; where there is none, a place that the owner may write to."""
    if os.geteuid() != 0:
        pytest.skip("only root can be squashed")
    case = bench.trial.cases[verb]
    bench.trial.reset(case)
    bench.trial.place.directory.chmod(0o755 if owner == 0 else 0o777)
    for path in (bench.trial.prefix, *bench.trial.prefix.rglob("*")):
        if os.path.lexists(path):
            os.chown(path, owner, owner, follow_symlinks=False)
    return case


def squashed(bench: Bench, case: Case) -> Outcome:
    """How the verb of root ends, who is nobody to the file system."""
    with bench.file_system.under(Rules(squash=True)):
        return bench.trial.victim.run(case.arguments)
