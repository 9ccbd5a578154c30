"""A lock is all or nothing: what would be another file is refused when it is planned, before anything is changed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from support.config import write
from support.disk_state import disk_state
from support.images import Images

QUIRK = "description: a test\nreason: a test\nlink: here\nmatch: {{name: {}}}\nenv: {{QUIRKY: 'yes'}}\n"


class Promoted:
    """A stack of two modules, installed in staging and locked; the second finds its wrappers in its image."""

    def __init__(self, here: Path, source: Path) -> None:
        self.here, self.staging, self.production = here, here / "sta ging", here / "pro duction"
        image = f"image: {{sources: ['{source}'], filename: tiny.sif}}\n"
        write(here / "Aaa-1.yaml", f"name: Aaa\nversion: '1'\n{image}wrappers: [sh]\n")
        write(here / "Bbb-2.yaml", f"name: Bbb\nversion: '2'\n{image}wrappers: auto\npath: [/bin]\n")
        self.site = write(here / "site.yaml", "name: ours\n")
        write(here / "stack.yaml", "name: small\neasyconfigs: [Aaa-1.yaml, Bbb-2.yaml]\n")
        assert run(["stack", "apply", *self.words(self.staging)]) == 0
        assert run(["stack", "lock", "stack.yaml", "--site", str(self.site), "--prefix", str(self.staging)]) == 0

    def words(self, prefix: Path) -> list[str]:
        return ["stack.yaml", "--skip-sanity-check", "--site", str(self.site), "--prefix", str(prefix)]

    def run(self, verb: str, *more: str) -> int:
        return run(["stack", verb, *self.words(self.production), "--locked", *more])

    def promote(self, verb: str, *more: str) -> int:
        return self.run(verb, "--from", str(self.staging), *more)

    def installed(self) -> list[str]:
        return [str(one.module) for one in installations(Layout(self.production))]


@pytest.fixture
def promoted(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Promoted:
    here = tmp_path / "a place"
    here.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(here / "own"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "settings"))
    monkeypatch.chdir(here)
    return Promoted(here, images.tiny_sif)


def a_variable(promoted: Promoted) -> None:
    """The site sets a variable in each module."""
    promoted.site.write_text("name: ours\nenv: {A: b}\n")


def a_quirk(promoted: Promoted) -> None:
    """For the second module alone: the first would be as the lock says."""
    write(promoted.here / "settings/sifmod/quirks/own.yaml", QUIRK.format("Bbb"))


@pytest.mark.parametrize("change", [a_variable, a_quirk])
@pytest.mark.parametrize("images_there", [True, False])
def test_other_files_are_refused_before_anything_is_installed(
    promoted: Promoted, change: Callable[[Promoted], None], *, images_there: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """T4: Aaa was installed and Bbb refused then, and `plan` said "2 new"."""
    change(promoted)
    act = promoted.promote if images_there else promoted.run
    before = disk_state(promoted.here)
    capfd.readouterr()
    assert act("plan", "--json") == 18
    rows = {row["module"]: row for row in json.loads(capfd.readouterr().out)["members"]}
    assert rows["Bbb/2"]["mark"] == "!"
    assert "Bbb/2: does not match the lock: " in json.dumps(rows["Bbb/2"])
    assert (rows["Aaa/1"]["mark"] == "!") == (change is a_variable)
    assert disk_state(promoted.here) == before
    assert act("apply") == 18
    assert promoted.installed() == []
    assert not (promoted.production / "modules").exists()
    assert "would differ; changed since the lock was written: " in capfd.readouterr().err


def a_comment(promoted: Promoted) -> None:
    promoted.site.write_text("# ours\nname: ours\n")


def another_name(promoted: Promoted) -> None:
    write(promoted.here / "settings/sifmod/quirks/own.yaml", QUIRK.format("Zzz"))


def one_more_site(promoted: Promoted) -> None:
    write(promoted.here / "settings/sifmod/sites/new.yaml", "name: new\nprefix: /elsewhere\n")


@pytest.mark.parametrize("change", [a_comment, another_name, one_more_site])
def test_inputs_that_change_no_file_are_named_and_all_is_installed(
    promoted: Promoted, change: Callable[[Promoted], None], capfd: pytest.CaptureFixture[str]
) -> None:
    change(promoted)
    capfd.readouterr()
    assert promoted.promote("plan", "--json") == 0
    rows = json.loads(capfd.readouterr().out)["members"]
    assert promoted.promote("apply") == 0
    assert promoted.installed() == ["Aaa/1", "Bbb/2"]
    told = capfd.readouterr().err
    if change is not one_more_site:  # a site that nothing asks for is no input
        assert all("changed since the lock was written: " in " ".join(row["why"]) for row in rows)
        assert "changed since the lock was written: " in told


def test_a_lock_without_what_was_found_asks_the_image(promoted: Promoted, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the image is nowhere, plan says what is left to the install."""
    path = promoted.here / "stack.lock"
    lock = json.loads(path.read_text())
    for row in lock["modules"]:
        row["image"].pop("commands", None)
        del row["image"]["mpi"]
    path.write_text(json.dumps(lock))
    assert promoted.promote("plan") == 0
    assert "image-dependent files" not in capfd.readouterr().out
    assert promoted.run("plan") == 0
    assert capfd.readouterr().out.count("image-dependent files are compared with the lock during the install") == 2
    a_quirk(promoted)
    assert promoted.promote("plan") == 18
    assert promoted.promote("apply") == 18
    assert promoted.installed() == []
