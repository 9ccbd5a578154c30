from pathlib import Path

import pytest

from sifmod.actions.rollback import rollback
from sifmod.actions.uninstall import uninstall
from sifmod.cli.main import run
from sifmod.errors import InstallError, ModuleError
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live, live_number
from sifmod.tree.removal import remove_tree
from sifmod.tree.state import missing
from support.config import write
from support.disk_state import disk_state
from support.hold import Other
from support.images import Images
from support.tree import ALONE, LEASE, MODULE, install, names, tree_of


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


def test_back_and_forth(layout: Layout) -> None:
    first, second = install(layout, "a"), install(layout, "b")
    assert rollback(tree_of(layout), MODULE, None, ALONE) == first
    assert live(layout, MODULE) == first
    before = disk_state(layout.prefix)
    with pytest.raises(
        ModuleError, match=r"rolled back already, at .*: from generation 2 to 1, which is live"
    ) as caught:
        rollback(tree_of(layout), MODULE, None, ALONE)
    assert "`--to 2` makes 2 live again" in caught.value.hint
    assert disk_state(layout.prefix) == before
    assert rollback(tree_of(layout), MODULE, 2, ALONE) == second
    assert live(layout, MODULE) == second


def test_to_a_number(layout: Layout) -> None:
    first, _, third = install(layout, "a"), install(layout, "b"), install(layout, "c")
    assert rollback(tree_of(layout), MODULE, 1, ALONE) == first
    before = layout.history(MODULE).read_text()
    assert rollback(tree_of(layout), MODULE, 1, ALONE) == first
    assert layout.history(MODULE).read_text() == before
    assert rollback(tree_of(layout), MODULE, 3, ALONE) == third
    assert install(layout, "d").generation == 4


def test_the_stubs_are_those_of_the_generation(layout: Layout) -> None:
    install(layout, "a", syntaxes=("tcl",))
    install(layout, "b", syntaxes=("lua",))
    rollback(tree_of(layout), MODULE, None, ALONE)
    assert layout.module_file(MODULE, "tcl").read_text() == "stub tcl\n"
    assert not layout.module_file(MODULE, "lua").exists()


def test_an_uninstalled_module_comes_back(layout: Layout) -> None:
    first = install(layout, "a")
    before = names(layout)
    uninstall(tree_of(layout), MODULE, ALONE)
    assert rollback(tree_of(layout), MODULE, None, ALONE) == first
    assert names(layout) == before
    assert missing(layout, first) == ()


@pytest.mark.parametrize("to", [None, 7])
def test_nowhere_to_go(layout: Layout, to: int | None) -> None:
    install(layout, "a")
    before = disk_state(layout.software, layout.modules)
    with pytest.raises(ModuleError, match=r"Tiny/1\.0 has no (earlier generation|generation 7) in") as caught:
        rollback(tree_of(layout), MODULE, to, ALONE)
    assert caught.value.hint == "generations there: 1"
    assert disk_state(layout.software, layout.modules) == before


def test_what_was_never_installed(layout: Layout) -> None:
    with pytest.raises(ModuleError) as caught:
        rollback(tree_of(layout), MODULE, None, ALONE)
    assert caught.value.hint == "generations there: none"
    assert not layout.prefix.exists()


@pytest.mark.parametrize("lost", ["tiny.sif", "bin/python", "receipt.json"])
def test_an_incomplete_generation_is_refused(layout: Layout, lost: str) -> None:
    first = install(layout, "a")
    second = install(layout, "b")
    path = Path(first.root, lost).resolve()
    path.parent.chmod(0o755)
    path.unlink()
    with pytest.raises(InstallError) as caught:
        rollback(tree_of(layout), MODULE, None, ALONE)
    assert "no longer complete" in caught.value.message or "has no readable receipt" in caught.value.message
    assert live(layout, MODULE) == second


def test_a_generation_that_another_run_removes_just_now_is_no_damaged_one(layout: Layout) -> None:
    """It is looked at under the lock, when the other run has ended."""
    first = install(layout, "a")
    install(layout, "b")
    other = Other(layout.prefix, LEASE).take()
    Path(first.root, "modulefile.lua").unlink()
    told: list[str] = []

    def end(who: str) -> None:
        if not told:
            remove_tree(Path(first.root), layout.prefix)
            other.release()
        told.append(who)

    with pytest.raises(ModuleError, match=r"Tiny/1\.0 has no earlier generation"):
        rollback(tree_of(layout, LEASE, end), MODULE, None, ALONE)
    assert told


def test_a_removed_link_comes_back(layout: Layout) -> None:
    first = install(layout, "a")
    Path(first.root, "tiny.sif").unlink()
    install(layout, "b")
    rollback(tree_of(layout), MODULE, None, ALONE)
    assert missing(layout, first) == ()


def test_a_generation_that_gc_took_is_passed_over(layout: Layout) -> None:
    first, second = install(layout, "a"), install(layout, "b")
    install(layout, "c")
    remove_tree(Path(second.root), layout.prefix)
    assert rollback(tree_of(layout), MODULE, None, ALONE) == first
    assert live_number(layout, MODULE) == 1


def test_a_modulefile_that_was_changed_in_its_generation_is_not_published(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By another member of the group, for instance: everybody would load it."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    image = f"image: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    easyconfig = write(tmp_path / "App-1.yaml", f"name: App\nversion: '1'\n{image}")
    assert run(["install", "-q", "--skip-sanity-check", str(easyconfig)]) == 0
    assert run(["uninstall", "App/1"]) == 0
    (copy,) = (tmp_path / "prefix/software/App/.generations/1/1/share/modules").rglob("1.lua")
    copy.chmod(0o644)
    copy.write_text(f"{copy.read_text()}os.execute('true')\n")
    before = disk_state(tmp_path / "prefix/software", tmp_path / "prefix/modules")
    capfd.readouterr()
    assert run(["rollback", "App/1"]) != 0
    assert f"{copy} was changed since it was installed, so it is not published" in capfd.readouterr().err
    assert disk_state(tmp_path / "prefix/software", tmp_path / "prefix/modules") == before
    assert not (tmp_path / "prefix/modules/App/1.lua").exists()
