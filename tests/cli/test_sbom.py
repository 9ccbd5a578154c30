"""`sifmod sbom`: a CycloneDX document that its own schema accepts, the same each time."""

import json
import os
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from cyclonedx.validation.xml import XmlValidator

from sifmod.actions.sbom import Format, sbom
from sifmod.actions.subject import Subject
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.module.image_origin import NO_ORIGIN
from sifmod.tree.layer import Layer
from support.answer import answer
from support.config import write
from support.disk_state import disk_state
from support.inside import sif

SITE = "opt/venv/lib/python3.12/site-packages"
FILES = {
    "bin/sh": "#!",
    "etc/os-release": 'ID="rhel"\nVERSION_ID="9.4"\n',
    f"{SITE}/My_Torch-2.4.0+cu124.dist-info/METADATA": "Name: My_Torch\nVersion: 2.4.0+cu124\nLicense: MIT\n",
    f"{SITE}/odd-1.dist-info/METADATA": "Name: odd\nVersion: 1\nLicense-Expression: MIT OR Apache-2.0\n",
    f"{SITE}/evil-1.dist-info/METADATA": "Name: evil<a>&\x1b[31m\nVersion: 1 0/../x@?#\nLicense: my <own>\n",
    "opt/conda/conda-meta/xz-5.4-h1.json": '{"license": "0BSD"}',
    "var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nVersion: 1:2.36-9+deb12u1\n",
}
TINY = "name: Tiny\nversion: '1.0'\nimage: {sources: [./image.sif]}\nwrappers: [sh]\n"
PURLS = {
    "pkg:conda/xz@5.4",
    "pkg:deb/rhel/libc6@1:2.36-9%2Bdeb12u1?distro=rhel-9.4",
    "pkg:pypi/my-torch@2.4.0%2Bcu124",
    "pkg:pypi/odd@1",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an image and an easyconfig of it, and a prefix."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    sif(tmp_path / "image.sif", FILES)
    (tmp_path / "Tiny-1.0.yaml").write_text(TINY)
    return tmp_path


def install() -> None:
    assert run(["install", "-q", "--skip-sanity-check", "Tiny-1.0.yaml"]) == 0


def document(path: Path, *layers: Layer, environ: Mapping[str, str] | None = None) -> Any:
    subject = Subject(str(path), "", "docker://docker.io/library/tiny", NO_ORIGIN, path)
    forms: tuple[Format, ...] = ("json", "xml")
    text, xml = (sbom(subject, layers, form, environ or {}, {}).text for form in forms)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert XmlValidator(SchemaVersion.V1_6).validate_str(xml) is None
    assert text == sbom(subject, layers, "json", environ or {}, {}).text
    return json.loads(text)


def test_what_is_in_it_and_that_the_schema_takes_it(here: Path) -> None:
    found = document(here / "image.sif")
    assert found["metadata"]["timestamp"].startswith("2025-01-02T03:04:05")
    top = found["metadata"]["component"]
    assert (top["type"], top["hashes"][0]["alg"]) == ("container", "SHA-256")
    assert top["externalReferences"][0]["url"] == "docker://docker.io/library/tiny"
    components = {one["name"]: one for one in found["components"]}
    assert {one["purl"] for one in components.values()} >= PURLS
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)
    torch = components["My_Torch"]
    assert torch["licenses"][0]["license"] == {"id": "MIT", "acknowledgement": "declared"}
    assert torch["evidence"]["occurrences"][0]["location"] == "/opt/venv"
    assert components["odd"]["licenses"][0]["expression"] == "MIT OR Apache-2.0"
    graph = {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]}
    assert set(graph[top["bom-ref"]]) == {one["bom-ref"] for one in found["components"]}


def test_the_users_layers_are_components_with_their_packages(here: Path) -> None:
    root = here / "layer" / "3"
    root.mkdir(parents=True)
    (root / "pylock.toml").write_text("lock-version = '1.0'\n")
    layer = Layer(
        words=(),
        constraints=(),
        digests=(),
        module=ModuleName("Tiny", "1.0"),
        name="default",
        image="0" * 64,
        number=3,
        python="/opt/venv",
        version="3.12",
        requirements=("demo",),
        editable=(),
        places=(),
        added=(("demo", "1.0"), ("odd", "2")),
        kept=(),
        packed=True,
        root=str(root),
    )
    plain, found = document(here / "image.sif"), document(here / "image.sif", layer)
    (made,) = [one for one in found["components"] if one["name"] == "layer default"]
    assert {one["purl"] for one in made["components"]} == {"pkg:pypi/demo@1.0", "pkg:pypi/odd@2"}
    assert found["serialNumber"] != plain["serialNumber"]


def test_the_date_is_the_one_that_is_asked_for(here: Path) -> None:
    found = document(here / "image.sif", environ={"SOURCE_DATE_EPOCH": "86400"})
    assert found["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def rpm_database() -> bytes:
    """An ndb with one package, which has an epoch."""
    index, data = b"", b""
    for tag, text in ((1000, "bash"), (1001, "5.1"), (1002, "9.el9")):
        index += struct.pack(">IIII", tag, 6, len(data), 1)
        data += text.encode() + b"\0"
    index += struct.pack(">IIII", 1003, 4, len(data), 1)
    data += struct.pack(">I", 2)
    blob = struct.pack(">II", 4, len(data)) + index + data
    blob = struct.pack("<4sIII", b"BlbS", 1, 0, len(blob)) + blob
    slots = struct.pack("<4sIII", b"Slot", 1, 256, len(blob) // 16) + struct.pack("<4sIII", b"Slot", 0, 0, 0) * 253
    return struct.pack("<4sIIIIIII", b"RpmP", 0, 7, 1, 4, 0, 0, 0) + slots + blob


def test_an_rpm_with_an_epoch(here: Path) -> None:
    path = sif(here / "rpm.sif", {"etc/os-release": FILES["etc/os-release"], "var/lib/rpm/Packages.db": rpm_database()})
    (found,) = document(path)["components"]
    assert found["purl"] == "pkg:rpm/rhel/bash@5.1-9.el9?distro=rhel-9.4&epoch=2"


def test_what_has_no_name_or_no_version_is_no_package(here: Path) -> None:
    nameless = {f"{SITE}/none-1.dist-info/METADATA": "Name: /\nVersion: 1\n"}
    nameless |= {f"opt/conda/conda-meta/{name}.json": "{}" for name in (" -1-h1", "none- -h1")}
    assert document(sif(here / "none.sif", nameless)).get("components", []) == []


def test_of_a_module_a_generation_a_digest_and_a_file(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install()
    made = answer(capfd, ("sbom", "Tiny"))
    assert (made["module"], made["generation"], made["package_count"], made["path"]) == ("Tiny/1.0", 1, 5, None)
    top = json.loads(made["text"])["metadata"]["component"]
    assert (top["name"], top["version"], top["hashes"][0]["content"]) == ("Tiny", "1.0", made["sha256"])
    assert str(here) not in json.dumps(top["properties"][:2])
    for name in ("Tiny/1.0@1", made["sha256"], f"sha256:{made['sha256']}", made["sha256"][:12], "./image.sif"):
        assert answer(capfd, ("sbom", name))["sha256"] == made["sha256"]
    assert run(["sbom", "Tiny", "-o", "my.json"]) == 0
    out, err = capfd.readouterr()
    assert (out, err, Path("my.json").read_text()) == ("", "== my.json: 5 packages, 0 layers\n", made["text"])
    assert run(["sbom", "Tiny", "--format", "xml"]) == 0
    assert capfd.readouterr().out.startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("Tiny@7", 24, "Tiny/1.0 has no generation 7 that can be read"),
        ("Tiny@", 24, "no module is called"),
        ("nothing", 24, "no module is called"),
        ("0123456789ab", 24, "the store has no image 0123456789ab"),
        ("docker://docker.io/library/none", 24, "the store has no image docker://docker.io/library/none"),
        ("oci:somewhere", 24, "the store does not know which image was fetched from oci:somewhere"),
        ("none.sif", 10, "none.sif"),
        ("./none.sif", 10, "cannot read none.sif: No such file"),
        ("bad.sif", 10, "is not a SIF"),
        ("Tiny -o image.sif", 2, "image.sif exists already"),
        ("Tiny -o no/such/x.json", 2, "there is no directory no/such"),
        ("Tiny --format spdx", 2, "'spdx' is not one of"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    words: str, code: int, said: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install()
    (here / "bad.sif").write_text("no SIF")
    before = disk_state(here)
    assert run(["sbom", *words.split()]) == code
    out, err = capfd.readouterr()
    assert said in err
    assert "module load" in out or out == ""
    assert disk_state(here) == before


def test_a_date_that_is_none(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    before = disk_state(here)
    assert run(["sbom", "image.sif", "-o", "x.json"]) == 2
    assert "SOURCE_DATE_EPOCH=soon is not a number of seconds since 1970" in capfd.readouterr().err
    assert disk_state(here) == before


def test_a_file_that_is_mostly_holes_is_not_read(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.truncate(here / "image.sif", 1 << 42)
    began, before = time.monotonic(), sorted(here.rglob("*"))
    assert run(["sbom", str(here / "image.sif")]) == 10
    assert "image.sif has 4.4 TB, of which" in capfd.readouterr().err
    assert time.monotonic() - began < 20
    assert sorted(here.rglob("*")) == before


def test_of_many_packages_it_takes_time_in_proportion(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The library searches all components for each, 320 000 comparisons here: they are counted, not timed."""
    names = {f"{SITE}/p{number}-1.dist-info/METADATA": f"Name: p{number}\nVersion: 1\n" for number in range(800)}
    sif(here / "many.sif", FILES | names)
    compared = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal compared
        compared += event == "call" and frame.f_code is BomRef.__eq__.__code__

    sys.setprofile(count)
    try:
        assert run(["sbom", str(here / "many.sif")]) == 0
    finally:
        sys.setprofile(None)
    found = json.loads(capfd.readouterr().out)
    assert len(found["components"]) == len(found["dependencies"]) - 1 > 800
    assert compared < 100_000


def test_more_packages_than_the_bound_are_left_out_and_said(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "home/.config/sifmod/config.yaml", "limits: {image_packages: 2}\n")
    assert run(["sbom", str(here / "image.sif")]) == 0
    told = capfd.readouterr()
    assert "it has more packages than 2 (`limits: {image_packages: N}` in the settings raises the limit)" in told.err
    assert len(json.loads(told.out)["components"]) == 3
    assert run(["diff", str(here / "image.sif"), str(here / "image.sif")]) == 0
    assert "it has more packages than 2" in capfd.readouterr().err


def test_the_sites_copy_that_a_load_takes(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on LUMI, a user removes the link; the packages were still those of the image in the store."""
    write(here / "con fig/config.yaml", f"image_dirs: [{here}/images]\n")
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(here / "con fig"))
    install()
    (link,) = (here / "prefix/software/Tiny/1.0").glob("*.sif")
    (here / "images").mkdir()
    copy = here / "images" / link.name
    sif(copy, {"bin/sh": "#!", f"{SITE}/other-7.dist-info/METADATA": "Name: other\nVersion: 7\n"})
    link.unlink()
    capfd.readouterr()
    assert run(["sbom", "Tiny/1.0"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [one["name"] for one in found["components"]] == ["other"]
    digest = sha256_file(copy)
    assert found["metadata"]["component"]["hashes"][0]["content"] == digest
    assert run(["export", "-q", "Tiny/1.0", "--to", "sif", "-o", str(here / "it.sif")]) == 0
    assert sha256_file(here / "it.sif") == digest
