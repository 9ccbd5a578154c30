"""Whose layers go out of use is said before an image is replaced, and how they are made for the next one."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.tree.layer import Layer
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.published import published

TEXT = """\
name: App
version: '1'
image: {{filename: app.sif, sources: [{source}]{promise}}}
wrappers: [sh, python]
"""
STACK = "name: team\neasyconfigs: [App-1.yaml]\n"


class Place:
    """A prefix with App/1, its stack, and a layer for its image in the prefix and one in a directory of a project."""

    def __init__(self, top: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
        self.top, self.capfd = top, capfd
        self.first, self.second = images.tiny_sif, images.tiny("other")
        self.prefix, self.project = top / "prefix", top / "pro ject"
        write(top / "team.yaml", STACK)
        self.asks(self.first)
        assert self.says("install", "App-1.yaml", "--skip-sanity-check")[0] == 0
        self.own = self.layer(self.prefix, self.first)
        self.of_project = published(
            self.project, image=sha256_file(self.first), name="mine", module=ModuleName("App", "1")
        )

    def layer(self, prefix: Path, image: Path) -> Layer:
        return published(prefix, image=sha256_file(image), module=ModuleName("App", "1"))

    def asks(self, image: Path, *, promised: bool = False) -> None:
        promise = f", sha256: {sha256_file(image)}" if promised else ""
        write(self.top / "App-1.yaml", TEXT.format(source=image, promise=promise))

    def says(self, *words: str) -> tuple[int, str, str]:
        self.capfd.readouterr()
        code = run(list(words))
        return code, *self.capfd.readouterr()


@pytest.fixture
def place(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_LAYERS", str(tmp_path / "pro ject" / "layers"))
    return Place(tmp_path, images, capfd)


@pytest.mark.parametrize("promised", [False, True])
def test_it_is_said_beforehand_and_afterwards(place: Place, promised: bool) -> None:
    place.asks(place.second, promised=promised)
    gets = "gets" if promised else "may get"
    own = "sifmod add App/1 --onto App/1"
    of_project = f"sifmod add App/1 --onto App/1 --layer mine --dir '{place.project}/layers'"
    expected = [
        f"warning: App/1 {gets} another image, which its layer {name} does not fit; afterwards run `{command}` to "
        "rebuild the layer"
        for name, command in (("mine", of_project), ("default", own))
    ]
    rows = [
        {"module": "App/1", "layer": one.name, "path": one.root, "command": command, "certain": promised}
        for one, command in ((place.of_project, of_project), (place.own, own))
    ]
    before = disk_state(place.top)
    code, out, _ = place.says("stack", "plan", "team.yaml")
    assert code == 0
    assert out.splitlines()[-2:] == expected
    _, out, _ = place.says("stack", "plan", "team.yaml", "--json")
    assert json.loads(out)["members"][0]["outgoing_layers"] == rows
    _, out, _ = place.says("install", "--dry-run", "App-1.yaml")
    assert [line.strip() for line in out.splitlines() if "another image" in line] == expected
    _, out, _ = place.says("install", "-D", "App-1.yaml", "--json")
    assert json.loads(out)[0]["outgoing_layers"] == rows
    assert disk_state(place.top) == before

    code, _, said = place.says("install", "App-1.yaml", "--skip-sanity-check")
    lines = [line.removeprefix("== ") for line in said.splitlines()]
    assert code == 0
    assert [line for line in lines if "another image" in line] == expected
    assert lines.index(expected[-1]) < next(number for number, line in enumerate(lines) if "copying" in line)
    assert lines[-2:] == [
        f"the layer mine is for the earlier image: `{of_project}` rebuilds it for the new one",
        f"the layer default is for the earlier image: `{own}` rebuilds it for the new one",
    ]


def test_a_stack_that_is_applied_says_it_before_the_first_install(place: Place) -> None:
    place.asks(place.second)
    code, _, said = place.says("stack", "apply", "team.yaml", "--skip-sanity-check")
    assert code == 0
    assert said.index("may get another image, which its layer default") < said.index("[1/1] App/1: installed")


def test_what_is_installed_says_it_in_json(place: Place) -> None:
    place.asks(place.second)
    _, out, _ = place.says("install", "App-1.yaml", "--skip-sanity-check", "--json")
    assert [row["layer"] for row in json.loads(out)[0]["outgoing_layers"]] == ["mine", "default"]
    _, out, _ = place.says("install", "App-1.yaml", "--skip-sanity-check", "--json", "--rebuild")
    assert json.loads(out)[0]["outgoing_layers"] == []


def test_the_same_image_leaves_every_layer(place: Place) -> None:
    """A text that changes, the same image by another path, a promise of it, and layers for another image alone."""
    (copy := place.top / "copy.sif").write_bytes(place.first.read_bytes())
    for source, promised in ((place.first, True), (copy, True)):
        place.asks(source, promised=promised)
        for words in (("stack", "plan", "team.yaml"), ("install", "App-1.yaml", "--skip-sanity-check")):
            assert "does not fit" not in "".join(map(str, place.says(*words)))
            assert "earlier image" not in "".join(map(str, place.says(*words)))
    place.asks(copy)
    assert "may get another image" in place.says("stack", "plan", "team.yaml")[1]
    said = place.says("install", "App-1.yaml", "--skip-sanity-check")[2]
    assert "is for the earlier image" not in said  # it was the same one
