from pathlib import Path

import pytest

from sifmod.actions.uninstall import uninstall
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.errors import InstallError, ModuleError
from sifmod.tree.history import read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live, live_number
from support.disk_state import disk_state
from support.tree import ALONE, MODULE, install, names, tree_of


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


def test_a_module_goes_out_of_sight_and_its_generation_stays(layout: Layout) -> None:
    installation = install(layout, "a", syntaxes=("lua", "tcl"))
    before = disk_state(Path(installation.root))
    done = uninstall(tree_of(layout), MODULE, ALONE)
    assert (done.module, done.generation, done.user_software) == (MODULE, 1, None)
    assert live_number(layout, MODULE) is None
    assert list(layout.modules.iterdir()) == []
    assert disk_state(Path(installation.root)) == before
    assert [event.generation for event in read_history(layout, MODULE)] == [1, None]
    assert "user-software" not in names(layout)


def test_what_the_user_added_stays_and_is_there_again_later(layout: Layout) -> None:
    root = Path(install(layout, "a").root)
    (root / "user-software" / "mine").write_text("x")
    done = uninstall(tree_of(layout), MODULE, ALONE)
    assert done.user_software == str(layout.user_software(MODULE))
    again = Path(install(layout, "b").root)
    assert again.name == "2"
    assert (again / "user-software" / "mine").read_text() == "x"


def test_other_modules_stay(layout: Layout) -> None:
    other = install(layout, "a", ModuleName("Tiny", "2.0"))
    install(layout, "a")
    uninstall(tree_of(layout), MODULE, ALONE)
    assert live(layout, other.module) == other
    assert layout.module_file(other.module, "lua").exists()


def test_what_was_never_installed_cannot_be_uninstalled(layout: Layout) -> None:
    with pytest.raises(ModuleError, match=r"Tiny/1\.0 is not installed in"):
        uninstall(tree_of(layout), MODULE, ALONE)
    assert not layout.prefix.exists()


def test_uninstalling_again_changes_nothing(layout: Layout) -> None:
    install(layout, "a")
    uninstall(tree_of(layout), MODULE, ALONE)
    before, history = names(layout), layout.history(MODULE).read_text()
    assert uninstall(tree_of(layout), MODULE, ALONE).generation is None
    assert (names(layout), layout.history(MODULE).read_text()) == (before, history)


def test_a_half_done_uninstall_is_completed(layout: Layout) -> None:
    """What a kill between the switch and the history leaves; every other state is in test_crash.py."""
    install(layout, "a")
    layout.module_file(MODULE, "lua").unlink()
    layout.switch(MODULE).unlink()
    assert uninstall(tree_of(layout), MODULE, ALONE).generation == 1
    assert "null" in layout.history(MODULE).read_text()


def test_a_modulefile_that_was_changed_is_not_removed(layout: Layout) -> None:
    installation = install(layout, "a")
    path = layout.module_file(MODULE, "lua")
    path.write_text("my own")
    with pytest.raises(InstallError, match="was changed since") as caught:
        uninstall(tree_of(layout), MODULE, ALONE)
    assert str(path) in caught.value.message
    assert path.read_text() == "my own"
    assert live(layout, MODULE) == installation


def test_without_a_receipt_it_goes_all_the_same(layout: Layout) -> None:
    Path(install(layout, "a", syntaxes=("lua", "tcl")).root, "receipt.json").unlink()
    assert uninstall(tree_of(layout), MODULE, ALONE).generation == 1
    assert list(layout.modules.iterdir()) == []
    assert live_number(layout, MODULE) is None


def test_a_modulefile_of_the_other_syntax_that_is_not_ours_stays(layout: Layout) -> None:
    install(layout, "a")
    layout.module_file(MODULE, "tcl").write_text("#%Module")
    uninstall(tree_of(layout), MODULE, ALONE)
    assert layout.module_file(MODULE, "tcl").read_text() == "#%Module"
    assert not layout.module_file(MODULE, "lua").exists()


def test_a_directory_in_the_place_of_the_switch_is_not_removed(layout: Layout) -> None:
    install(layout, "a")
    layout.switch(MODULE).unlink()
    layout.switch(MODULE).mkdir()
    with pytest.raises(InstallError, match="not a link made by sifmod"):
        uninstall(tree_of(layout), MODULE, ALONE)
    assert layout.switch(MODULE).is_dir()


def test_uninstalling_again_is_told_from_uninstalling(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    install(layout, "a")
    install(layout, "b", ModuleName("Other", "2"))
    words = ["uninstall", "--prefix", str(layout.prefix)]
    assert run([*words, "Tiny"]) == 0
    capfd.readouterr()
    assert run([*words, "Tiny", "Other"]) == 0
    said = capfd.readouterr().err
    assert "== Other/2: uninstalled; " in said
    assert "== Tiny/1.0: was already uninstalled; `sifmod rollback Tiny/1.0` restores it" in said
    assert "Tiny/1.0: uninstalled" not in said
    assert run([*words, "--purge", "Tiny", "Other"]) == 0
    assert not list(layout.images.iterdir())
