"""What `sifmod install` says and records, option by option."""

import hashlib
import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.cli.progress import NOTHING_KEPT
from sifmod.tree.layout import Layout
from support.config import write
from support.images import Images
from support.runtime import RUNTIME


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return tmp_path / "prefix"


@pytest.fixture
def easyconfig(prefix: Path, images: Images) -> Path:
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    return write(prefix.parent / "Tiny-1.0.yaml", text)


def receipt(prefix: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((prefix / "software/Tiny/1.0/receipt.json").read_text())
    return found


def asked(prefix: Path) -> dict[str, object]:
    """What the receipt keeps of the command line."""
    kept = receipt(prefix)["provenance"]["asked"]
    assert isinstance(kept, dict)
    return kept


def test_every_option_that_decides_is_recorded(
    easyconfig: Path, tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one order, with its paths in full; and the same words again find nothing to do."""
    monkeypatch.chdir(tmp_path)
    with easyconfig.open("a") as file:
        file.write("variants: {a: {env: {V: a}}, cpu: {env: {V: b}}}\n")
    write(tmp_path / "sites/mine.yaml", "description: mine\n")
    (tmp_path / "given.sif").write_bytes(images.tiny_sif.read_bytes())
    (tmp_path / "dir").mkdir()
    words = [
        *("--skip-sanity-check", "--module-syntax", "both", "--runtime", RUNTIME.path, "--accelerator", "none"),
        *("--image-dirs", "dir", "--robot-paths", "dir", "--prefix", "tree", "--site", "sites/mine.yaml"),
        *("--link", "hardlink", "--source", "given.sif", "--variant", "a"),
    ]
    assert run(["install", "-q", *words, "Tiny-1.0.yaml"]) == 0
    kept = asked(tmp_path / "tree")
    assert (kept["name"], kept["checked"]) == ("", False)
    assert kept["options"] == [
        ["--variant", "a"],
        ["--source", f"{tmp_path}/given.sif"],
        ["--link", "hardlink"],
        ["--site", f"{tmp_path}/sites/mine.yaml"],
        ["--robot-paths", f"{tmp_path}/dir"],
        ["--image-dirs", f"{tmp_path}/dir"],
        ["--accelerator", "none"],
        ["--runtime", RUNTIME.path],
        ["--module-syntax", "both"],
    ]
    provenance = receipt(tmp_path / "tree")["provenance"]
    assert (provenance["variant"], provenance["easyconfig"]) == ("a", str(easyconfig))
    assert run(["install", "-q", *words, "Tiny-1.0.yaml"]) == 0
    assert Layout(tmp_path / "tree").software.joinpath("Tiny/.generations/1.0/2").exists() is False


def test_what_an_install_says(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commands = f"module use {prefix}/modules\nmodule load Tiny/1.0\n"
    assert run(["install", "--keep-blobs", str(easyconfig)]) == 0
    out, err = capfd.readouterr()
    assert out == commands
    assert err.startswith(f"== Tiny/1.0: installing from {easyconfig}\n")
    assert err.endswith("== Tiny/1.0: installed, generation 1\n")
    assert NOTHING_KEPT not in err
    assert run(["install", str(easyconfig)]) == 0
    assert capfd.readouterr() == (commands, "== Tiny/1.0: already installed, nothing to do\n")
    assert run(["install", "--rebuild", "--keep-blobs", str(easyconfig)]) == 0
    assert f"== {NOTHING_KEPT}\n== Tiny/1.0: installed, generation 2\n" in capfd.readouterr().err
    assert run(["install", "--module-only", str(easyconfig)]) == 0
    said = capfd.readouterr().err
    assert "== Tiny/1.0: installed, generation 3\n" in said
    assert NOTHING_KEPT not in said
    assert run(["install", "--quiet", "--rebuild", "--keep-blobs", str(easyconfig)]) == 0
    assert capfd.readouterr() == (commands, "")


def test_only_fetching(easyconfig: Path, prefix: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    sha256 = hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    stored = Layout(prefix).image(sha256)
    words = ["install", "--fetch", str(easyconfig)]
    assert run(words) == 0
    out, err = capfd.readouterr()
    assert out == f"{stored}\n"
    assert err.endswith(f"== Tiny/1.0: the image was fetched; its source is {images.tiny_sif}\n")
    assert run([*words, "--json", "-q"]) == 0
    out, err = capfd.readouterr()
    asked = {"easyconfig": str(easyconfig), "variant": None}
    assert (json.loads(out), err) == ([{**asked, "module": "Tiny/1.0", "path": str(stored), "sha256": sha256}], "")
    with easyconfig.open("a") as file:
        file.write("# promised\n")
    promised = easyconfig.read_text().replace("image: {", f"image: {{sha256: {sha256}, ")
    easyconfig.write_text(promised)
    assert run([*words, "--keep-blobs"]) == 0
    assert capfd.readouterr() == (
        f"{stored}\n",
        f"== Tiny/1.0: the image was there already; its source is {images.tiny_sif}\n== {NOTHING_KEPT}\n",
    )


def test_dry_runs(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A mark and a line each; the decisions below it; the files with their texts."""
    head = f"{easyconfig} (module: Tiny/1.0)"
    assert run(["install", "-D", str(easyconfig)]) == 0
    assert capfd.readouterr() == (f" * [ ] {head}\n", "")
    assert run(["install", "--dry-run", "--accelerator", "none", "--module-syntax", "both", str(easyconfig)]) == 0
    lines = capfd.readouterr().out.splitlines()
    source = easyconfig.read_text().partition("'/")[2].partition("'")[0]
    assert lines[0] == f" * [ ] {head}"
    assert [line for line in lines[1:] if not line.startswith("       bind ")] == [
        f"       site         generic, accelerator none, runtime {RUNTIME.kind} ({RUNTIME.path})",
        "       variant      -",
        f"       modulefile   {prefix}/modules/Tiny/1.0.lua, {prefix}/modules/Tiny/1.0",
        f"       software     {prefix}/software/Tiny/1.0",
        f"       image        /{source}",
        "       sha256       not given: install prints it",
        "       wrappers     sh",
    ]
    assert run(["install", "-x", "-D", "--module-syntax", "lua", str(easyconfig)]) == 0
    out = capfd.readouterr().out
    assert "       site  " not in out
    paths = [line.removeprefix("--- ") for line in out.splitlines() if line.startswith("--- /")]
    root = f"{prefix}/software/Tiny/.generations/1.0/1"
    assert {f"{root}/modulefile.lua", f"{root}/bin/sh", f"{prefix}/modules/Tiny/1.0.lua"} <= set(paths)
    assert not prefix.exists()
    assert run(["install", "-q", str(easyconfig)]) == 0
    for words, mark in (((), "x"), (("--rebuild",), "R"), (("--module-only",), "R"), (("--force",), "F")):
        capfd.readouterr()
        assert run(["install", "-D", *words, str(easyconfig)]) == 0
        assert capfd.readouterr().out == f" * [{mark}] {head}\n"
    assert run(["install", "-x", "-D", str(easyconfig)]) == 0  # of what is unchanged
    assert capfd.readouterr().out.startswith(f" * [x] {head}\n\n--- {prefix}/software/Tiny/")
    Layout(prefix).modules.joinpath("Tiny/1.0.lua").unlink()
    assert run(["install", "-D", str(easyconfig)]) == 0
    assert capfd.readouterr().out == f" * [R] {head}\n"
    assert run(["install", "-x", str(easyconfig)]) == 0
    assert f"\n--- {prefix}/software/Tiny/.generations/1.0/2/bin/sh\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing argument: FILE or NAME of an easyconfig"),
        (("--installed",), "--installed needs --module-only and takes no easyconfigs"),
        (("--installed", "--module-only", "x"), "--installed needs --module-only and takes no easyconfigs"),
        *(
            (("--module-only", option, *value), f"{option}: cannot be used with --module-only without easyconfigs")
            for option, *value in (
                *(("--variant", "a"), ("--source", "a"), ("--rebuild",), ("--force",), ("--fetch",)),
                *(("--keep-blobs",), ("--compression", "lz4"), ("--processors", "1")),
            )
        ),
    ],
)
def test_words_that_do_not_go_together(
    words: tuple[str, ...], said: str, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", *words]) == 2
    assert said in capfd.readouterr().err
    assert not prefix.exists()
