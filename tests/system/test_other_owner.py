"""Who may not change a tree is told whose it is."""

from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.tree.layout import Layout
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
