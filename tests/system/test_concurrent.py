"""Several runs at once, and runs that are killed cold: the command as a user starts it, nothing prepared."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import outlook
from support.command import SIFMOD, run
from support.identity import sifmod
from support.images import Images
from support.module_tool import ModuleTool
from support.outlook import Known
from support.trial import Place, make_place
from support.web import Web, answer

SEVERAL = 5


@pytest.fixture
def place(images: Images, tmp_path: Path) -> Place:
    (tmp_path / "place").mkdir()
    return make_place(images, tmp_path / "place")


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    server.start()
    yield server
    server.stop()


def start(place: Place, tag: str) -> subprocess.Popen[str]:
    command = [str(part) for part in (*SIFMOD, *place.install(tag))]
    return subprocess.Popen(command, env=place.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_five_at_once_fetch_once_and_make_one_generation(place: Place, images: Images, web: Web) -> None:
    web.answers["/tiny.sif"] = answer(200, images.tiny("crash-a").read_bytes())
    place.write("far", web.url("/tiny.sif"))
    runs = [start(place, "far") for _ in range(SEVERAL)]
    said = [run.communicate() for run in runs]
    assert [run.returncode for run in runs] == [0] * SEVERAL, said
    assert len(web.asked) == 1
    assert sum("installed, generation 1" in stderr for _, stderr in said) == 1
    assert len({stdout for stdout, _ in said}) == 1
    assert sorted(path.name for path in place.prefix.glob("software/Tiny/.generations/1.0/*")) == ["1", "history.json"]
    assert len(list(place.prefix.glob("images/sha256/*"))) == 2
    assert list(place.prefix.glob(".staging/*")) == []


def test_five_at_once_of_which_some_are_killed(place: Place, images: Images, web: Web) -> None:
    web.answers["/tiny.sif"] = answer(200, images.tiny("crash-a").read_bytes())
    place.write("far", web.url("/tiny.sif"))
    runs = [start(place, "far") for _ in range(SEVERAL)]
    for victim in runs[::2]:
        victim.kill()
    said = [run.communicate() for run in runs]
    assert [run.returncode for run in runs if run not in runs[::2]] == [0] * 2, said
    assert outlook.live_number(place.prefix) == "1"
    sifmod(place.install("far"), place.env, place.directory).ok()
    assert sorted(path.name for path in place.prefix.glob("software/Tiny/.generations/1.0/*")) == ["1", "history.json"]
    assert list(place.prefix.glob(".staging/*")) == []


def test_builds_of_one_module_at_once_follow_each_other(place: Place) -> None:
    runs = [start(place, tag) for tag in "abcabc"]
    assert [run.communicate() and run.returncode for run in runs] == [0] * 6
    numbers = sorted(int(path.name) for path in place.prefix.glob("software/Tiny/.generations/1.0/[0-9]*"))
    assert numbers == list(range(1, numbers[-1] + 1))
    sifmod(("verify", "--prefix", place.prefix), place.env, place.directory).ok()
    assert list(place.prefix.glob(".staging/*")) == []


def test_a_cold_reinstall_killed_by_its_system_calls(place: Place, lmod: ModuleTool) -> None:
    """strace kills the whole process at its Nth rename; Lmod then loads the old or the new build."""
    for tag in "ba":
        sifmod(place.install(tag), place.env, place.directory).ok()
    known = Known(
        {"a": outlook.generation(place.prefix, "2"), "b": outlook.generation(place.prefix, "1")},
        (place.prefix / "modules" / "Tiny" / "1.0.lua").read_bytes(),
    )
    outlook.copy(place.prefix, place.directory / "before")
    loaded = []
    for number in range(1, 100):
        outlook.copy(place.directory / "before", place.prefix)
        kill = f"inject=renameat:signal=KILL:when={number}"
        strace = ("/usr/bin/strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=renameat", "-e", kill)
        result = run((*strace, *SIFMOD, *place.install("b"), "--rebuild"), env=place.env)
        step = lmod.run("module load Tiny/1.0", place.prefix / "modules")
        assert (step.code, step.stderr) == (0, "")
        loaded.append(step.environment["SINGULARITYENV_TAG"])
        assert outlook.seen(place.prefix, known) == loaded[-1]
        if result.code == 0:
            break
        assert result.code == -9, result
        sifmod(place.install("b"), place.env, place.directory).ok()
        assert outlook.seen(place.prefix, known) == "b"
        assert list(place.prefix.glob(".staging/*")) == []
    assert loaded == sorted(loaded)
    assert loaded[0] == "a"
    assert loaded[-1] == "b"
    assert len(loaded) > 3
