"""The places that links lead to, as the machine itself has them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.bind_paths import tops_of_links, within
from sifmod.config.limits import Limits, matches
from sifmod.config.pattern import Most, is_pattern
from support.config import Configuration, write

SHARED_TMP = "/tmp"  # not below /dev, which is the operating system's


@pytest.fixture
def links(tmp_path: Path) -> Path:
    directory = tmp_path / "links"
    directory.mkdir()
    return directory


@pytest.fixture
def odd() -> Iterator[Path]:
    """A top that no bind path can name."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod,test-"))
    yield path
    path.rmdir()


@pytest.mark.parametrize(
    ("place", "directories", "expected"),
    [
        ("/a/b", ("/a",), True),
        ("/a/b", ("/a/",), True),
        ("/a", ("/a",), True),
        ("/a", ("/",), True),
        ("/ab", ("/a",), False),
        ("/a", ("/a/b",), False),
        ("/a/b", ("/c", "/a"), True),
        ("/a/b", (), False),
    ],
)
def test_what_is_within(place: str, directories: tuple[str, ...], expected: bool) -> None:
    assert within(place, directories) is expected


@pytest.mark.parametrize(("path", "expected"), [("/a*", True), ("/a?", True), ("/[ab]", True), ("/a]b{c}~", False)])
def test_what_is_a_pattern(path: str, expected: bool) -> None:
    assert is_pattern(path) is expected


def test_matches_are_sorted(tmp_path: Path) -> None:
    for name in "hgfedcba":
        (tmp_path / f"m{name}").touch()
    assert matches(f"{tmp_path}/m*") == tuple(f"{tmp_path}/m{name}" for name in "abcdefgh")


@pytest.mark.parametrize(
    "system",
    [*("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "root", "run", "sbin", "sys", "usr", "var"), ""],
)
def test_links_into_the_operating_system_do_not_count(links: Path, system: str) -> None:
    (links / "one").symlink_to(f"/{system}")
    assert tops_of_links(f"{links}") == ()


def test_a_link_to_a_directory_of_the_root_has_that_as_top(links: Path) -> None:
    (links / "one").symlink_to("/tmp")
    assert tops_of_links(f"{links}") == ("/tmp",)


def test_only_places_that_exist_count_and_they_are_sorted(links: Path, shared_tmp: Path) -> None:
    others = [Path(tempfile.mkdtemp(dir="/tmp", prefix=f"sifmod-tests-{letter}")) for letter in "dcba"]
    (links / "gone").symlink_to("/no-such-top/x/y")
    (links / "file").touch()
    for number, other in enumerate((*others, shared_tmp)):
        (links / f"{number}").symlink_to(other / "x")
    try:
        assert tops_of_links(f"{links}") == tuple(sorted(map(str, (*others, shared_tmp))))
    finally:
        for other in others:
            other.rmdir()


def test_of_a_link_where_it_leads_counts_and_its_own_directory_does_not(tmp_path: Path, shared_tmp: Path) -> None:
    (shared_tmp / "x").mkdir()
    (tmp_path / "link").symlink_to(shared_tmp / "x")
    assert tops_of_links(f"{tmp_path}/link") == (str(shared_tmp),)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "inside").symlink_to("deeper/down")
    assert tops_of_links(f"{tmp_path}/plain") == ()


def test_a_link_that_is_gone_meanwhile_is_left_out(
    links: Path, shared_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (links / "a").symlink_to("/tmp")
    (links / "b").symlink_to(shared_tmp)
    read = os.readlink

    def readlink(path: str) -> str:
        if path.endswith("/a"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return read(path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert tops_of_links(f"{links}") == (str(shared_tmp),)


def bound(tmp_path: Path, text: str) -> list[tuple[str, str, bool]]:
    configuration = Configuration(tmp_path)
    write(tmp_path / "etc" / "own.yaml", f"binds: {{a: {text}}}\n")
    return [(bind.source, bind.target, bind.optional) for bind in configuration.site(site="generic").site.binds]


def test_a_place_that_no_bind_path_can_name_is_left_out(
    tmp_path: Path, links: Path, odd: Path, shared_tmp: Path
) -> None:
    (links / "odd").symlink_to(odd)
    (links / "even").symlink_to(shared_tmp)
    assert bound(tmp_path, f"[{{source: {links}, links: true}}]") == [
        (str(links), str(links), False),
        (str(shared_tmp), str(shared_tmp), True),
    ]


def test_a_place_that_is_bound_elsewhere_is_bound_in_its_own_place_too(
    tmp_path: Path, links: Path, shared_tmp: Path
) -> None:
    (links / "one").symlink_to(shared_tmp)
    assert bound(tmp_path, f"['{shared_tmp}:/x', {{source: {links}, links: true}}]") == [
        (str(shared_tmp), "/x", False),
        (str(links), str(links), False),
        (str(shared_tmp), str(shared_tmp), True),
    ]
    assert bound(tmp_path, f"[{shared_tmp}, {{source: {links}, links: true}}]") == [
        (str(shared_tmp), str(shared_tmp), False),
        (str(links), str(links), False),
    ]


@pytest.mark.parametrize("more", ["*/" * 20, "**/" * 20])
def test_a_pattern_that_finds_no_end(links: Path, more: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Links that lead back make as many ways as there are names; `check` of somebody's file did not end."""
    for number in range(30):
        (links / f"x{number}").symlink_to(".")
    text = f"name: App\nversion: '1'\nimage: {{sources: [x.sif]}}\nbinds: ['{links}/{more}x']\n"
    path = write(links.parent / "App-1.yaml", text)
    assert run(["check", str(path)]) == 5
    said = f"App-1.yaml:4:8: binds: with {links}/{more}x, more directories are visited than 5000 "
    assert f"{said}(`limits: {{pattern_directories" in "".join(capfd.readouterr())


def test_the_most_that_a_pattern_leads_to_is_that_of_the_settings() -> None:
    assert Most() == (Limits().pattern_directories, Limits().pattern_files)


def test_many_patterns_of_one_easyconfig(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(100):
        (tmp_path / f"links/{number}").mkdir(parents=True)
    binds = "".join(f"\n- {{source: '{tmp_path}/links/*/{number}*', optional: true}}" for number in range(60))
    path = write(tmp_path / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: [x.sif]}}\nbinds:{binds}\n")
    assert run(["check", str(path)]) == 5
    assert "/49*, more directories are visited than 5000 " in "".join(capfd.readouterr())
