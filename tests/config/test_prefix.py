"""Where things go when nothing says so, and when that is known without reading a file."""

import os
import pwd
from pathlib import Path

import pytest

from sifmod.config import prefix
from sifmod.config.option import in_full
from sifmod.config.prefix import config_home, default_prefix, home, other_places, quick_prefix, quick_trees
from sifmod.errors import OptionError


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a user without any settings, on a machine without any."""
    monkeypatch.setattr(prefix, "SITE_FILES", str(tmp_path / "etc-sifmod.d"))
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize("given", ["", "relative", None])
def test_a_home_that_is_no_path_is_that_of_the_account(given: str | None) -> None:
    assert home({} if given is None else {"HOME": given}) == pwd.getpwuid(os.getuid()).pw_dir
    assert home({"HOME": "/h"}) == "/h"


def test_an_account_that_is_nobodys_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(OptionError) as caught:
        home({})
    assert caught.value.message == "this user has no home directory: HOME is no absolute path"
    assert caught.value.hint == "set HOME"
    assert home({"HOME": "/h"}) == "/h"


@pytest.mark.parametrize(("given", "expected"), [("/x", "/x"), ("", "/h/.config"), ("x", "/h/.config")])
def test_the_users_settings_are_where_xdg_says(given: str, expected: str) -> None:
    assert config_home({"HOME": "/h", "XDG_CONFIG_HOME": given}) == Path(expected)


@pytest.mark.parametrize(
    ("variables", "expected", "why"),
    [
        ({}, "/h/.local/share/sifmod", "no prefix is configured: the XDG data directory"),
        ({"XDG_DATA_HOME": "/d"}, "/d/sifmod", "no prefix is configured: the XDG data directory"),
        ({"XDG_DATA_HOME": "d"}, "/h/.local/share/sifmod", "no prefix is configured: the XDG data directory"),
        ({"EBU_USER_PREFIX": "/e", "XDG_DATA_HOME": "/d"}, "/e/sifmod", "EBU_USER_PREFIX"),
        ({"EBU_USER_PREFIX": "~/e"}, "/h/e/sifmod", "EBU_USER_PREFIX"),
    ],
)
def test_the_prefix_by_default(variables: dict[str, str], expected: str, why: str) -> None:
    assert default_prefix({"HOME": "/h", **variables}) == (Path(expected), why)


@pytest.mark.parametrize("given", ["e", "~e", "~"])
def test_easybuilds_prefix_is_absolute(given: str) -> None:
    with pytest.raises(OptionError) as caught:
        default_prefix({"HOME": "/h", "EBU_USER_PREFIX": given})
    assert caught.value.message == f"EBU_USER_PREFIX: expected an absolute path, got {given!r}"


def test_the_command_line_decides_at_once(environ: dict[str, str], tmp_path: Path) -> None:
    assert quick_prefix("/a/../b", {**environ, "SIFMOD_PREFIX": "/c", "SIFMOD_SITE": "x"}) == "/b"
    (tmp_path / "link").symlink_to("/usr")
    assert quick_prefix(f"{tmp_path}/link", environ) == f"{tmp_path}/link"


def test_a_relative_prefix_is_one_of_this_directory(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert quick_prefix("a", environ) == f"{tmp_path}/a"
    monkeypatch.setenv("HOME", "/home of me")
    for given, wanted in (("~/a", "/home of me/a"), ("~", "/home of me"), ("./~/a", f"{tmp_path}/~/a")):
        assert quick_prefix(given, environ) == wanted, "as a shell leaves it in --prefix=~/a"
        assert in_full({"prefix": given}) == {"prefix": wanted}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/c", "/c"), ("c", None), ("/$USER", None), ("${HOME}/c", None), ("~/c", None)],
)
def test_a_variable_decides_unless_something_in_it_is_to_be_replaced(
    environ: dict[str, str], given: str, expected: str | None
) -> None:
    assert quick_prefix(None, {**environ, "SIFMOD_PREFIX": given, "SIFMOD_SITE": "x"}) == expected


def test_the_default_counts_where_there_are_no_settings(environ: dict[str, str], tmp_path: Path) -> None:
    assert quick_prefix(None, environ) == f"{tmp_path}/.local/share/sifmod"
    assert quick_prefix("", {**environ, "SIFMOD_PREFIX": "", "SIFMOD_SITE": ""}) == f"{tmp_path}/.local/share/sifmod"
    assert quick_prefix(None, {**environ, "SIFMOD_LINK": "copy"}) == f"{tmp_path}/.local/share/sifmod"


@pytest.mark.parametrize("place", ["etc-sifmod.d", ".config/sifmod"])
def test_settings_have_to_be_read_where_there_are_any(environ: dict[str, str], tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert quick_prefix(None, environ) is None
    assert quick_prefix("/a", environ) == "/a"


def test_settings_have_to_be_read_where_a_variable_names_some(environ: dict[str, str], tmp_path: Path) -> None:
    assert quick_prefix(None, {**environ, "SIFMOD_SITE": "/x"}) is None
    assert quick_prefix(None, {**environ, "SIFMOD_CONFIG_DIR": str(tmp_path)}) is None


def test_a_misspelled_variable_is_left_to_those_who_refuse_it(environ: dict[str, str]) -> None:
    assert quick_prefix("/a", {**environ, "SIFMOD_PREFXI": "/x"}) is None
    assert quick_prefix("/a", {**environ, "SIFMODE": "x", "OTHER": "x", "SIFMOD_LINK": "copy"}) == "/a"


@pytest.mark.parametrize(
    ("text", "trees"),
    [("", ()), ("/a:/b:", ("/a", "/b")), ("/a:$HOME/b", None), ("~/a", None), ("a", None)],
)
def test_the_trees_of_a_variable_alone(tmp_path: Path, text: str, trees: tuple[str, ...] | None) -> None:
    """Anything else is read with the settings, which expand or refuse it."""
    environ = {"HOME": str(tmp_path), "SIFMOD_CONFIG_DIR": str(tmp_path / "etc"), "SIFMOD_TREES": text}
    assert quick_trees(environ) == trees
    assert quick_trees({**environ, "SIFMOD_SITE": "lumi-g"}) is None
    assert quick_trees({**environ, "SIFMOD_TREE": "/x"}) is None
    (tmp_path / "etc").mkdir()
    assert quick_trees(environ) is None


def test_another_path_to_the_prefix_is_no_other_tree(tmp_path: Path) -> None:
    """`list` had each module twice, and one hid the other."""
    for name in ("tree", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    gone = tmp_path / "gone"
    places = ("tree", "to other", "gone", "other", "gone", "to tree")
    for own in (tmp_path / "tree", tmp_path / "to tree"):
        assert other_places((f"{tmp_path}/{name}" for name in places), own) == (tmp_path / "to other", gone)
    assert other_places((str(gone),), gone) == ()
