"""`sifmod test` of several modules, of a stack and of a view: each is tested, and one summary ends the output."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sifmod.cli.main import run
from support.answer import answer, held
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.slurm import Slurm

IMAGE = "name: {0}\nversion: '1'\nwrappers: [cat]\nimage: {{sources: ['{1}']}}\nsanity_check: {{commands: ['{2}']}}\n"
VIEW = "name: course\nversion: '1'\ndescription: x\nmodules: [{}]\n"


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Good/1 and Fine/1, and Bad/1 whose check fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_LINK", "reference")
    for name, check in (("Good", "true"), ("Fine", "true"), ("Bad", "false")):
        write(tmp_path / f"{name}-1.yaml", IMAGE.format(name, images.tiny_sif, check))
        assert run(["install", "-q", "--skip-sanity-check", f"{name}-1.yaml"]) == 0
    write(tmp_path / "course-1.yaml", VIEW.format("Good, Bad/1"))
    return tmp_path


def outcomes(data: list[dict[str, object]]) -> dict[object, object]:
    return {one["module"]: one["passed"] for one in data}


def test_each_of_several_is_tested(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["test", "Bad", "Good", "--junit", "report.xml"]) == 22
    out, err = capfd.readouterr()
    blocks = [block.splitlines() for block in out.split("\n\n") if not block.startswith("sanity")]
    assert [(block[0], block[1].split()[:3]) for block in blocks if len(block) > 1] == [
        ("Bad/1:", ["failed", "sanity", "check"]),
        ("Good/1:", ["passed", "sanity", "check"]),
    ]
    assert err.splitlines()[-2:] == ["== 1 of 2 modules passed", "==   Bad/1: failed: sanity check"]
    assert "== Good/1: start …\n" in err
    suites = ElementTree.parse(here / "report.xml").getroot()
    found = [(suite.attrib["name"], suite.attrib["failures"]) for suite in suites]
    assert found == [("sifmod test Bad/1", "1"), ("sifmod test Good/1", "0")]
    assert outcomes(held("test", _json(capfd, 22, "Bad", "Good"))) == {"Bad/1": False, "Good/1": True}
    assert run(["test", "Good", "Fine"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "== 2 of 2 modules passed"
    assert answer(capfd, ("test", "Good"))["passed"]  # one module is no list
    assert any("test failed" in path.read_text() for path in (here / "prefix/log").rglob("*.log"))


def _json(capfd: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    capfd.readouterr()
    assert run(["test", *words, "--json"]) == code
    return capfd.readouterr().out


def test_a_name_that_fits_nothing_stops_before_the_first_test(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(here)
    assert run(["test", "Good", "Nothing"]) == 24
    assert capfd.readouterr().out == ""
    assert disk_state(here) == before


@pytest.mark.usefixtures("here")
def test_a_view_means_the_modules_that_it_loads(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "-q", "--skip-sanity-check", "course-1.yaml"]) == 0
    data = held("test", _json(capfd, 22, "course"))
    assert outcomes(data) == {"course/1": True, "Good/1": True, "Bad/1": False}
    assert data[0]["steps"][0]["text"] == "it loads Good/1, Bad/1"
    assert [one["module"] for one in held("test", _json(capfd, 22, "course", "Good"))].count("Good/1") == 1
    assert run(["uninstall", "Bad"]) == 0
    data = held("test", _json(capfd, 22, "course"))
    assert outcomes(data) == {"course/1": False, "Good/1": True}
    assert data[0]["steps"][0]["text"] == "not installed here: Bad/1"


def test_a_stack_is_tested_whole(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "More-1.yaml", IMAGE.format("More", images.tiny_sif, "true"))
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml, Bad-1.yaml, More-1.yaml]\n")
    data = held("test", _json(capfd, 22, "stack.yaml"))
    assert outcomes(data) == {"More/1": False, "Good/1": True, "Bad/1": False}
    missing = data[0]
    assert (missing["path"], missing["steps"][0]["text"]) == (None, "it is not installed")
    assert missing["steps"][0]["hint"] == "`sifmod stack apply stack.yaml` installs it"
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml, Wrong-1.yaml]\n")
    write(here / "Wrong-1.yaml", "name: Wrong\n")
    assert run(["test", "stack.yaml"]) == 5  # of the easyconfig; Good passed
    err = capfd.readouterr().err
    assert "Wrong-1.yaml" in err
    assert err.splitlines()[-1] == "== 1 of 1 module passed"
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml]\n")
    assert list(outcomes(held("test", _json(capfd, 0, "stack.yaml")))) == ["Good/1"]
    write(here / "stack.yaml", "easyconfigs: 5\n")
    assert run(["test", "stack.yaml"]) == 5


def test_several_in_one_job(slurm: Slurm, here: Path) -> None:
    write(here / "stack.yaml", "easyconfigs: [Fine-1.yaml]\n")
    done = slurm.run((*SIFMOD, "test", "Good", "Bad", "stack.yaml", "--job", "--json"), os.environ, here)
    assert (done.code, outcomes(json.loads(done.stdout))) == (22, {"Good/1": True, "Bad/1": False, "Fine/1": True}), (
        done
    )
    assert len(list(here.glob("sifmod-test-*.log"))) == 1  # it stays, since one failed
    done = slurm.run((*SIFMOD, "test", "Good", "Fine", "--job"), os.environ, here)
    assert (done.code, done.stderr.splitlines()[-1]) == (0, "== 2 of 2 modules passed"), done
