"""The index of the shipped easyconfigs: it says what they say, and is never believed about files that have changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod.actions.search import describe, find_all
from sifmod.config.find import shipped
from sifmod.config.index import INDEX, read_index
from sifmod.config.load_site import LoadedSite
from sifmod.config.variants import outlines
from support.collection import FILES
from support.config import Configuration, write

ROOT = Path(__file__).parents[2]
CPU = "PyTorch/PyTorch-2.13.0.yaml"
BASE = "PyTorch/PyTorch-2.0.0-cuda-12.1-python-3.8-ngc-23.03.yaml"
EXTENDS = "PyTorch/PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.yaml"
PRESETS = ("presets/pytorch.yaml", "presets/rocm-docker.yaml", "presets/ngc.yaml")


def test_the_index_is_what_the_script_writes() -> None:
    command = (sys.executable, ROOT / "scripts" / "index", "--check")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_index_says_what_the_easyconfigs_say_on_any_machine(tmp_path: Path) -> None:
    """Not the one that it was made for: a site with another accelerator and another architecture."""
    configuration = Configuration(tmp_path, {"HOME": "/home/any"})
    site = configuration.site(site="vista").without_quirks()
    assert read_index((shipped(),), configuration.environ) == {
        path: describe(path, site, configuration.environ).variants for path in FILES
    }
    assert str(ROOT) not in (shipped() / INDEX).read_text()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A few of the easyconfigs with their presets, and the index of all."""
    copy = tmp_path / "easyconfigs"
    for file in (CPU, BASE, EXTENDS, *PRESETS, INDEX):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shipped() / file, copy / file)
    return copy


def no_site() -> LoadedSite:
    raise AssertionError("a file was read that is in the index")


def test_what_has_not_changed_is_not_read(copy: Path) -> None:
    assert {found.path for found in find_all((copy,), no_site, {})} == {copy / file for file in (CPU, BASE, EXTENDS)}


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_what_a_hint_asks_is_the_same_without_the_index(copy: Path, tmp_path: Path, arch: str) -> None:
    site = Configuration(tmp_path, {"SIFMOD_ARCH": arch}).site(site="generic").site
    index = read_index((copy,), {})
    assert len(index) == 3
    for path, offers in index.items():
        asked = [[(e.variant, e.module, e.fits("rocm", arch)) for e in each] for each in (offers, outlines(path, site))]
        assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("file", "old", "new", "read"),
    [
        (CPU, "-cpu", "-cpu-only", {CPU}),
        (BASE, "PyTorch with CUDA", "Another", {BASE, EXTENDS}),
        ("presets/ngc.yaml", "accelerator: cuda", "accelerator: none", {BASE, EXTENDS}),
        ("presets/rocm-docker.yaml", "arch: amd64", "arch: amd64 # edited", {CPU}),
        ("PyTorch/New-1.yaml", None, "name: New\nversion: '1'\nimage: {sources: [x.sif]}\n", {"PyTorch/New-1.yaml"}),
        ("PyTorch/New-2.yaml", None, "name: New\n", {"PyTorch/New-2.yaml"}),
        (EXTENDS, None, None, set()),
        ("presets/ngc.yaml", None, None, {BASE, EXTENDS}),
        (INDEX, '"PyTorch with CUDA', "x", {CPU, BASE, EXTENDS}),
        (INDEX, None, "[]", {CPU, BASE, EXTENDS}),
        (INDEX, None, None, {CPU, BASE, EXTENDS}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_changed_is_read(
    copy: Path, tmp_path: Path, file: str, old: str | None, new: str | None, read: set[str]
) -> None:
    path = copy / file
    if new is None:
        path.unlink()
    elif old is None:
        path.write_text(new)
    else:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    assert_told((copy,), Configuration(tmp_path), {copy / name for name in read})


def test_a_variable_that_a_source_names_counts(copy: Path, tmp_path: Path) -> None:
    configuration = Configuration(tmp_path, {"PYTORCH_OCI_LAYOUT": "/built"})
    assert_told((copy,), configuration, {copy / CPU})


def test_a_preset_of_another_directory_hides_that_of_the_index(copy: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(site / "presets/ngc.yaml", "accelerator: none\ndescription: ours\n")
    write(site / "Own-1.yaml", "name: Own\nversion: '1'\nimage: {sources: [x.sif]}\n")
    assert_told((site, copy), Configuration(tmp_path), {copy / BASE, copy / EXTENDS, site / "Own-1.yaml"})


def assert_told(robot_paths: tuple[Path, ...], configuration: Configuration, read: set[Path]) -> None:
    """These files are read and no others, and all are told as they are now."""
    places = ":".join(str(path) for path in robot_paths)
    site = configuration.site(site="generic", robot_paths=places).without_quirks()
    asked: list[None] = []

    def load_site() -> LoadedSite:
        asked.append(None)
        return site

    found = find_all(robot_paths, load_site, configuration.environ)
    assert found == tuple(describe(each.path, site, configuration.environ) for each in found)
    assert len(asked) == len(read)
    assert read <= {each.path for each in found}
    assert read.isdisjoint(read_index(robot_paths, configuration.environ))
