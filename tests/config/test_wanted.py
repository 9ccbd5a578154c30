"""What is said of a word that is no easyconfig, so that the next word is the right one."""

from pathlib import Path

import pytest

from sifmod.config.load_site import load_site
from sifmod.config.site import Site
from sifmod.config.word import resolve_easyconfig
from sifmod.errors import EasyconfigNotFoundError
from support.config import write

TEXT = """
name: {name}
version: '{version}'
versionsuffix: '{suffix}'
accelerator: {accelerator}
image: {{sources: [/x.sif], arch: amd64}}
"""
VARIANTS = "variants:\n  rocm: {versionsuffix: -rocm-6.2}\n  cpu: {versionsuffix: -cpu}\n"


def easyconfig(directory: Path, name: str, version: str, suffix: str = "", accelerator: str = "none") -> Path:
    text = TEXT.format(name=name, version=version, suffix=suffix, accelerator=accelerator)
    return write(directory / name / f"{name}-{version}{suffix}.yaml", text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Of a machine without GPUs; its easyconfigs are of one application in many versions, and of others."""
    monkeypatch.chdir(tmp_path)
    for version in ("2.2.0", "2.9.1", "2.10.0", "20240918"):
        easyconfig(tmp_path / "ec", "App", version)
    easyconfig(tmp_path / "ec", "App", "2.12.0", "-rocm-7", "rocm")
    with easyconfig(tmp_path / "ec", "App", "2.11.0").open("a") as file:
        file.write(VARIANTS)
    easyconfig(tmp_path / "ec", "my-tool", "1.0", "-cuda", "cuda")
    write(tmp_path / "ec/Odd-1.yaml", "x: 1")
    options = {"robot_paths": str(tmp_path / "ec"), "accelerator": "none"}
    return load_site(options, {"HOME": str(tmp_path), "SIFMOD_ARCH": "amd64"}).site


def missing(word: str, site: Site) -> tuple[str, str]:
    with pytest.raises(EasyconfigNotFoundError) as caught:
        resolve_easyconfig(word, site)
    assert caught.value.exit_code == 4
    return caught.value.message, caught.value.hint


def test_a_name_alone_offers_the_newest_for_this_machine_first(site: Site) -> None:
    """In the order of versions; a build of a day comes last."""
    newest = ["App-2.11.0", "App-2.10.0", "App-2.9.1", "App-2.2.0", "App-20240918", "and 1 more: `sifmod search app`"]
    for word in ("App", "app.yaml", "App.eb", "./App", "/a/b/c/APP.yml", "Apq"):
        assert missing(word, site)[1].splitlines() == ["did you mean one of these?", *(f"  {one}" for one in newest)]
    assert missing("my-tool", site)[1] == "did you mean my-tool-1.0-cuda (not for this machine)?"
    assert missing("odd", site)[1] == "did you mean Odd-1 (not for this machine)?"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("App/2.9.1", "App-2.9.1"),
        ("App/2.9", "App-2.9.1"),
        ("App/2.11.0-rocm-6.2", "App-2.11.0 --variant rocm"),
        ("App/2.11.0-cpu", "App-2.11.0 --variant cpu"),
        ("App/2.12.0", "App-2.12.0-rocm-7 (not for this machine)"),
        ("MY/TOOL", "my-tool-1.0-cuda (not for this machine)"),
        ("App:2.9.1", "App-2.9.1"),
        ("App==2.9", "App-2.9.1"),
        ("App 2.9", "App-2.9.1"),
        ("App@2.9.1", "App-2.9.1"),
        ("App/2.9.1.lua", "App-2.9.1"),
        ("/some/tree/App/2.9.1.lua", "App-2.9.1"),
        ("own-1.0", "./Own-1.0.yaml"),
        ("own", "./Own-1.0.yaml"),
        ("my-tool-1.0-cude", "my-tool-1.0-cuda (not for this machine)"),
    ],
)
def test_a_modules_name_gives_the_easyconfig_it_comes_of(word: str, meant: str, site: Site, tmp_path: Path) -> None:
    """As other tools write it, too; and a file here, which a name does not find, by its path."""
    write(tmp_path / "Own-1.0.yaml", "")
    assert missing(word, site)[1] == f"did you mean {meant}?"


def test_a_version_that_is_not_there_offers_the_others(site: Site) -> None:
    for word in ("App:9.9", "App/9.9.lua", "Apq-9.9"):
        assert missing(word, site)[1].startswith("did you mean one of these?\n  App-2.11.0\n")
    message, hint = missing("app:2.9.1", site)  # or is it an image?
    assert message.startswith(f"no easyconfig is called 'app:2.9.1'; looked in\n  {site.robot_paths[0]}\n")
    assert hint == "did you mean App-2.9.1?\nfor the image of this name: `sifmod new docker://app:2.9.1`"


def test_what_ships_is_told_without_reading_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path, _site: Site) -> None:
        raise AssertionError(f"{path} is in the index")

    monkeypatch.setattr("sifmod.config.variants.outlines", read)
    assert missing("PyTorch==2.13", site)[1].startswith("did you mean one of these?\n  PyTorch-2.13.0\n")


def test_what_resembles_nothing(site: Site) -> None:
    for word in ("zzz", "", "x" * 5000, "a\0b"):
        assert missing(word, site)[1] == "`sifmod search WORDS` finds easyconfigs"


@pytest.mark.parametrize(
    ("word", "reference"),
    [
        ("docker://ghcr.io/a/b:1", "docker://ghcr.io/a/b:1"),
        ("DOCKER://me:secret@ghcr.io/a/b:1", "DOCKER://ghcr.io/a/b:1"),
        ("https://host/x.sif?signature=1", "https://host/x.sif"),
        ("oci-archive:x.tar", "oci-archive:x.tar"),
        ("ghcr.io/a/b:1", "docker://ghcr.io/a/b:1"),
        ("ubuntu:22.04", "docker://ubuntu:22.04"),
        ("here.sif", "here.sif"),
    ],
)
def test_an_image_is_for_new(word: str, reference: str, site: Site, tmp_path: Path) -> None:
    write(tmp_path / "here.sif", "")
    message, hint = missing(word, site)
    assert message.endswith(" is an image, not an easyconfig")
    assert hint == f"`sifmod new {reference}` writes an easyconfig for it; install that"
    assert "secret" not in message


def test_a_file_of_another_tool_is_for_import(site: Site, tmp_path: Path) -> None:
    for name in ("x.eb", "sub dir/1.0.lua", "container.yaml"):
        path = write(tmp_path / name, "")
        assert missing(str(path), site)[1].startswith("`sifmod import ")
    message, hint = missing("nothing.lua", site)
    assert message.startswith("no easyconfig is called 'nothing.lua'")
    assert hint.startswith("`sifmod import FILE` ")
