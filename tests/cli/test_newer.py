"""`sifmod outdated` and `upgrade`: later versions, and tags that name another image now, of ordinary modules."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.actions.outdated import outdated
from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live, live_modules
from support.answer import answer
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.registry import PASSWORD, USER, Registry, with_password

SKIP = "--skip-sanity-check"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry(tmp_path / "registry")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def here(tmp_path: Path, images: Images, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules, of which one has its image from a tag; nothing is newer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "robot"))
    tagged = registry.push_layout(images.tiny_layout("newer"), "newer:1")
    write(tmp_path / "robot/Tagged-1.yaml", f"name: Tagged\nversion: '1'\nimage: {{sources: ['{tagged}']}}\n")
    text = (
        f"image: {{sources: ['{images.tiny_sif}']}}\nvariants: {{a: {{versionsuffix: -a}}, b: {{versionsuffix: -b}}}}\n"
    )
    write(tmp_path / "robot/Plain-1.yaml", f"name: Plain\nversion: '1'\n{text}")
    assert run(["install", "Tagged-1", SKIP, "--site", "generic"]) == 0
    assert run(["install", "Plain-1", SKIP, "--variant", "b"]) == 0
    return tmp_path


def later(here: Path, version: str = "1.2", old: str = "'1'") -> None:
    text = (here / "robot/Plain-1.yaml").read_text().replace(old, f"'{version}'")
    write(here / f"robot/Plain-{version}.yaml", text)


def modules(here: Path) -> list[str]:
    return [str(module) for module, _ in live_modules(Layout(here / "tree"))]


def found(here: Path, name: str, version: str) -> Installation:
    one = live(Layout(here / "tree"), ModuleName(name, version))
    assert one is not None
    return one


def test_nothing_is_newer(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(here / "tree")
    capfd.readouterr()
    for words in (["outdated"], ["upgrade", "--all"], ["upgrade", "plain"]):
        assert run(words) == 0
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("== nothing newer was found for ")
    assert run(["upgrade", "--all", "-q"]) == 0
    assert capfd.readouterr() == ("", "")
    assert disk_state(here / "tree") == before


def test_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "none"))
    assert run(["outdated"]) == 0
    assert capfd.readouterr().err == "== no module is installed here\n"
    assert not (tmp_path / "none").exists()


def test_a_later_version_is_installed_beside_the_earlier(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    later(here)
    later(here, "1.1")
    before = disk_state(here / "tree")
    capfd.readouterr()
    assert run(["outdated"]) == 0
    out, err = capfd.readouterr()
    assert out == "Plain/1-b: Plain-1.2.yaml has version 1.2\n"
    assert err == "== 1 update for 2 modules: `sifmod upgrade MODULE` installs what is newer\n"
    assert run(["outdated", "tagged"]) == 0
    assert capfd.readouterr().out == ""
    newer = answer(capfd, ("outdated", "PLAIN"))["newer"]
    assert [(one["module"], one["what"], one["was"]) for one in newer] == [("Plain/1-b", "easyconfig", "1")]
    assert run(["upgrade", "--all", "-D"]) == 0
    assert capfd.readouterr().out == f" * [ ] {here}/robot/Plain-1.2.yaml (module: Plain/1.2-b)\n"
    assert disk_state(here / "tree") == before
    assert run(["upgrade", "Plain/1-b"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[-1] == "module load Plain/1.2-b"
    assert "== Plain/1-b: upgrading to Plain-1.2 --variant b\n" in err
    assert modules(here) == ["Plain/1-b", "Plain/1.2-b", "Tagged/1"]
    assert run(["outdated"]) == 0
    assert capfd.readouterr().out == ""


def test_of_several_variants_that_of_the_installed_module(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", "Plain"]) == 0
    assert run(["install", "Plain-1", SKIP, "--variant", "a"]) == 0
    later(here)
    capfd.readouterr()
    assert run(["upgrade", "Plain", "--json"]) == 0
    assert modules(here) == ["Plain/1-a", "Plain/1.2-a", "Tagged/1"]
    assert '"changed": true' in capfd.readouterr().out


def test_a_tag_that_names_another_image(
    here: Path, images: Images, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    registry.push_layout(images.tiny_layout("newer still"), "newer:1")
    was = found(here, "Tagged", "1")
    capfd.readouterr()
    assert run(["outdated"]) == 0
    assert capfd.readouterr().out.startswith(f"Tagged/1: docker://{registry.address}/newer:1 is sha256:")
    assert run(["upgrade", "Tagged", "--compression", "gzip:1", "--processors", "1", "--yes"]) == 0
    now = found(here, "Tagged", "1")
    assert (now.generation, now.provenance.site) == (2, "generic")
    assert now.image_sha256 != was.image_sha256
    assert dict(now.provenance.asked.options)["--site"] == "generic"
    capfd.readouterr()
    assert run(["outdated"]) == 0
    assert capfd.readouterr().out == ""
    assert run(["rollback", "Tagged"]) == 0
    assert found(here, "Tagged", "1").image_sha256 == was.image_sha256
    shutil.rmtree(here / "tree/images/partial", ignore_errors=True)
    before = disk_state(here / "tree/images", here / "tree/software")
    capfd.readouterr()
    assert run(["upgrade", "Tagged", "-D"]) == 0
    assert capfd.readouterr().out == f" * [H] {here}/robot/Tagged-1.yaml (module: Tagged/1)\n"
    assert run(["upgrade", "Tagged"]) == 18
    assert "Tagged/1 was rolled back from the same content" in capfd.readouterr().err
    assert disk_state(here / "tree/images", here / "tree/software") == before
    registry.push_layout(images.tiny_layout("newest"), "newer:1")
    assert run(["upgrade", "Tagged", "-D"]) == 0
    assert " * [F] " in capfd.readouterr().out
    assert run(["upgrade", "Tagged"]) == 0


def test_a_server_that_does_not_answer(here: Path, registry: Registry, capfd: pytest.CaptureFixture[str]) -> None:
    later(here)
    registry.stop()
    before = disk_state(here / "tree")
    said = f"== warning: docker://{registry.address}/newer:1 could not be asked: "
    capfd.readouterr()
    assert run(["outdated"]) == 10
    out, err = capfd.readouterr()
    assert out.startswith("Plain/1-b: ")
    assert said in err
    assert run(["outdated", "Tagged", "--json"]) == 10
    assert json.loads(capfd.readouterr().out)["newer"] == []
    assert run(["upgrade", "Tagged"]) == run(["outdated", "Tagged"]) == 10
    assert capfd.readouterr().err.count("== nothing newer was found in what could be looked at\n") == 2
    assert disk_state(here / "tree") == before
    assert run(["upgrade", "--all", "--quiet"]) == 10  # it does what it can
    assert said in capfd.readouterr().err
    assert "Plain/1.2-b" in modules(here)


def test_an_error_here_is_not_that_nothing_is_newer(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The outcome would be that the module is up to date."""

    def full(_site: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    assert found(here, "Tagged", "1")
    monkeypatch.setattr("sifmod.actions.outdated.fetch_settings", full)
    capfd.readouterr()
    assert run(["outdated"]) == 18
    assert "error: Too many open files" in capfd.readouterr().err


def test_a_later_easyconfig_with_problems(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "robot" / "Plain-9.yaml").write_text("name: [Plain\n")
    (here / "robot" / "Other-9.yaml").write_text("name: [Other\n")
    capfd.readouterr()
    for words in (["outdated"], ["upgrade", "--all"]):
        assert run(words) == 10
        err = capfd.readouterr().err
        assert (
            f"== warning: {here}/robot/Plain-9.yaml has problems and was left out: `sifmod check` shows them\n" in err
        )
        assert "== nothing newer was found in what could be looked at\n" in err
        assert "Other-9" not in err


def test_a_module_that_vanishes_is_not_looked_at(here: Path) -> None:
    gone = found(here, "Tagged", "1")
    shutil.rmtree(here / "tree/software/Tagged")
    assert outdated((gone,), load_site({}, os.environ)).newer == ()


@pytest.mark.usefixtures("needs_root")
def test_the_login_in_variables_is_for_no_registry_that_another_user_named(
    here: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    closed = with_password(here / "closed", registry.storage)
    closed.start()
    try:
        monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", USER)
        monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", PASSWORD)
        source = f"docker://{closed.address}/newer:1"
        write(here / "robot/Closed-1.yaml", f"name: Closed\nversion: '1'\nimage: {{sources: ['{source}']}}\n")
        assert run(["install", "Closed-1", SKIP]) == 0
        capfd.readouterr()
        assert run(["outdated"]) == 0
        assert "could not be asked" not in capfd.readouterr().err
        os.chown(found(here, "Closed", "1").root, 12345, -1)
        assert run(["outdated"]) == 10
        assert f"{source} could not be asked: {closed.address} answered 401" in capfd.readouterr().err
    finally:
        closed.stop()


def test_what_cannot_be_had_is_not_newer(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "robot/Plain-7.yaml", "name: Plain\nversion: '7'\nimage: {sources: [/no/such/x.sif]}\n")
    write(here / "robot/Plain-8.yaml", "name: Plain\nversion: '8'\naccelerator: rocm\nimage: {sources: [/x.sif]}\n")
    capfd.readouterr()
    assert run(["outdated"]) == 0
    assert capfd.readouterr().out == ""


def test_what_to_upgrade_has_to_be_said(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    later(here)
    before = disk_state(here / "tree")
    for words in ([], ["Plain", "--all"]):
        assert run(["upgrade", *words]) == 2
        assert "name modules, or give --all" in capfd.readouterr().err
    assert run(["upgrade", "nosuch"]) == 24
    assert disk_state(here / "tree") == before


def test_of_several_the_others_are_upgraded_after_a_failure(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    later(here)
    text = (here / "robot/Tagged-1.yaml").read_text()
    write(here / "robot/Tagged-2.yaml", text.replace("'1'", "'2'").replace("newer:1", "no-such:1"))
    assert run(["upgrade", "--all", "--offline"]) == 10
    err = capfd.readouterr().err
    assert "1 of 2 done, exit code 10" in err
    assert modules(here) == ["Plain/1-b", "Plain/1.2-b", "Tagged/1"]
