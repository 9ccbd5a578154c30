"""A member of the group makes directories in each other, more than a path can name, in each place of a tree.

Each command ends without a traceback, and `gc` and `uninstall` still remove what they remove.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.config import write
from support.identity import call_as
from support.images import Images
from support.user import OrdinaryUser

SKIP = "--skip-sanity-check"
PLACES = (
    "software/Tiny/.generations/1.0/1",
    "software/Tiny/.generations/1.0",
    "images/partial/abc",
    "layers/Tiny/1.0/default/0123456789abcdef/1",
    "log/modules",
    ".locks",
    "stacks",
    ".staging/x.1.ab",
    "user-software/Tiny/1.0",
)
COMMANDS = (
    ("verify",),
    ("verify", "--modes"),
    ("list",),
    ("gc", "--now"),
    ("gc", "--yes", "--now"),
    ("install", "--rebuild", SKIP, "Tiny-1.0.yaml"),
    ("rollback", "Tiny/1.0"),
    ("uninstall", "Tiny/1.0"),
    ("uninstall", "Tiny/1.0", "--purge", "--ignore-jobs"),
    ("gc", "--yes", "--now"),
)
DEPTHS = (1200, 3000)  # more than Python's recursion; more than a path


def nest(place: Path, depth: int) -> None:
    """Directories in each other."""
    place.mkdir(parents=True, exist_ok=True)
    here = os.getcwd()
    os.chdir(place)
    try:
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)


@pytest.fixture
def here(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Of an ordinary user: root may remove everything, and is not asked."""
    place = shared_tmp / "a place"
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    write(place / "Tiny-1.0.yaml", f"name: Tiny\nversion: '1.0'\naccelerator: none\n{image}")
    place.chmod(0o777)
    monkeypatch.setenv("SIFMOD_PREFIX", str(place / "prefix"))
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(place / "settings"))
    write(place / "settings/a.yaml", f"sharing: site\nprefix: '{place}/prefix'\n")
    monkeypatch.chdir(place)
    assert call_as(ordinary_user.user, lambda: run(["install", "-q", SKIP, "Tiny-1.0.yaml"])) == 0
    yield place
    subprocess.run(("rm", "-rf", place), check=True)  # Python's own removal ends with a RecursionError


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("place", PLACES)
def test_no_command_ends_with_a_traceback(here: Path, ordinary_user: OrdinaryUser, place: str, depth: int) -> None:
    def commands() -> list[str]:
        nest(here / "prefix" / place, depth)
        return [f"{words}: 70" for words in COMMANDS if run([*words]) == 70]

    assert call_as(ordinary_user.user, commands) == []


def test_what_is_too_deep_is_named_and_stays_in_the_old_generation(
    here: Path, ordinary_user: OrdinaryUser, capfd: pytest.CaptureFixture[str]
) -> None:
    def rebuild() -> int:
        found = live(Layout(here / "prefix"), ModuleName("Tiny", "1.0"))
        assert found
        nest(Path(found.root, "mine"), 1200)
        write(Path(found.root, "kept"), "words")
        return run(["install", "--rebuild", SKIP, "Tiny-1.0.yaml"])

    assert call_as(ordinary_user.user, rebuild) == 0
    assert "mine/d/d" in "".join(capfd.readouterr())
    generations = here / "prefix/software/Tiny/.generations/1.0"
    assert (generations / "2/kept").read_text() == "words"
    assert (generations / "1/mine/d").is_dir()
    assert not (generations / "2/mine").exists()
