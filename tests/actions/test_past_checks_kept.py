"""What sanity checks have found, as it is kept: who may write it, how long it counts, and where there is no room."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.counted import CountedMachine
from support.images import Images
from support.small_disk import filled, small_disk

SANITY_CHECK_FAILED = 22


@pytest.fixture
def machine(tmp_path: Path, images: Images) -> CountedMachine:
    image = tmp_path / "image.sif"
    shutil.copy(images.tiny_sif, image)
    return CountedMachine(tmp_path, image)


@pytest.fixture
def known(machine: CountedMachine) -> CountedMachine:
    """The module is installed, and what was found is kept."""
    machine.write()
    machine.install().ok()
    assert machine.started() == 1
    return machine


def _plant(answer: Path) -> None:
    data = json.loads(answer.read_text())
    answer.write_text(json.dumps({**data, "found": [*data["found"], "no-such"]}))


def _directory(answer: Path) -> None:
    answer.unlink()
    answer.mkdir()


def _pipe(answer: Path) -> None:
    answer.unlink()
    os.mkfifo(answer)


def _link(answer: Path) -> None:
    answer.rename(answer.parents[1] / "elsewhere")
    answer.symlink_to("../elsewhere")


def _given_away(path: Path) -> None:
    os.chown(path, 12345, 12345)


def _old(answer: Path) -> None:
    os.utime(answer, (0, 0))


def _from_tomorrow(answer: Path) -> None:
    os.utime(answer, (4e9, 4e9))


def _moved(answer: Path) -> None:
    """The answer to another question."""
    answer.write_text(answer.read_text().replace(answer.name, "0" * 64))


def _linked_directory(answer: Path) -> None:
    answer.parent.rename(answer.parents[1] / "own")
    answer.parent.symlink_to("own")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "empty": lambda answer: answer.write_text(""),
    "cut off": lambda answer: answer.write_text(answer.read_text()[:-3]),
    "binary": lambda answer: answer.write_bytes(bytes(range(256))),
    "deep": lambda answer: answer.write_text("[" * 100_000),
    "another type": lambda answer: answer.write_text('["no-such"]'),
    "numbers": lambda answer: answer.write_text(json.dumps({"of": answer.name, "found": [["no-such"], 1]})),
    "a text": lambda answer: answer.write_text(json.dumps({"of": answer.name, "found": 1})),
    "large": lambda answer: answer.write_text(answer.read_text() + " " * (1 << 20)),
    "a directory": _directory,
    "a pipe": _pipe,
    "a link": _link,
    "of another question": _moved,
    "old": _old,
    "from tomorrow": _from_tomorrow,
    "open to the group": lambda answer: answer.parent.chmod(0o750),
    "open to all": lambda answer: answer.parent.chmod(0o705),
    "behind a link": _linked_directory,
}
FOREIGN: dict[str, Callable[[Path], object]] = {
    "the answer": _given_away,
    "its directory": lambda answer: _given_away(answer.parent),
}


def test_a_planted_answer_in_ones_own_directory_is_believed(known: CountedMachine) -> None:
    """So the tests below would see it if a hostile one was."""
    known.write(wrappers="sh, no-such")
    _plant(known.answers[0])
    known.install().ok()
    assert known.started() == 0


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_answer_is_not_believed(known: CountedMachine, how: str) -> None:
    _refused(known, HOSTILE[how])


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.usefixtures("needs_root")
def test_an_answer_of_another_user_is_not_believed(known: CountedMachine, what: str) -> None:
    _refused(known, FOREIGN[what])


def _refused(known: CountedMachine, change: Callable[[Path], object]) -> None:
    _plant(known.answers[0])
    change(known.answers[0])
    before = known.state
    known.write(wrappers="sh, no-such")
    done = known.install()
    assert (done.code, known.started()) == (SANITY_CHECK_FAILED, 1)
    assert known.state == before
    known.write(description="another")
    known.install().ok()


@pytest.mark.parametrize("cache", ["/proc", "/dev/null"])
def test_where_nothing_can_be_kept_it_is_looked_for_each_time(machine: CountedMachine, cache: str) -> None:
    machine.env["XDG_CACHE_HOME"] = cache
    machine.write()
    machine.install().ok()
    assert machine.started() == 1
    assert machine.again() == 1


def test_a_full_disk_only_means_that_nothing_is_kept(machine: CountedMachine, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        machine.env["XDG_CACHE_HOME"] = str(disk / "cache")
        (disk / "cache").mkdir()
        machine.write()
        with filled(disk / "ballast", 0):
            machine.install().ok()
            assert machine.started() == 1
            assert machine.again() == 1
        machine.write(description="a third")
        machine.install().ok()
        assert machine.started() == 1
        assert machine.again() == 0


def test_answers_are_bounded(known: CountedMachine) -> None:
    """Old ones go, what a killed run has left too, and of too many the oldest."""
    for number in range(4200):
        path = known.cache / f"{number:064x}"
        path.touch()
        os.utime(path, (path.stat().st_mtime - 4300 + number,) * 2)
    left = known.cache / ".left"
    left.touch()
    os.utime(left, (0, 0))
    assert known.again(wrappers="cat") == 1
    names = [path.name for path in known.answers]
    assert len(names) + 256 == 4096  # with the locks, one for each first two digits
    assert f"{4199:064x}" in names
    assert f"{0:064x}" not in names
    assert ".left" not in names
