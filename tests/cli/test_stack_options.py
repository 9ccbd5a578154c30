"""Options of `stack` and `lock` that other tests of stacks do not type."""

import json
import struct
import subprocess
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.layers import Entry as Raw
from support.layers import tar
from support.oci import Entry, layer, write_layout

SKIP = "--skip-sanity-check"
KINDS = {"gzip:3": 1, "zstd:3": 6}  # of a squashfs's superblock


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of three variants over two images that have to be converted."""
    place = tmp_path / "my stack"
    for name in ("one", "two"):
        write_layout(place / name, [layer([Entry("bin/sh", name.encode() * 9000), Entry("etc"), Entry("opt/" + name)])])
    variants = "".join(
        f"  {variant}: {{versionsuffix: -{variant}, image: {{sources: ['oci:{image}'], filename: {image}.sif}}}}\n"
        for variant, image in (("a", "one"), ("b", "two"), ("c", "one"))
    )
    write(place / "Many-1.yaml", f"name: Many\nversion: '1'\nwrappers: [sh]\nvariants:\n{variants}")
    write(place / "stack.yaml", "name: hill\neasyconfigs: [{easyconfig: Many-1.yaml, variants: [a, b, c]}]\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    monkeypatch.chdir(place)
    return place


def compressor(sif: Path) -> int:
    data = sif.read_bytes()
    return int(struct.unpack_from("<H", data, data.index(b"hsqs") + 20)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_how_images_are_converted_and_that_all_is_made_again(
    here: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("stack.yaml", SKIP, "-q", "--compression", kind, "--processors", "1")
    assert run(["stack", "apply", *words, "-j", "2"]) == 0
    layout = Layout(here.parent / "tree")
    assert {compressor(sif) for sif in layout.images.glob("*.sif")} == {KINDS[kind]}
    assert len(list(layout.images.glob("*.sif"))) == 2
    for given, sign in ((), "x"), (("--rebuild",), "R"):
        before = disk_state(layout.prefix)
        capfd.readouterr()
        assert run(["stack", "plan", "stack.yaml", SKIP, *given]) == 0
        lines = capfd.readouterr().out.splitlines()
        assert [line[:13] for line in lines] == [f" [{sign}] Many/1-{one}" for one in "abc"]
        assert disk_state(layout.prefix) == before
    assert run(["stack", "apply", *words]) == 0
    assert [one.generation for one in installations(layout)] == [1, 1, 1]
    assert run(["stack", "apply", *words, "--rebuild"]) == 0
    assert [one.generation for one in installations(layout)] == [2, 2, 2]


def test_images_that_are_converted_at_once_share_the_memory(here: Path) -> None:
    """Names and attributes of 300 MB, which all of 640 MB has room for, and half of it has not."""
    value = "v" * 60_000
    large = (Raw(f"{n}", pax=(("SCHILY.xattr.user.large", f"{n}{value}"),)) for n in range(5000))
    write_layout(here / "large", [tar(large)])
    write(here / "Large-1.yaml", "name: Large\nversion: '1'\nimage: {sources: ['oci:large']}\n")
    write(here / "stack.yaml", "easyconfigs: [Large-1.yaml, {easyconfig: Many-1.yaml, variants: [a]}]\n")
    write(here.parent / "home/.config/sifmod/config.yaml", "memory: 640MB\n")
    for jobs, code in (("2", 10), ("1", 0)):
        command = ("stack", "apply", "stack.yaml", SKIP, "--jobs", jobs)
        done = subprocess.run((*SIFMOD, *command), capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("the memory limit, 320.0 MB" in done.stderr) == (code != 0)


def test_a_lock_of_some_variants(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
    for given, expected in (
        (("--variant", "b"), "b"),
        (("--variant", "c", "--variant", "a"), "ac"),
        (("--variant", "all"), "abc"),
    ):
        capfd.readouterr()
        assert run(["lock", "Many-1.yaml", *given]) == 0
        modules = json.loads((here / "Many-1.lock").read_text())["modules"]
        assert sorted(one["module"] for one in modules) == [f"Many/1-{one}" for one in expected]
    (here / "Many-1.lock").unlink()
    assert run(["lock", "Many-1.yaml", "--variant", "d"]) != 0
    assert not (here / "Many-1.lock").exists()
    assert "sifmod install Many-1.yaml --variant c" in capfd.readouterr().err  # which there are


def test_the_title_of_a_catalogue(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        answer(capfd, ("stack", "catalogue", "stack.yaml", "--title", "Of <hill> & dale"))["title"]
        == "Of <hill> & dale"
    )
    assert run(["stack", "catalogue", "stack.yaml", "--title", "Of <hill> & dale", "-o", "pa ges"]) == 0
    page = (here / "pa ges/index.html").read_text()
    assert "<title>Of &lt;hill&gt; &amp; dale</title>" in page
    assert json.loads((here / "pa ges/catalogue.json").read_text())["title"] == "Of <hill> & dale"
    assert answer(capfd, ("stack", "catalogue", "stack.yaml"))["title"].startswith("Modules")


@pytest.mark.parametrize("file", [".", "/"])
def test_a_path_without_a_name_has_no_lock(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "lock", file]) == 2
    assert f"error: {str(Path(file))!r} is not the path of a file" in capfd.readouterr().err
