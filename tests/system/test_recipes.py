"""The recipes of CONTRIBUTING.md: what they name exists, and their files check and install as written there."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import click
import pytest
from click.testing import CliRunner

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.artifact import Fetching, ImageStore, no_progress
from sifmod.image.reference import SourceKind
from sifmod.module.plan import ImagePlan, Runtime
from support.images import Images

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
# `easyconfigs/sites/x.yaml`, at the beginning of a line, and the block below it
FILES = dict(re.findall(r"^`(easyconfigs/\S+\.yaml)`[^\n]*\n\n```yaml\n(.*?)```$", TEXT, re.DOTALL | re.M))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The recipes' files in a directory of one's own, by the folder that each lies in."""
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(tmp_path / "easyconfigs"))
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "easyconfigs"))
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    found = {}
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        found[path.parent.name] = path
    return found


def test_the_files_of_the_recipes_are_found() -> None:
    assert sorted(Path(name).parent.name for name in FILES) == ["Busybox", "presets", "quirks", "sites"]


def test_the_files_of_the_recipes_check(written: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *(str(written[kind]) for kind in ("Busybox", "sites", "quirks")), "--site", "hilltop"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ok: ")[2] for line in said] == ["Busybox/1.36", "a site", "a quirk"]


def test_the_easyconfig_of_the_recipe_installs(
    written: dict[str, Path], tmp_path: Path, images: Images, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its preset, site and quirk; a small image of the tests stands in for the one on Docker Hub."""
    words = ["install", written["Busybox"].name, "--site", "hilltop", "--source", str(images.tiny_sif)]
    assert run(words) == 0, capsys.readouterr().err
    software = tmp_path / "prefix" / "software" / "Busybox" / "1.36"
    assert {"sh", "cat", "start-shell"} <= {path.name for path in (software / "bin").iterdir()}
    assert 'HILLTOP_QUEUE = "long"' in (software / "modulefile.lua").read_text()


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:sifmod|tests|docs|scripts|easyconfigs)/[\w./-]+)`", TEXT)))
)
def test_a_path_that_is_named_is_there(path: str) -> None:
    assert path in FILES or (ROOT / path).exists()


@pytest.mark.parametrize("command", ["scripts/test", "scripts/test FAST", "scripts/test LINT"])
def test_a_way_to_run_the_tests_is_one_of_the_scripts(command: str) -> None:
    assert f"`{command}`" in TEXT
    assert f"\n#   {command}  " in (ROOT / "scripts" / "test").read_text()


def block(heading: str) -> dict[str, object]:
    """What the Python of a recipe defines."""
    code = re.findall(rf"^## {heading}\n.*?^```python\n(.*?)^```", TEXT, re.DOTALL | re.M)[0]
    defined: dict[str, object] = {"__name__": "recipe"}
    exec(compile(code, heading, "exec"), defined)
    return defined


def test_the_source_kind_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = block("Add a source kind")["MIRROR"]
    assert isinstance(kind, SourceKind)
    reference = kind.reference(kind.example)
    assert (reference.kind, reference.location, kind.is_file, kind.resumable) == (kind, "ai/x.sif", True, True)
    monkeypatch.delenv("IMAGE_MIRROR", raising=False)
    image = ImagePlan("x.sif", (kind.example,), (), None, None, "amd64", "copy", offline=False)
    untouched = cast(ImageStore, None)
    with pytest.raises(FetchError, match="IMAGE_MIRROR names no web server"):
        asked = (reference, image, Runtime("apptainer", ""), untouched, no_progress)
        kind.fetch(Fetching(*asked, incoming=tmp_path / "x.sif", partial=tmp_path / "partial"))


def test_the_command_of_the_recipe_explains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sifmod.actions.where", ModuleType("where"))  # the recipe's other file
    command = block("Add a command")["where_command"]
    assert isinstance(command, click.Command)
    assert "Print the directory that holds the modules." in CliRunner().invoke(command, ["--help"]).output
