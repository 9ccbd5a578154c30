"""wrappers: auto through `sifmod install`: found once for each image, and kept in the receipt."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.install import found_in_image as action
from sifmod.cli.main import run as sifmod
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live
from support.command import run
from support.disk_state import disk_state
from support.images import Images
from support.oci import Entry
from support.runtime import RUNTIME

HOME = "opt/miniconda3/envs/tools"
SCRIPT = b'#!/bin/sh\necho "$0 $*"\n'
ENTRIES = (
    *(Entry(f"{HOME}/bin/{name}", SCRIPT) for name in ("python", "python3", "pip", "mine", "ls", "git")),
    Entry("opt/miniconda3/bin/activate", b"", mode=0o644),
)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a prefix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(path))
    return path


@pytest.fixture
def easyconfig(tmp_path: Path, images: Images) -> Path:
    return write(tmp_path, images.tiny("auto-install", entries=ENTRIES), "auto")


def write(directory: Path, sif: Path, wrappers: str, more: str = "") -> Path:
    path = directory / "Tools-1.0.yaml"
    path.write_text(
        f"name: Tools\nversion: '1.0'\ndescription: Tools\nimage: {{sources: ['{sif}']}}\n"
        f"conda: {{prefix: /opt/miniconda3, env: tools}}\nwrappers: {wrappers}\n{more}"
    )
    return path


def installed(prefix: Path) -> Installation:
    found = live(Layout(prefix), ModuleName("Tools", "1.0"))
    assert found is not None
    return found


def commands(prefix: Path) -> set[str]:
    root = Path(installed(prefix).root)
    assert {path.name for path in (root / "bin").iterdir()} == {
        file.path.removeprefix("bin/") for file in installed(prefix).files if file.path.startswith("bin/")
    }
    return {path.name for path in (root / "bin").iterdir()}


FOUND = {"python", "python3", "pip", "mine", "start-shell", "list-packages"}


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nobody looks into an image."""

    def fail(*_: object) -> None:
        raise AssertionError("the image is looked into again")

    monkeypatch.setattr(action, "_search_commands", fail)


def test_what_is_in_the_image_becomes_commands(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sifmod(["install", str(easyconfig)]) == 0
    assert commands(prefix) == FOUND
    said = capfd.readouterr().err
    assert (
        "wrappers found in the image: python, python3, pip, mine, start-shell, list-packages; left to the host" in said
    )
    assert "unless `wrappers` names them: git\n" in said
    root = Path(installed(prefix).root)
    result = run((root / "bin" / "mine", "a b"), env={"PATH": os.environ["PATH"], **RUNTIME.userns}).ok()
    assert (result.stdout, result.stderr) == (f"/{HOME}/bin/mine a b\n", "")
    assert (root / "runscripts" / "list-packages").is_file()


def test_names_that_no_wrapper_can_have_are_said(
    tmp_path: Path, images: Images, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = (Entry(f"{HOME}/bin/{name}", SCRIPT) for name in ("-x", "two words", "nice;rm", "\x1b[31m"))
    assert sifmod(["install", str(write(tmp_path, images.tiny("auto-odd", entries=(*ENTRIES, *odd)), "auto"))]) == 0
    assert commands(prefix) == FOUND
    said = capfd.readouterr().err
    assert (
        "names them: git; skipped, because these cannot be wrapper names: '\\x1b[31m', '-x', 'nice;rm', 'two words'\n"
        in said
    )


def test_a_path_in_the_image_is_one_word(easyconfig: Path, prefix: Path) -> None:
    """A quotation mark in it, which an image or the receipt of another member may have, gave a traceback."""
    assert sifmod(["install", str(easyconfig)]) == 0
    receipt = Path(installed(prefix).root, "receipt.json")
    receipt.chmod(0o644)
    receipt.write_text(receipt.read_text().replace(" pip ", f" pip=/{HOME}/bin/it's "))
    assert sifmod(["install", str(easyconfig), "--rebuild", "--skip-sanity-check"]) == 0
    assert commands(prefix) == FOUND
    result = run((Path(installed(prefix).root, "bin", "pip"),), env={"PATH": os.environ["PATH"], **RUNTIME.userns})
    assert f"/{HOME}/bin/it's" in result.stderr


def test_named_ones_are_had_in_any_case(
    tmp_path: Path, images: Images, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig = write(tmp_path, images.tiny("auto-install", entries=ENTRIES), "[ls, auto]")
    assert sifmod(["install", str(easyconfig)]) == 0
    assert commands(prefix) == {*FOUND, "ls"}
    assert "names them: git\n" in capfd.readouterr().err


def test_a_repeated_install_looks_at_no_image(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert sifmod(["install", str(easyconfig)]) == 0
    before, receipt = disk_state(prefix), installed(prefix)
    request.getfixturevalue("unreadable")
    capfd.readouterr()
    assert sifmod(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err
    assert disk_state(prefix) == before
    easyconfig.write_text(f"# a comment\n{easyconfig.read_text()}")  # parsed again, and planned the same
    assert sifmod(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err
    again = installed(prefix)  # which names the easyconfig as it is now
    assert replace(again, provenance=receipt.provenance) == receipt
    assert again.provenance[-3:] == receipt.provenance[-3:]


def test_the_receipt_completes_the_next_generation(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert sifmod(["install", str(easyconfig)]) == 0
    request.getfixturevalue("unreadable")
    capfd.readouterr()
    easyconfig.write_text(f"{easyconfig.read_text()}env: {{COLOUR: blue}}\n")
    for words in (("install",), ("install", "--rebuild"), ("install", "--module-only", "--rebuild")):
        assert sifmod([*words, str(easyconfig)]) == 0
        assert commands(prefix) == FOUND
        assert "wrappers found" not in capfd.readouterr().err
    assert installed(prefix).generation == 4
    assert installed(prefix).provenance.image.commands


def test_another_image_is_looked_at(tmp_path: Path, images: Images, prefix: Path, easyconfig: Path) -> None:
    assert sifmod(["install", "-q", str(easyconfig)]) == 0
    other = images.tiny("auto-other", entries=(*ENTRIES, Entry(f"{HOME}/bin/new", SCRIPT)))
    assert sifmod(["install", "-q", str(write(tmp_path, other, "auto"))]) == 0
    assert commands(prefix) == {*FOUND, "new"}
    assert sifmod(["install", "-q", str(write(tmp_path, other, "[python]"))]) == 0
    assert commands(prefix) == {"python"}
    assert installed(prefix).provenance.image.commands is None


def test_a_dry_run_takes_them_from_the_receipt(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert sifmod(["install", "--dry-run", str(easyconfig)]) == 0
    assert "wrappers     (auto: commands found in the image)\n" in capfd.readouterr().out
    assert sifmod(["install", "-q", str(easyconfig)]) == 0
    before = disk_state(prefix)
    request.getfixturevalue("unreadable")
    capfd.readouterr()
    assert sifmod(["install", "--rebuild", "--dry-run", str(easyconfig)]) == 0
    (line,) = (line for line in capfd.readouterr().out.splitlines() if line.strip().startswith("wrappers"))
    assert set(line.split()[1:]) == FOUND
    assert sifmod(["install", "--rebuild", "--extended-dry-run", str(easyconfig)]) == 0
    assert f"{prefix}/software/Tools/.generations/1.0/2/bin/mine" in capfd.readouterr().out
    assert disk_state(prefix) == before


def test_an_image_that_cannot_be_read(
    tmp_path: Path, images: Images, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sif = tmp_path / "damaged.sif"
    content = bytearray(images.tiny("auto-install", entries=ENTRIES).read_bytes())
    start = content.index(b"hsqs")
    content[start + 96 : start + 4096] = bytes(4000)
    content[-65536:] = bytes(65536)
    sif.write_bytes(content)
    assert sifmod(["install", str(write(tmp_path, sif, "auto"))]) != 0
    assert "wrappers: auto: " in capfd.readouterr().err
    assert live(Layout(prefix), ModuleName("Tools", "1.0")) is None
    assert not (prefix / "modules").exists()
