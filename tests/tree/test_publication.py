"""Publishing, restoring and withdrawing a generation: what stands on the disk after each, and after each that fails."""

import json
import os
from pathlib import Path

import pytest

from sifmod.config.name import ModuleName
from sifmod.errors import InstallError
from sifmod.module.plan import File
from sifmod.tree.generation import module_lock, publish, restore, staged_generation, tidy, unpublish
from sifmod.tree.history import read_history, recorded
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.receipt import live_number
from support.tree import LEASE, MODULE, install, names, nobody, tree_of


def tree(layout: Layout) -> set[str]:
    """What is there, without images and what locks leave."""
    return {name for name in names(layout) if not name.startswith(("images", ".staging"))}


def withdraw(layout: Layout, module: ModuleName = MODULE) -> None:
    with module_lock(tree_of(layout), module) as held:
        unpublish(held)


def test_an_uninstalled_module_leaves_its_generations_and_their_history(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    other = ModuleName("Tiny", "2.0")
    install(layout, "a", syntaxes=("lua", "tcl"))
    install(layout, "b", other)
    mine = layout.user_software(other) / "user-software" / "mine"
    mine.write_text("x")
    before = tree(layout)
    withdraw(layout)
    gone = {
        "modules/Tiny/1.0.lua",
        "modules/Tiny/1.0",
        "software/Tiny/1.0",
        "user-software/Tiny/1.0",
        "user-software/Tiny/1.0/user-software",
    }
    assert tree(layout) == before - gone
    assert [event.generation for event in recorded(layout, MODULE)] == [1, None]
    assert live_number(layout, MODULE) is None
    text = layout.history(MODULE).read_text()
    withdraw(layout)
    assert (tree(layout), layout.history(MODULE).read_text()) == (before - gone, text)
    withdraw(layout, other)
    assert mine.exists()
    assert os.listdir(layout.modules) == []
    withdraw(layout, ModuleName("Never", "1"))
    assert not layout.generations(ModuleName("Never", "1")).exists()


def test_what_is_not_sifmods_is_not_withdrawn(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    layout.module_file(MODULE, "lua").write_text("mine")
    before = tree(layout)
    with pytest.raises(InstallError) as caught:
        withdraw(layout)
    place = layout.module_file(MODULE, "lua")
    assert caught.value.message == (
        f"{place} was not written by sifmod, or was changed since, so it is neither replaced nor removed"
    )
    assert caught.value.hint.endswith("it has the path of Tiny/1.0's modulefile")
    assert tree(layout) == before
    place.write_text("stub lua\n")
    layout.switch(MODULE).unlink()
    layout.switch(MODULE).symlink_to("elsewhere")
    with pytest.raises(InstallError, match="is not a link made by sifmod, so it is neither replaced nor removed"):
        withdraw(layout)
    assert os.readlink(layout.switch(MODULE)) == "elsewhere"


@pytest.mark.parametrize("there", [False, True])
def test_a_publication_that_fails_leaves_the_users_place_as_it_was(there: bool, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.modules.write_text("in the way")
    place = layout.user_software(MODULE) / "user-software"
    if there:
        place.mkdir(parents=True)
    before = tree(layout)
    with pytest.raises(InstallError, match=r"cannot publish Tiny/1\.0"):
        install(layout, "a")
    assert tree(layout) == before
    assert place.exists() == there


def test_what_became_live_is_written_down_by_the_next_run(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    install(layout, "b")
    layout.history(MODULE).write_text("[[1, 5.0, []]]")
    with module_lock(tree_of(layout), MODULE):
        assert [event.generation for event in recorded(layout, MODULE)] == [1, 2]
    assert json.loads(layout.history(MODULE).read_text())[0] == [1, 5.0, []]
    assert [event.generation for event in read_history(layout, MODULE)] == [1, 2]
    layout.switch(MODULE).unlink()
    layout.history(MODULE).write_text("[[1, 5.0, []]]")
    with module_lock(tree_of(layout), MODULE):
        assert layout.history(MODULE).read_text() == "[[1, 5.0, []]]"


def test_a_number_that_the_history_knows_is_not_given_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.history(MODULE).parent.mkdir(parents=True)
    layout.history(MODULE).write_text("[[7, 5.0, []], [null, 6.0, []]]")
    assert install(layout, "a").generation == 8
    (layout.generations(MODULE) / "11").mkdir()
    assert install(layout, "b").generation == 12


def test_only_what_a_run_placed_and_never_published_is_withdrawn(tmp_path: Path) -> None:
    """Of a run that died: its notes say which."""
    layout = Layout(tmp_path)
    for tag in "ab":
        install(layout, tag)
    (layout.generations(MODULE) / "3").mkdir()
    (layout.generations(MODULE) / "4").mkdir()
    dead = layout.staging / "Tiny@1.0.1.dead"
    dead.mkdir()
    for number in (1, 3, 9):
        (dead / f"{number}.placed").touch()
    tidy(tree_of(layout))
    assert sorted(os.listdir(layout.generations(MODULE))) == ["1", "2", "4", "history.json"]
    assert list(layout.staging.iterdir()) == []
    other = layout.staging / "image-1.0.dead"
    other.mkdir()
    tidy(tree_of(layout))
    assert list(layout.staging.iterdir()) == []


def test_stubs_of_a_generation_without_a_receipt_are_known_by_its_copies(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    root = Path(install(layout, "a", syntaxes=("lua", "tcl")).root)
    (root / "receipt.json").unlink()
    install(layout, "b", syntaxes=("lua",))
    assert sorted(os.listdir(layout.modules / "Tiny")) == ["1.0.lua"]


def test_publishing_keeps_files_that_are_right(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    installation = install(layout, "a")
    places = (layout.switch(MODULE), layout.module_file(MODULE, "lua"))
    before = [path.lstat().st_ino for path in places]
    with module_lock(tree_of(layout), MODULE) as held:
        publish(held, installation)
        restore(held, installation)
    assert [path.lstat().st_ino for path in places] == before
    layout.module_file(MODULE, "lua").unlink()
    layout.switch(MODULE).unlink()
    with module_lock(tree_of(layout), MODULE) as held:
        restore(held, installation)
    assert layout.module_file(MODULE, "lua").read_text() == "stub lua\n"
    assert os.readlink(layout.switch(MODULE)) == ".generations/1.0/1"


def test_a_stage_that_fails_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with module_lock(tree_of(layout), MODULE) as held:
        with pytest.raises(ZeroDivisionError), staged_generation(held) as stage:
            stage.write((File("bin/x", "x"),))
            stage.place()
            stage.place()
            assert stage.directory == Path(stage.root)
            _ = 1 / 0
        assert not any(held.held.directory.glob("*.generation"))
        assert not layout.software.exists()


def test_a_failing_block_under_a_modules_lock_takes_its_generation_along(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    before = tree(layout)
    with (
        pytest.raises(ZeroDivisionError),
        module_lock(tree_of(layout), MODULE) as held,
    ):
        with staged_generation(held) as stage:
            stage.write((File("x", "x"),))
        assert Path(stage.root, "x").exists()
        _ = 1 / 0
    assert tree(layout) == before
    with lock(layout, str(MODULE), LEASE, nobody) as again:
        again.check()


def test_nobody_may_write_what_is_installed_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "prefix").mkdir(0o755)
        root = Path(install(Layout(tmp_path / "prefix"), "a").root)
    finally:
        os.umask(before)
    modes = {name: (root / name).stat().st_mode & 0o777 for name in ("bin/python", "modulefile.lua", "receipt.json")}
    assert modes == {"bin/python": 0o555, "modulefile.lua": 0o444, "receipt.json": 0o444}
    assert [(root / name).stat().st_mode & 0o777 for name in ("bin", "share", "share/modules", "")] == [0o555] * 3 + [
        0o755  # as open as the prefix
    ]
