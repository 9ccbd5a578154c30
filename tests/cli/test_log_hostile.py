"""A log that other members of a group have written: damaged lines are left out, and nothing leads out of the tree."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from support.disk_state import disk_state
from support.images import Images
from support.tree import MODULE
from support.trial import Place, make_place


@pytest.fixture
def place(images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = make_place(images, tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(made.prefix))
    return made


@pytest.fixture
def layout(place: Place) -> Layout:
    return Layout(place.prefix)


def line(**other: Any) -> str:
    fields = {
        "time": "2026-11-22T07:20:27.123Z",
        "user": "ann",
        "uid": 7,
        "login": None,
        "host": "n1",
        "sifmod": "1",
        "command": "x",
        "what": "installed",
        "module": "Tiny/1.0",
        "from": None,
        "to": 1,
        "image": None,
        "size": None,
        "layer": None,
    }
    return json.dumps({**fields, **other})


WRONG = {
    "deep": "[" * 4000,
    "deep in a field": '{"time": ' + "[" * 3000,
    "no JSON": "installed",
    "a number": "7",
    "a list": "[]",
    "bytes": "\x80\xff",
    "long": line(command="x" * 5000),
    "empty": "{}",
    "steering": line(user="\x1b]0;owned\x07"),
    "a second row": line(host="n1\n2026-11-22 07:20  root  n1  removed all"),
    "right to left": line(what="\u202einstalled"),
    "half a surrogate pair": line(command="\ud800"),
    "another module": line(module="Other/1.0"),
    "no module": line(module=None),
    "a module that is a list": line(module=["Tiny/1.0"]),
    "a user that is a number": line(user=7),
    "a uid that is true": line(uid=True),
    "a uid below 0": line(uid=-1),
    "a generation that is a text": line(to="1"),
    "a huge generation": line(to=1 << 80),
    "a digest that is a path": line(image="../x"),
    "another clock": line(time="yesterday"),
    "infinity": line(size=float("inf")),
}


@pytest.mark.parametrize("planted", WRONG.values(), ids=WRONG.keys())
def test_a_line_that_no_sifmod_writes_is_left_out(
    layout: Layout, planted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = layout.log(MODULE)
    path.parent.mkdir(parents=True)
    path.write_bytes(f"{line()}\n{planted}\n{line(to=2)}\n".encode("utf-8", "surrogatepass"))
    assert run(["log"]) == 0
    out, err = capfd.readouterr()
    assert [row.split("  ")[3][-1] for row in out.splitlines()] == ["1", "2"]
    assert err == f"== warning: 1 line of the log {path} cannot be read\n"
    assert run(["log", "--json"]) == 0
    assert [row["generation"] for row in json.loads(capfd.readouterr().out)] == [1, 2]


def huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)
        file.seek(0, os.SEEK_END)
        file.write(f"\n{line(to=5)}\n".encode())


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / ".bashrc")


def hard_link(path: Path, outside: Path) -> None:
    path.hardlink_to(outside / ".bashrc")


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


def linked_directory(path: Path, outside: Path) -> None:
    path.parent.rmdir()
    path.parent.symlink_to(outside)


@pytest.mark.parametrize("plant", [huge, link, hard_link, pipe, directory, linked_directory])
def test_whatever_lies_in_its_place_the_verbs_go_on(
    place: Place, layout: Layout, plant: Callable[[Path, Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    outside = place.directory / "outside"
    outside.mkdir()
    (outside / ".bashrc").write_text("mine\n")
    before = disk_state(outside)
    path = layout.log(MODULE)
    path.parent.mkdir(parents=True)
    plant(path, outside)
    assert run([str(word) for word in place.install("a")]) == 0
    said = capfd.readouterr().err
    assert ("warning: the change was made but not logged: " in said) == (plant is not huge)
    assert run(["log"]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == (2 if plant is huge else 0)
    assert err.startswith("== warning: ")
    if plant is hard_link:
        (outside / "more").hardlink_to(path)
        path.unlink()
        (outside / "more").unlink()
    assert {name: state[:2] for name, state in disk_state(outside).items()} == {
        name: state[:2] for name, state in before.items()
    }
    assert (outside / ".bashrc").read_text() == "mine\n"
