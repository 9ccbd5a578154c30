"""`sifmod diff`: what changed between two generations, modules or images."""

from pathlib import Path
from typing import Any

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.disk_state import disk_state
from support.inside import Files, sif

SITE = "opt/venv/lib/python3.12/site-packages"
TINY = """name: Tiny
version: '{version}'
image: {{sources: [./{image}.sif]}}
wrappers: [{wrappers}]
binds: [{binds}]
env: {{KEPT: x, INSIDE: {inside}}}
host_env: {{HOST: {host}}}
"""


def packages(**versions: str) -> dict[str, str | bytes | None]:
    found: dict[str, str | bytes | None] = {f"{SITE}/{name}-{v}.dist-info": None for name, v in versions.items()}
    return {**found, "bin/sh": "#!", "bin/ls": "#!"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(image: str, files: Files | None = None, *, version: str = "1.0", **given: str) -> None:
    if files:
        sif(Path(f"{image}.sif"), files)
    values = {"wrappers": "sh", "binds": "/tmp", "inside": "a", "host": "b", **given}
    Path(f"Tiny-{version}.yaml").write_text(TINY.format(version=version, image=image, **values))
    assert run(["install", "-q", "--skip-sanity-check", f"Tiny-{version}.yaml"]) == 0


def rows(found: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {
        one["name"]: (one["old_versions"], one["new_versions"]) if "kind" in one else (one["old"], one["new"])
        for one in found
    }


def test_a_generation_and_the_one_before(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install("one", packages(torch="2.3.0", apex="0.1", numpy="1.26"))
    install(
        "two", packages(torch="2.4.0", deepspeed="0.14", numpy="1.26"),
        wrappers="sh, ls", binds="/tmp, /var", inside="c", host='"d e"',
    )  # fmt: skip
    found = answer(capfd, ("diff", "Tiny"))
    assert (found["old"], found["new"], found["notes"]) == ("Tiny/1.0@1", "Tiny/1.0@2", [])
    assert rows(found["packages"]) == {
        "apex": (["0.1"], []),
        "deepspeed": ([], ["0.14"]),
        "torch": (["2.3.0"], ["2.4.0"]),
    }
    assert rows(found["variables"]) == {"HOST": ("b", "d e")}
    assert rows(found["variables_inside"]) == {"INSIDE": ("a", "c")}
    assert rows(found["binds"]) == {"/var": (None, "/var")}
    assert rows(found["commands"]) == {"ls": (None, "ls")}
    assert {"image", "source", "easyconfig's SHA-256"} <= rows(found["origin_changes"]).keys()
    before = disk_state(here)
    assert run(["diff", "Tiny"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert out[:5] == [
        "Tiny/1.0@1 → Tiny/1.0@2",
        "python packages: 1 added, 1 removed, 1 changed",
        "  - apex 0.1",
        "  + deepspeed 0.14",
        "  ~ torch 2.3.0 → 2.4.0",
    ]
    assert "variables: 1 changed" in out
    assert "  + ls" in out
    assert "  + /var" in out
    assert disk_state(here) == before
    back = answer(capfd, ("diff", "Tiny@2", "Tiny@1"))
    assert rows(back["packages"]) == {name: (new, old) for name, (old, new) in rows(found["packages"]).items()}
    assert run(["rollback", "Tiny"]) == 0
    assert answer(capfd, ("diff", "Tiny"))["new"] == "Tiny/1.0@1"


def test_two_modules_of_one_image(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install("one", packages(torch="2.3.0"))
    install("one", version="2.0")
    found = answer(capfd, ("diff", "Tiny/1.0", "Tiny/2.0"))
    assert found["packages"] == found["binds"] == found["commands"] == found["variables_inside"] == []
    assert rows(found["origin_changes"])["version"] == ("1.0", "2.0")
    assert not list((here / "prefix").rglob("*.inventory.json"))  # which nobody needed
    assert run(["diff", "Tiny/1.0", "Tiny/1.0@1"]) == 0
    assert capfd.readouterr().out.endswith("Tiny/1.0@1 → Tiny/1.0@1\nno differences in packages or settings\n")


def test_images_and_many_packages_of_the_system(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = "".join(f"Package: p{number}\nVersion: 1\n\n" for number in range(21))
    sif(here / "one.sif", {"var/lib/dpkg/status": status, **packages(torch="2\x1b[31m")})
    sif(here / "two.sif", {"var/lib/dpkg/status": status.replace("Version: 1", "Version: 2")})
    assert run(["diff", "./one.sif", "./two.sif"]) == 0
    out = capfd.readouterr().out
    assert "deb packages: 21 changed; --json lists them\n" in out
    assert "p1" not in out
    assert "\x1b" not in out
    install("one")
    found = answer(capfd, ("diff", "Tiny", "two.sif"))
    assert (len(found["packages"]), found["binds"], found["commands"]) == (21, [], [])
    assert not {"easyconfig", "site"} & rows(found["origin_changes"]).keys()


@pytest.mark.usefixtures("here")
def test_an_image_that_is_gone_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    install("one", packages(torch="2.3.0"))
    install("two", packages(torch="2.4.0"), inside="z")
    first = answer(capfd, ("show", "Tiny"))
    assert run(["rollback", "Tiny"]) == 0
    Path(first["image"]["path"]).unlink()
    found = answer(capfd, ("diff", "Tiny@1", "Tiny@2"))
    assert (found["packages"], rows(found["variables_inside"])) == ([], {"INSIDE": ("a", "z")})
    assert "is gone: skipped packages" in found["notes"][0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("Tiny", 24, "Tiny/1.0 has no earlier generation"),
        ("Tiny@1", 2, "Tiny@1 can only be compared with another module or image"),
        ("one.sif", 2, "one.sif can only be compared with another module or image"),
        ("Tiny nothing", 24, "no module is called `nothing`"),
        ("bad.sif Tiny", 10, "is not a SIF"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    words: str, code: int, said: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install("one", packages(torch="2.3.0"))
    (here / "bad.sif").write_text("no SIF")
    before = disk_state(here)
    assert run(["diff", *words.split()]) == code
    assert said in capfd.readouterr().err
    assert disk_state(here) == before


@pytest.mark.usefixtures("here")
def test_an_empty_variable_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    install("one", packages(torch="2.3.0"))
    install("one", host='""')
    assert rows(answer(capfd, ("diff", "Tiny"))["variables"]) == {"HOST": ("b", "")}


@pytest.mark.usefixtures("here")
def test_a_package_in_several_versions(capfd: pytest.CaptureFixture[str]) -> None:
    """Of two Pythons in one image each counts."""
    other = SITE.replace("venv", "other")
    for name, version in (("one", "2"), ("two", "3")):
        mine: dict[str, str | bytes | None] = {f"{other}/demo-{version}.dist-info": None}
        install(name, {**packages(demo="1"), **mine})
    assert rows(answer(capfd, ("diff", "Tiny"))["packages"]) == {"demo": (["1", "2"], ["1", "3"])}
