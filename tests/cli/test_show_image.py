"""`sifmod show` of images: what counts as one, and what is printed."""

import json
import shutil
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.images import Images
from support.registry import Registry

LABELS = {"org.opencontainers.image.title": "shown", "hostile": "\x1b[31mred\nexport EVIL=1\u202e"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return directory


def rows(text: str) -> dict[str, str]:
    """The first block of the output."""
    return {
        line.split("  ")[0]: line[len(line.split("  ")[0]) :].strip() for line in text.split("\n\n")[0].splitlines()
    }


def test_a_file(images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    sif = images.tiny("shown", labels=LABELS, env=("GREETING=good day",))
    assert run(["show", str(sif)]) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    found = rows(captured.out)
    assert found["image"] == str(sif)
    assert (found["kind"], found["architecture"], found["compression"]) == ("SIF", "amd64", "zstd")
    assert found["command"] == "/bin/sh"
    assert found["signed by"] == "nobody"
    assert f"({sif.stat().st_size} bytes)" in found["size"]
    assert "  GREETING  good day\n" in captured.out
    assert "\n\ndefinition\n  bootstrap: oci\n" in captured.out
    assert r"\x1b[31mred\nexport EVIL=1\u202e" in captured.out
    assert all(letter.isprintable() or letter == "\n" for letter in captured.out)


def test_json(images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    sif = images.tiny("shown", labels=LABELS, env=("GREETING=good day",))
    assert run(["show", "--json", str(sif)]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["kind"], data["arch"], data["size"]) == ("SIF", "amd64", sif.stat().st_size)
    assert data["config"]["environment"]["GREETING"] == "good day"
    assert data["config"]["labels"]["org.opencontainers.image.title"] == "shown"
    assert data["config"]["cmd"] == ["/bin/sh"]
    assert data["parts"][0]["kind"] == "definition"


def test_what_sifmod_converted(images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    layout = images.tiny_layout("shown", labels=LABELS, env=("GREETING=good day",))
    assert run(["fetch", "-q", f"oci:{layout}"]) == 0
    stored = capfd.readouterr().out.strip()
    remote = answer(capfd, ("show", f"oci:{layout}"))
    local = answer(capfd, ("show", stored))
    assert local["sha256"] == Path(stored).stem
    assert local["manifest"] == remote["manifest"] is not None
    assert local["config"]["environment"] == remote["config"]["environment"]
    assert local["config"]["cmd"] == remote["config"]["cmd"]
    assert remote["config"]["labels"].items() <= local["config"]["labels"].items()
    assert local["source"] == f"oci:{remote['manifest']}"
    assert {part["kind"] for part in local["parts"]} >= {"definition", "labels", "JSON oci-config.json"}


def test_a_reference(images: Images, registry: Registry, capfd: pytest.CaptureFixture[str]) -> None:
    reference = registry.push_layout(images.tiny_layout("shown", labels=LABELS), "shown:1")
    assert run(["show", reference]) == 0
    found = rows(capfd.readouterr().out)
    assert found["kind"] == "OCI image"
    assert found["size"].endswith("in 1 layer")
    assert found["manifest"].startswith("sha256:")
    assert "signed by" not in found
    assert run(["show", reference, "--arch", "arm64"]) == 10
    assert "arm64" in capfd.readouterr().err
    assert run(["show", reference.replace("shown:1", "none:1")]) == 10
    assert "404" in capfd.readouterr().err


def test_a_name_in_the_image_directories(images: Images, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    central = tmp_path / "central"
    central.mkdir()
    shutil.copy(images.tiny_sif, central / "named.sif")
    assert run(["show", "named.sif", "--image-dirs", str(central)]) == 0
    assert rows(capfd.readouterr().out)["kind"] == "SIF"
    assert run(["show", "other.sif", "--image-dirs", str(central)]) == 10
    assert str(central) in capfd.readouterr().err


def test_modules_and_easyconfigs_are_still_shown(images: Images, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    easyconfig = here / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    assert run(["install", "-q", str(easyconfig)]) == 0
    (here / "Tiny").write_text("a file that is called like a module")
    capfd.readouterr()
    assert run(["show", "Tiny"]) == 0
    assert rows(capfd.readouterr().out)["module"] == "Tiny/1.0"
    assert run(["show", "Tiny-1.0.yaml"]) == 0
    assert capfd.readouterr().out.startswith("# Tiny-1.0.yaml\n")
    shutil.copy(images.tiny_sif, here / "image")
    assert run(["show", "image"]) == 0
    assert rows(capfd.readouterr().out)["kind"] == "SIF"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("./page", "is not a SIF: it is an HTML page"),
        ("https://host.example/x.sif", "cannot be described before it is fetched"),
        ("docker://", "expected docker://"),
        ("dokcer://x/y", "did you mean docker:"),
        ("/none/x.sif", "No such file"),
    ],
)
def test_what_cannot_be_shown(text: str, said: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "page").write_text("<html><title>x")
    assert run(["show", text]) == 10
    assert said in capfd.readouterr().err
