"""Who may not change a tree is told whose it is."""

import os
from functools import partial
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.tree.layout import Layout
from support.config import write
from support.disk_state import disk_state
from support.identity import call_as
from support.tree import MODULE, install
from support.user import OrdinaryUser


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(
    "words",
    [("hide", str(MODULE)), ("retire", str(MODULE)), ("uninstall", str(MODULE))],
    ids=lambda words: words[0],
)
def test_whose_the_tree_is(
    ordinary_user: OrdinaryUser,
    shared_tmp: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("SIFMOD_CONFIG_DIR", "HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(ordinary_user.home))
    prefix = shared_tmp / "tree"
    install(Layout(prefix), "a")
    for preload in (("hide", "--undo", str(MODULE)), ("uninstall", "None/1")):
        sifmod([*preload, "--prefix", str(prefix)])  # imports what the user may be unable to read
    before = disk_state(prefix)
    code = call_as(ordinary_user.user, lambda: sifmod([*words, "--prefix", str(prefix)]))
    said = "".join(capfd.readouterr())
    assert code == 25, said
    assert " belongs to root: ask for a change there, or choose a writable directory" in said
    assert disk_state(prefix) == before


@pytest.mark.usefixtures("needs_root")
def test_who_may_change_the_tree_and_what_the_command_can_do(
    ordinary_user: OrdinaryUser, shared_tmp: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the owner of a lock was named, and `-o FILE`, which `hide` does not have."""
    for name in ("SIFMOD_CONFIG_DIR", "HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(ordinary_user.home))
    prefix = shared_tmp / "tree"
    layout = Layout(prefix)
    install(layout, "a")
    sifmod(["hide", str(MODULE), "--prefix", str(prefix)])
    source = write(shared_tmp / "a.sif", "")
    for path in (prefix, *prefix.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            os.chown(path, -1, 71_300)
            path.chmod(0o2775)
    capfd.readouterr()
    for words, single in ((["hide", "--undo", str(MODULE)], False), (["fetch", str(source)], True)):
        code = call_as(ordinary_user.user, partial(sifmod, [*words, "--prefix", str(prefix)]))
        said = capfd.readouterr().err
        assert code == 25, said
        assert " belongs to root, and the group 71300 may change it: ask for a change there, or choose" in said
        assert ("-o FILE" in said) == single
