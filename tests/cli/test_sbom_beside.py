"""An SBOM beside other modules: its own layers and no neighbour's, a view's versions as loaded, the youngest date."""

import json
from pathlib import Path
from typing import Any

import pytest

from sifmod.actions.sbom import sbom
from sifmod.actions.subject import Subject
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.module.image_origin import ImageOrigin
from sifmod.tree.layer import Layer, Layers, publish_layer
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.receipt import live
from support.answer import answer
from support.config import write
from support.inside import EPOCH, sif
from support.tree import LEASE, nobody

SITE = "opt/venv/lib/python3.12/site-packages"
DAY = 86400
# module → its image; Tiny/1 and Other/1 have the same
IMAGES = {"Tiny/1": "a", "Tiny/1.5": "b", "Tiny/1.10": "b", "Tiny/2.0": "c", "Other/1": "a", "Third/1": "d"}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "my tree"))
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("abcd"):
        files = {"bin/sh": "#!", f"{SITE}/{name}-{number}.dist-info/METADATA": f"Name: {name}\nVersion: {number}\n"}
        sif(tmp_path / f"{name}.sif", files, created=EPOCH + (4 - number) * DAY)
    for module, image in IMAGES.items():
        name, version = module.split("/")
        text = f"name: {name}\nversion: '{version}'\nimage: {{sources: [./{image}.sif]}}\nwrappers: [sh]\n"
        write(tmp_path / f"{name}-{version}.yaml", text)
        assert run(["install", "-q", "--skip-sanity-check", f"{name}-{version}.yaml"]) == 0
    return Layout(tmp_path / "my tree")


def add(layout: Layout, name: str, layer: str, text: str, image: str = "") -> Layer:
    module = ModuleName(*name.split("/"))
    there = live(layout, module)
    assert there
    layers = Layers(layout.prefix / "layers", layout.prefix)
    with lock(layers, name, LEASE, nobody) as held:
        directory = held.path("layer")
        (directory / "tree").mkdir(parents=True)
        (directory / "pylock.toml").write_text(text)
        made = Layer(
            words=(),
            constraints=(),
            digests=(),
            module=module,
            name=layer,
            image=image or there.image_sha256,
            number=1,
            python="/opt/venv",
            version="3.12",
            requirements=(text,),
            editable=(),
            places=(),
            added=((text, "9"),),
            kept=(),
            packed=False,
        )
        return publish_layer(layers, made, directory, held)


def document(capfd: pytest.CaptureFixture[str], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `--json` says of it, and the document."""
    told = answer(capfd, ("sbom", name))
    return told, json.loads(told["text"])


def properties(component: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["name"].rpartition(":")[2], one["value"]) for one in component["properties"]]


def test_the_layers_are_those_of_this_module_and_this_image(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    add(layout, "Tiny/1", "default", "older")
    add(layout, "Tiny/1", "default", "own")
    add(layout, "Tiny/1", "second", "more")
    add(layout, "Tiny/1", "third", "stale", image="f" * 64)
    add(layout, "Other/1", "default", "others")
    told, found = document(capfd, "Tiny/1")
    assert (told["layers"], told["package_count"]) == (["default", "second"], 1)
    layers = {one["name"]: one for one in found["components"] if one["name"].startswith("layer ")}
    assert {name: (one["version"], [each["purl"] for each in one["components"]]) for name, one in layers.items()} == {
        "layer default": ("2", ["pkg:pypi/own@9"]),
        "layer second": ("1", ["pkg:pypi/more@9"]),
    }
    assert properties(layers["layer default"]) == [("lock", f"sha256:{sha256_bytes(b'own')}"), ("python", "3.12")]
    serial = found["serialNumber"]
    assert document(capfd, "Tiny/1")[1]["serialNumber"] == serial
    add(layout, "Tiny/1", "second", "other")
    assert document(capfd, "Tiny/1")[1]["serialNumber"] != serial
    assert document(capfd, "Other/1")[0]["layers"] == ["default"]
    assert document(capfd, "Tiny/1.5")[0]["layers"] == []


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize(
    ("wanted", "decided", "loads"),
    [
        ("Tiny", (), "Tiny/2.0"),
        ("Tiny", ("default", "Tiny/1.5"), "Tiny/1.5"),
        ("Tiny/1", ("default", "Tiny/1.5"), "Tiny/1"),  # just so called, though it begins another
        ("Tiny/2", ("default", "Tiny/1"), "Tiny/2.0"),
        ("Tiny", ("hide", "Tiny/2.0"), "Tiny/1.10"),
        ("Tiny", ("retire", "Tiny/2.0"), "Tiny/1.10"),
        ("Tiny/2.0", ("hide", "Tiny/2.0"), "Tiny/2.0"),
    ],
)
def test_a_view_has_what_a_load_of_it_brings(
    wanted: str, decided: tuple[str, ...], loads: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """That of a view within it too; the date is that of the youngest image."""
    write(Path("Inner-1.yaml"), "name: Inner\nversion: '1'\nmodules: [Third/1]\n")
    write(Path("View-1.yaml"), f"name: View\nversion: '1'\nmodules: [Inner/1, {wanted}]\n")
    for name in ("Inner-1.yaml", "View-1.yaml"):
        assert run(["install", "-q", name]) == 0
    if decided:
        assert run([*decided]) == 0
    told, found = document(capfd, "View/1")
    parts = [f"{one['name']}/{one['version']}" for one in found["components"]]
    assert sorted(parts) == sorted([loads, "Third/1"])
    assert (told["sha256"], told["package_count"]) == (None, 2)
    day_of_image = document(capfd, loads)[1]["metadata"]["timestamp"]
    assert found["metadata"]["timestamp"] == day_of_image
    assert len({one["bom-ref"] for one in found["components"]}) == 2


def test_where_an_image_comes_from(tmp_path: Path) -> None:
    path = sif(tmp_path / "image.sif", {"bin/sh": "#!"})
    origin = ImageOrigin("sha256:" + "1" * 64, "sha256:" + "2" * 64, ("sha256:" + "3" * 64, "sha256:" + "4" * 64))
    found = []
    for name in ("one", "two"):
        subject = Subject(name, "", "docker://hill.example/x:1", origin, path)
        text = sbom(subject, (), "json", {}, {}).text
        found.append(json.loads(text))
    top = found[0]["metadata"]["component"]
    assert sorted(properties(top)) == sorted(
        [("source", "docker://hill.example/x:1"), ("index", origin.index), ("manifest", origin.manifest),
         *(("layer", digest) for digest in origin.layers)]
    )  # fmt: skip
    assert found[0]["serialNumber"] != found[1]["serialNumber"]
