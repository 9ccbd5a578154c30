from pathlib import Path

import pytest

from sifmod.actions.list import list_modules
from sifmod.cli.main import run
from sifmod.config.name import ModuleName, fits
from sifmod.tree.layout import RECEIPT, Layout
from support.command import SIFMOD
from support.disk_state import disk_state
from support.terminal import shown
from support.tree import MODULE, install


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


def test_nothing(layout: Layout) -> None:
    assert list_modules(layout) == ()
    assert not layout.prefix.exists()


def test_what_is_installed_in_order(layout: Layout) -> None:
    modules = [ModuleName("PyTorch", "2.2.0"), ModuleName("PyTorch", "2.13.0"), ModuleName("jax", "1")]
    there = [install(layout, "a", module) for module in modules]
    again = install(layout, "b", modules[0])
    before = disk_state(layout.prefix)
    listed = list_modules(layout)
    assert [(one.module, one.generation) for one in listed] == [(modules[1], 1), (modules[0], 2), (modules[2], 1)]
    assert [one.installation for one in listed] == [there[1], again, there[2]]
    assert not any(one.problems for one in listed)
    assert disk_state(layout.prefix) == before


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("", 2), ("torch", 2), ("PYTORCH/2.2", 1), ("pytorch-2", 0), ("*/2.1*", 1), ("2.2*", 0), ("*[23].0", 2)],
)
def test_a_pattern(layout: Layout, pattern: str, count: int) -> None:
    for version in ("2.2.0", "2.13.0"):
        install(layout, "a", ModuleName("PyTorch", version))
    assert len(list_modules(layout, pattern)) == count


def test_a_bracket_without_its_twin_is_a_plain_sign() -> None:
    assert fits("a[b", "a[b")
    assert not fits("ab", "a[b")


def test_a_damaged_module_is_listed_with_what_is_wrong(layout: Layout) -> None:
    installation = install(layout, "a")
    Path(installation.root, "tiny.sif").resolve().unlink()
    layout.module_file(MODULE, "lua").unlink()
    (listed,) = list_modules(layout)
    assert listed.installation == installation
    assert listed.problems == (
        f"the modulefile {layout.module_file(MODULE, 'lua')} is missing",
        f"the image {installation.required_image.path} is missing",
    )
    Path(installation.root, RECEIPT).unlink()
    (listed,) = list_modules(layout)
    assert (listed.module, listed.generation, listed.installation) == (MODULE, 1, None)
    assert "receipt" in listed.problems[0]


def test_a_header_above_the_columns(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--prefix", str(layout.prefix)]) == 0
    assert capfd.readouterr().out == ""
    for version in ("2.2.0", "2.13.0"):
        install(layout, "a", ModuleName("PyTorch", version))
    assert run(["list", "--prefix", str(layout.prefix)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["MODULE", "SIZE", "GENERATION", "STATE"]
    assert [line.split()[0] for line in lines[1:]] == ["PyTorch/2.13.0", "PyTorch/2.2.0"]
    assert [line[lines[0].index("GENERATION")] for line in lines[1:]] == ["1", "1"]


def test_a_long_name_on_a_narrow_terminal(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, above the rest of its row; where there is room, all is in one line."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(layout.prefix))
    long = ModuleName("PyTorch", "2.2.0-rocm-5.6.1-python-3.10-singularity-20240209")
    install(layout, "a", long)
    install(layout, "b", MODULE)
    narrow = shown((*SIFMOD, "list"), 60)[0]
    assert max(map(len, narrow)) <= 60
    assert narrow[1] == str(long)
    assert [line.split()[-2:] for line in narrow[2:]] == [["kB", "1"], ["kB", "1"]]
    assert narrow[3].startswith(f"{MODULE}  ")
    assert {line.index("1", narrow[0].index("GENERATION")) for line in narrow[2:]} == {narrow[0].index("GENERATION")}
    assert [line.split()[0] for line in shown((*SIFMOD, "list"), 120)[0]] == ["MODULE", str(long), str(MODULE)]
