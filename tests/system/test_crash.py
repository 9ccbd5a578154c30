"""kill -9 and failures at many steps and at random instants: old, none or new, never a mixture, and no litter.

At every step with SIFMOD_EVERY_STEP=1 (support/steps.py).
"""

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support import outlook
from support.images import Images
from support.steps import EVERY, some
from support.trial import VERBS, Trial, make_trial


@pytest.fixture(scope="module")
def trial(images: Images) -> Iterator[Trial]:
    """The five verbs, each with the tree that it starts from; in memory, where a thousand fsyncs cost nothing."""
    with TemporaryDirectory(dir="/dev/shm", prefix="sifmod-test-") as directory:
        yield from make_trial(images, Path(directory))


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_known_is_right(trial: Trial, verb: str) -> None:
    """The yardstick of this file: the verbs do what they are for, and a run that is not disturbed leaves no litter."""
    case = trial.cases[verb]
    trial.reset(case)
    assert outlook.seen(trial.prefix, trial.known) == case.may_be_seen[0]
    assert trial.victim.run(case.arguments).code == 0
    assert outlook.seen(trial.prefix, trial.known) == case.may_be_seen[-1]
    assert not any(path.startswith((".staging/", ".locks/")) for path in case.done)
    assert case.steps > 15
    assert len({str(content) for content in trial.known.contents.values()}) == 3


@pytest.mark.parametrize("verb", VERBS)
def test_kill_at_every_ninth_step(trial: Trial, verb: str) -> None:
    case = trial.cases[verb]
    found = []
    for step in some(1, case.steps, 9):
        trial.reset(case)
        outcome = trial.victim.run(case.arguments, "killed", step)
        assert (outcome.code, outcome.steps) == (-9, step)
        found.append(trial.check_and_finish(case))
    assert found[0] == case.may_be_seen[0]
    assert found == sorted(found, key=case.may_be_seen.index), "once it is new it stays new"


@pytest.mark.parametrize("verb", ["install", "rollback", "uninstall"])
def test_after_a_kill_the_next_run_of_any_verb_leaves_the_module_whole(trial: Trial, verb: str) -> None:
    """Between the switch and the stubs too: `verify` has nothing to say, and what is seen is the old or the new."""
    case = trial.cases[verb]
    found = []
    for step in some(max(1, case.steps - 40), case.steps, 3):
        trial.reset(case)
        assert trial.victim.run(case.arguments, "killed", step).code == -9
        before = outlook.seen(trial.prefix, trial.known)
        assert trial.victim.run(("gc", "--yes", "--prefix", trial.prefix)).code == 0
        found.append(outlook.seen(trial.prefix, trial.known))
        assert found[-1] in case.may_be_seen
        assert found[-1] == before or before == "none"
        assert trial.victim.run(("verify", "--prefix", trial.prefix)).code == 0, step
        assert list(trial.prefix.glob(".staging/*")) == []
        trial.check_and_finish(case)
    assert found == sorted(found, key=case.may_be_seen.index)
    assert {*found} == {*case.may_be_seen}


@pytest.mark.parametrize("verb", VERBS)
def test_kill_at_random_instants(trial: Trial, verb: str) -> None:
    """The seed is in the failure's output."""
    case = trial.cases[verb]
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(100 if EVERY else 5):
        trial.reset(case)
        trial.victim.run(case.arguments, "shot", delay=dice.uniform(0, 1.2 * case.seconds))
        trial.check_and_finish(case)


@pytest.mark.parametrize("verb", VERBS)
def test_a_failure_at_every_ninth_step(trial: Trial, verb: str) -> None:
    """As on a full disk or over quota, at each call that could meet it: an error, and all is as it was."""
    case = trial.cases[verb]
    failed = tried = 0
    little = verb in ("rollback", "uninstall")  # few of their steps need room: that of locks is no error
    for step in some(1, case.steps, 4 if little else 9):
        tried += 1
        trial.reset(case)
        before = visible(trial.prefix)
        outcome = trial.victim.run(case.arguments, "failing", step)
        if outcome.code != 0:
            failed += 1
            assert outcome.code in (10, 18), outcome.stderr
            assert "No space left on device" in outcome.stderr
            assert "Traceback" not in outcome.stderr
            assert list(trial.prefix.glob(".staging/*")) == []
            outlook.published_are_whole(trial.prefix, trial.known)
            if verb != "gc":  # which may have removed a part
                assert visible(trial.prefix) == before, outcome.stderr
        for left in trial.prefix.glob(".staging/*"):  # its removal has failed; the next run that writes removes it
            with suppress(OSError):  # its own module's is not empty, and goes now
                left.rmdir()
        trial.check_and_finish(case)
    assert failed >= (1 if little else tried / 3)


def test_what_could_not_be_removed_goes_with_the_next_holder(trial: Trial) -> None:
    """Also where the lock was forgotten meanwhile, whose numbers begin again."""
    case = trial.cases["reinstall"]
    trial.reset(case)
    for name in ("Tiny@1.0.1.00000000000000aa", f"image-{'a' * 64}.1.00000000000000aa"):
        (trial.prefix / ".staging" / name).mkdir(parents=True)
    trial.check_and_finish(case)


@pytest.mark.parametrize("verb", VERBS)
def test_a_request_to_end_at_every_eighteenth_step(trial: Trial, verb: str) -> None:
    """SIGTERM, as a batch system sends it: the run cleans up itself, and says so in its exit code."""
    case = trial.cases[verb]
    left = 0
    for step in some(1, case.steps, 18):
        trial.reset(case)
        outcome = trial.victim.run(case.arguments, "terminated", step)
        assert outcome.code in (0, 143), outcome.stderr
        assert "Traceback" not in outcome.stderr
        left += any(trial.prefix.glob(".staging/*"))
        trial.check_and_finish(case)
    assert left <= (8 if EVERY else 2), "only when the request comes during the cleaning up"


def visible(prefix: Path) -> dict[str, tuple[int, bytes]]:
    """What is in the tree, apart from locks and from images that wait for the next run."""
    found = {}
    for path in prefix.rglob("*"):
        if path.relative_to(prefix).parts[0] not in (".locks", ".staging", "images"):
            held = os.fsencode(os.readlink(path)) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
            found[str(path)] = (path.lstat().st_mode, held)
    return found
