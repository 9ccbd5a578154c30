import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.config.name import ModuleName
from sifmod.errors import InstallError, LockError, SifmodError
from sifmod.module.plan import File
from sifmod.tree.generation import HeldModule, module_lock, publish, restore, staged_generation, tidy
from sifmod.tree.history import read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live, live_number, numbers
from sifmod.tree.removal import remove_tree
from sifmod.tree.state import edited, missing
from sifmod.tree.store import Store
from support.disk_state import State, disk_state
from support.identity import call_as
from support.tree import MODULE, become, fill, install, install_under, names, nobody, put_image, tree_of
from support.user import OrdinaryUser


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def held(layout: Layout) -> Iterator[HeldModule]:
    with module_lock(tree_of(layout), MODULE) as held:
        yield held


def test_a_first_install(layout: Layout) -> None:
    installation = install(layout, "a")
    root = layout.generation(MODULE, 1)
    assert installation.root == str(root)
    assert os.readlink(layout.switch(MODULE)) == ".generations/1.0/1"
    assert (root / "modulefile.lua").read_text() == f"a modulefile.lua of {root}\n"
    assert layout.module_file(MODULE, "lua").read_text() == "stub lua\n"
    assert not layout.module_file(MODULE, "tcl").exists()
    assert (root / "tiny.sif").read_bytes().startswith(b"image a")
    assert missing(layout, installation) == ()
    assert [event.generation for event in read_history(layout, MODULE)] == [1]
    sha256 = installation.required_image.sha256
    assert names(layout) == {
        ".staging",
        "images",
        "images/sha256",
        f"images/sha256/{sha256}.json",
        f"images/sha256/{sha256}.sif",
        "modules",
        "modules/Tiny",
        "modules/Tiny/1.0.lua",
        "software",
        "software/Tiny",
        "software/Tiny/1.0",
        "software/Tiny/.generations",
        "software/Tiny/.generations/1.0",
        "software/Tiny/.generations/1.0/history.json",
        *(f"software/Tiny/.generations/1.0/1{path}" for path in GENERATION),
        "user-software",
        "user-software/Tiny",
        "user-software/Tiny/1.0",
        "user-software/Tiny/1.0/user-software",
    }


GENERATION = (
    "",
    "/bin",
    "/bin/python",
    "/easyconfig.yaml",
    "/modulefile.lua",
    "/receipt.json",
    "/share",
    "/share/modules",
    "/share/modules/Tiny",
    "/share/modules/Tiny/1.0.lua",
    "/tiny.sif",
    "/user-software",
    "/user-software.squashfs",
)


def test_a_reinstall_leaves_the_generation_before_untouched(layout: Layout) -> None:
    first = install(layout, "a")
    before = disk_state(Path(first.root))
    second = install(layout, "b")
    assert live(layout, MODULE) == second
    assert second.generation == 2
    assert disk_state(Path(first.root)) == before


def test_files_are_read_only_and_the_top_is_not(layout: Layout) -> None:
    root = Path(install(layout, "a").root)
    modes = {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in (root, *root.rglob("*"))}
    umask = os.umask(0)
    os.umask(umask)
    assert modes["."] == 0o777 & ~umask
    for directory in ("bin", "share", "share/modules"):
        assert modes[directory] == 0o555 & ~umask
    assert modes["bin/python"] == 0o555 & ~umask
    assert modes["modulefile.lua"] == modes["receipt.json"] == 0o444 & ~umask


def test_modes_of_parents_stay(tmp_path: Path) -> None:
    parent = tmp_path / "project"
    parent.mkdir()
    parent.chmod(0o2770)
    layout = Layout(parent / "tree")
    install(layout, "a")
    layout.prefix.chmod(0o2750)
    (layout.software / "Tiny").chmod(0o2770)
    install(layout, "b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (parent, layout.prefix, layout.software / "Tiny")] == [
        0o2770,
        0o2750,
        0o2770,
    ]


def test_a_users_own_files_are_at_hand_in_every_generation(layout: Layout) -> None:
    first = Path(install(layout, "a").root)
    (first / "user-software" / "venv").mkdir()
    (first / "user-software.squashfs").write_text("packed")
    second = Path(install(layout, "b").root)
    assert (second / "user-software" / "venv").is_dir()
    assert (second / "user-software.squashfs").read_text() == "packed"
    assert (layout.user_software(MODULE) / "user-software.squashfs").read_text() == "packed"


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("installed", [False, True])
def test_a_failure_leaves_the_disk_as_before(layout: Layout, installed: bool, placed: bool) -> None:
    if installed:
        install(layout, "b")
    with module_lock(tree_of(layout), MODULE) as held:
        put_image(Store(layout, held.held), "b")
        before = visible(layout)
        with pytest.raises(ZeroDivisionError), staged_generation(held) as stage:
            fill(stage, Store(layout, held.held), "b")
            if placed:
                stage.place()
                assert Path(stage.root, "tiny.sif").read_bytes().startswith(b"image b")
            _ = 1 / 0
    assert visible(layout) == before
    assert list(layout.staging.iterdir()) == []


def visible(layout: Layout) -> State:
    """The tree without locks and staging."""
    hidden = (str(layout.locks), str(layout.staging))
    return {path: state for path, state in disk_state(layout.prefix).items() if not path.startswith(hidden)}


def test_a_generation_that_is_not_published_goes_with_the_lock(layout: Layout) -> None:
    install(layout, "a")
    before = names(layout)
    with module_lock(tree_of(layout), MODULE) as held, staged_generation(held) as stage:
        fill(stage, Store(layout, held.held), "a")
    assert names(layout) == before
    assert live_number(layout, MODULE) == 1


def test_placing_is_not_publishing(layout: Layout, held: HeldModule) -> None:
    first = install_under("a", held)
    with staged_generation(held) as stage:
        second = fill(stage, Store(layout, held.held), "b")
        stage.place()
        stage.place()
        assert str(stage.directory) == stage.root == second.root
        assert live(layout, MODULE) == first
    publish(held, second)
    assert live(layout, MODULE) == second


def test_publishing_again_changes_nothing(layout: Layout, held: HeldModule) -> None:
    installation = install_under("a", held)
    layout_state = names(layout)
    history = layout.history(MODULE).read_text()
    publish(held, installation)
    assert names(layout) - staging(layout) == layout_state - staging(layout)
    assert layout.history(MODULE).read_text() == history


def staging(layout: Layout) -> set[str]:
    return {name for name in names(layout) if name.startswith(".staging/")}


def test_a_number_never_comes_back(layout: Layout) -> None:
    for tag in "abc":
        install(layout, tag)
    for number in (1, 2, 3):
        remove_tree(layout.generation(MODULE, number), layout.prefix)
    layout.switch(MODULE).unlink()
    assert install(layout, "d").generation == 4


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", ".", "a//b", "./a", "receipt.json", "a/"])
def test_a_path_that_leads_out_is_refused(layout: Layout, held: HeldModule, path: str) -> None:
    before = names(layout)
    with pytest.raises(InstallError, match="cannot be the path of a file"), staged_generation(held) as stage:
        stage.write((File(path, "x"),))
    assert names(layout) - staging(layout) == before - staging(layout)


def test_two_files_of_one_path_are_refused(layout: Layout, held: HeldModule) -> None:
    with pytest.raises(InstallError, match="two files") as caught, staged_generation(held) as stage:
        stage.write((File("bin/x", "1"), File("bin/x", "2")))
    assert caught.value.message == "two files of Tiny/1.0 have the path bin/x"
    assert not layout.software.exists()


def test_more_files_than_a_process_may_have_open(layout: Layout, held: HeldModule) -> None:
    files = [File(f"{'bin' if number % 2 else 'share/deep'}/{number}", str(number)) for number in range(350)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with staged_generation(held) as stage:
            stage.write(files)
            installation = fill(stage, Store(layout, held.held, nobody), "a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [file.path for file in installation.files[:350]] == [file.path for file in files]
    assert edited(installation) == ()


def test_links_are_relative_inside_the_prefix_only(layout: Layout, held: HeldModule, tmp_path: Path) -> None:
    with staged_generation(held) as stage:
        stage.write((File("share/x", ""),))
        stage.link("share/here", layout.image("ab"))
        stage.link("there", tmp_path / "mine.sif")
        assert os.readlink(stage.directory / "share" / "here") == "../../../../../../images/sha256/ab.sif"
        assert os.readlink(stage.directory / "there") == str(tmp_path / "mine.sif")


# what the user added


def test_additions_come_along(layout: Layout) -> None:
    first = Path(install(layout, "a").root)
    (first / "notes.txt").write_text("mine")
    (first / "data").mkdir()
    (first / "data" / "link").symlink_to("../notes.txt")
    (first / "bin").chmod(0o755)
    (first / "bin" / "mytool").write_text("tool")
    with module_lock(tree_of(layout), MODULE) as held, staged_generation(held) as stage:
        stage.write((File("bin/other", ""),))
        carried = stage.carry_over()
        assert carried.carried == ("bin/mytool", "data/link", "notes.txt")
        assert carried.left == ()
        assert (stage.directory / "data" / "link").read_text() == "mine"
        assert (stage.directory / "bin" / "mytool").samefile(first / "bin" / "mytool")
    second = install(layout, "b")
    assert Path(second.root, "notes.txt").read_text() == "mine"
    assert "notes.txt" not in second.paths
    third = install(layout, "c")
    assert Path(third.root, "bin", "mytool").read_text() == "tool"


def test_additions_that_cannot_come_along_are_named(layout: Layout) -> None:
    first = Path(install(layout, "a").root)
    (first / "new").write_text("mine")
    os.mkfifo(first / "pipe")
    with module_lock(tree_of(layout), MODULE) as held, staged_generation(held) as stage:
        stage.write((File("new", "ours"),))
        carried = stage.carry_over()
        assert (stage.directory / "new").read_text() == "ours"
    assert carried.carried == ()
    assert carried.left == ("new", "pipe")
    assert (first / "new").read_text() == "mine"


# what is not ours


def test_a_directory_in_the_place_of_the_switch_is_not_touched(layout: Layout) -> None:
    layout.switch(MODULE).mkdir(parents=True)
    (layout.switch(MODULE) / "file").write_text("somebody's")
    before = names(layout)
    with pytest.raises(InstallError, match="not a link made by sifmod") as caught:
        install(layout, "a")
    assert "move it away" in caught.value.hint
    assert {name for name in names(layout) if not name.startswith((".staging", "images"))} == before


def test_a_modulefile_of_somebody_else_is_not_touched(layout: Layout) -> None:
    path = layout.module_file(MODULE, "lua")
    path.parent.mkdir(parents=True)
    path.write_text("somebody's")
    with pytest.raises(InstallError, match="was not written by sifmod"):
        install(layout, "a")
    assert path.read_text() == "somebody's"
    assert live_number(layout, MODULE) is None
    assert not layout.software.exists()
    assert not layout.user_software(MODULE).exists()


def test_a_modulefile_that_was_changed_is_not_replaced(layout: Layout) -> None:
    first = install(layout, "a")
    layout.module_file(MODULE, "lua").write_text("stub lua\n-- my line\n")
    before = visible(layout)
    with pytest.raises(InstallError, match="was changed since"):
        install(layout, "a", syntaxes=("lua", "tcl"))
    assert visible(layout) == before
    assert live(layout, MODULE) == first


def test_syntaxes_come_and_go(layout: Layout) -> None:
    lua, tcl = layout.module_file(MODULE, "lua"), layout.module_file(MODULE, "tcl")
    install(layout, "a", syntaxes=("lua",))
    install(layout, "b", syntaxes=("lua", "tcl"))
    assert (lua.read_text(), tcl.read_text()) == ("stub lua\n", "stub tcl\n")
    install(layout, "c", syntaxes=("tcl",))
    assert not lua.exists()
    assert tcl.exists()


def test_a_damaged_generation_is_replaced(layout: Layout) -> None:
    root = Path(install(layout, "a").root)
    (root / "receipt.json").unlink()
    layout.module_file(MODULE, "lua").unlink()
    second = install(layout, "b")
    assert live(layout, MODULE) == second
    assert missing(layout, second) == ()
    (Path(second.root) / "receipt.json").unlink()
    assert install(layout, "c").generation == 3


# what a user removed


def test_links_and_stubs_come_back(layout: Layout, held: HeldModule) -> None:
    installation = install_under("a", held)
    root = Path(installation.root)
    before = names(layout) - staging(layout)
    (root / "tiny.sif").unlink()
    layout.module_file(MODULE, "lua").unlink()
    (root / "user-software").unlink()
    assert len(missing(layout, installation)) == 3
    restore(held, installation)
    assert missing(layout, installation) == ()
    assert names(layout) - staging(layout) == before
    assert live_number(layout, MODULE) == 1


def test_an_ordinary_user_can_remove_the_image_and_old_generations(
    shared_tmp: Path, ordinary_user: OrdinaryUser
) -> None:
    prefix = shared_tmp / "prefix"
    prefix.mkdir()
    ordinary_user.own(prefix)
    child = os.fork()
    if child == 0:
        become(ordinary_user.user)
        layout = Layout(prefix)
        root = Path(install(layout, "a").root)
        (root / "tiny.sif").unlink()
        try:
            (root / "bin" / "python").unlink()
        except PermissionError:
            install(layout, "b")
            remove_tree(root, layout.prefix)
            os._exit(0 if not root.exists() else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert live_number(Layout(prefix), MODULE) == 2


# after a run that died, seen from the state it left; every state of a real one is in test_crash.py


def test_tidy_without_anything_to_do_makes_nothing(layout: Layout) -> None:
    tidy(tree_of(layout))
    assert not layout.prefix.exists()


def test_the_switch_is_believed_when_the_history_lags(layout: Layout) -> None:
    install(layout, "a")
    install(layout, "b")
    text = layout.history(MODULE).read_text()
    layout.history(MODULE).unlink()
    assert [event.generation for event in read_history(layout, MODULE)] == [2]
    layout.history(MODULE).write_text("[[1, 5.0, []]]")
    events = read_history(layout, MODULE)
    assert [event.generation for event in events] == [1, 2]
    assert events[1].time == layout.switch(MODULE).lstat().st_mtime
    layout.switch(MODULE).unlink()
    layout.history(MODULE).write_text(text)
    assert [event.generation for event in read_history(layout, MODULE)] == [1, 2, None]
    assert numbers(layout, MODULE) == (1, 2)


def test_another_module_is_not_disturbed(layout: Layout) -> None:
    other = install(layout, "x", ModuleName("Tiny", "2.0"))
    before = disk_state(Path(other.root), layout.module_file(other.module, "lua"))
    with (
        pytest.raises(LockError),
        module_lock(tree_of(layout), MODULE) as held,
        staged_generation(held) as stage,
    ):
        fill(stage, Store(layout, held.held), "a")
        remove_tree(held.held.directory, layout.prefix)
    assert disk_state(Path(other.root), layout.module_file(other.module, "lua")) == before
    assert live(layout, other.module) == other


def test_a_link_in_the_place_of_a_stub_is_not_ours(layout: Layout, tmp_path: Path) -> None:
    """Even where it leads to the very same text."""
    install(layout, "a")
    stub = layout.module_file(MODULE, "lua")
    stub.rename(tmp_path / "mine.lua")
    stub.symlink_to(tmp_path / "mine.lua")
    before = disk_state(layout.modules, layout.software, tmp_path / "mine.lua")
    with pytest.raises(InstallError, match="was not written by sifmod"):
        install(layout, "b")
    assert disk_state(layout.modules, layout.software, tmp_path / "mine.lua") == before


@pytest.mark.parametrize("gone", [True, False])
def test_the_link_to_an_image_comes_back_only_while_that_is_there(layout: Layout, gone: bool) -> None:
    """Its user gave it up for the site's copy; the other links come back in any case."""
    installation = install(layout, "a")
    root = Path(installation.root)
    for name in ("tiny.sif", "user-software"):
        (root / name).unlink()
    if gone:
        Path(installation.required_image.path).unlink()
    with module_lock(tree_of(layout), MODULE) as held:
        restore(held, installation)
    assert (root / "user-software").is_symlink()
    assert (root / "tiny.sif").is_symlink() != gone


def test_a_history_that_cannot_be_read_is_not_written_anew(tmp_path: Path, ordinary_user: OrdinaryUser) -> None:
    install(Layout(tmp_path / "prefix"), "a")  # what is imported late may be closed to the user
    layout = Layout(ordinary_user.home / "prefix")

    def do() -> str:
        install(layout, "a")
        install(layout, "b")
        layout.history(MODULE).chmod(0)
        try:
            install(layout, "c")
        except (OSError, SifmodError) as error:
            return str(error)
        return "installed"

    assert "Permission denied" in call_as(ordinary_user.user, do)
    layout.history(MODULE).chmod(0o644)
    assert [event.generation for event in read_history(layout, MODULE)] == [1, 2]
    assert live_number(layout, MODULE) == 2


def test_what_cannot_be_published_leaves_nothing_but_its_image(layout: Layout) -> None:
    """A file stands where the modulefiles go."""
    layout.prefix.mkdir()
    layout.modules.write_text("mine")
    with pytest.raises(InstallError):
        install(layout, "a")
    assert {name for name in names(layout) if not name.startswith("images")} == {".staging", "modules"}
    assert layout.modules.read_text() == "mine"


@pytest.mark.parametrize("how", ["write", "link", "carry_over"])
def test_a_holder_that_was_fenced_off_does_not_make_its_directory_again(layout: Layout, how: str) -> None:
    """A new holder moves it away while a file is staged: what is staged next is an error, and nowhere."""
    root = Path(install(layout, "a").root)
    (root / "notes").mkdir()
    (root / "notes" / "mine").write_text("mine")
    with pytest.raises(LockError), module_lock(tree_of(layout), MODULE) as mine, staged_generation(mine) as stage:
        mine.held.directory.rename(layout.staging / "away")
        with pytest.raises(LockError):
            if how == "write":
                stage.write((File("bin/python", "x"),))
            elif how == "link":
                stage.link("share/tiny.sif", layout.prefix)
            else:
                stage.carry_over()
        assert not mine.held.directory.exists()
