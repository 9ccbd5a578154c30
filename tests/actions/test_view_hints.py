"""The commands that a view's hint gives: they fit this machine, and after them the view is installed."""

import re
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.images import Images

VARIANTS = {"a": "rocm", "b": "cuda", "c": "none", "d": "none", "e": "none", "f": "none"}


@pytest.fixture
def robot(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    place = tmp_path / "my files"
    variants = "".join(f"  {name}: {{versionsuffix: -{name}, accelerator: {of}}}\n" for name, of in VARIANTS.items())
    image = f"image: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    write(place / "Many-1.yaml", f"name: Many\nversion: '1'\n{image}variants:\n{variants}")
    write(place / "Plain-2.yaml", f"name: Plain\nversion: '2'\n{image}")
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(place))
    return place


@pytest.mark.parametrize(
    ("accelerator", "wanted", "commands"),
    [
        ("none", "Many/1", ["Many-1 --variant c", "Many-1 --variant d", "Many-1 --variant e"]),
        ("cuda", "Many/1-b", ["Many-1 --variant b"]),
        ("none", "Many/1-f", ["Many-1 --variant f"]),
        ("none", "Plain", ["Plain-2"]),
    ],
)
def test_what_is_to_be_installed_first(
    accelerator: str, wanted: str, commands: list[str], robot: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SIFMOD_ACCELERATOR", accelerator)
    view = write(robot / "View-1.yaml", f"name: View\nversion: '1'\nmodules: [{wanted}]\n")
    assert run(["install", "-q", str(view)]) == 24
    err = capfd.readouterr().err
    assert f"View/1 cannot be installed: {wanted} is not installed\n" in err
    hint = err.partition("hint: ")[2].strip()
    assert hint.split("; ") == [f"sifmod install {one}" for one in commands]
    assert run([*hint.split("; ")[0].split()[1:], "-q", "--skip-sanity-check"]) == 0
    assert run(["install", "-q", str(view)]) == 0
    other = write(robot / "Other-1.yaml", "name: Other\nversion: '1'\nmodules: [Plain/3]\n")
    assert run(["install", "-q", "--skip-sanity-check", "Plain-2"]) == 0
    assert run(["install", "-q", str(other)]) == 24
    assert re.search(r"Plain/3 is not installed \(Plain/2 is\)", capfd.readouterr().err)


@pytest.mark.parametrize(("decide", "wanted", "told"), [
    ("retire", "Plain/2", True), ("retire", "Plain", True), ("hide", "Plain", True), ("hide", "Plain/2", False),
    ("deprecate", "Plain", False),
])  # fmt: skip
def test_a_module_that_does_not_load_is_told(
    decide: str, wanted: str, told: bool, robot: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The view was installed without a word, and no load of it worked."""
    assert run(["install", "-q", "--skip-sanity-check", "Plain-2"]) == 0
    assert run([decide, "Plain/2", *(() if decide == "hide" else ("--message", "old"))]) == 0
    view = write(robot / "View-1.yaml", f"name: View\nversion: '1'\nmodules: [{wanted}]\n")
    capfd.readouterr()
    assert run(["install", str(view)]) == 0
    said = f"warning: {wanted}, which View/1 loads, is retired or hidden, and does not load"
    assert (said in capfd.readouterr().err) == told
