"""Bind paths as a machine has them: patterns, and the places where links lead."""

from pathlib import Path

import pytest

from sifmod.config.bind_paths import tops_of_links
from sifmod.config.input import read_input
from support.config import Configuration, write

SHARED_TMP = "/tmp"  # not below /dev, which is the operating system's

Found = list[tuple[str, str, bool]]


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    directory = tmp_path / "lib"
    directory.mkdir()
    for name in ("libcxi.so", "libcxi.so.1", "libcxi.so.1.5", "other.so", "lib,cxi.so.2"):
        (directory / name).touch()
    return directory


def binds(configuration: Configuration, text: str) -> Found:
    write(configuration.root / "etc" / "own.yaml", text.replace("ROOT", str(configuration.root)))
    found = configuration.site(site="generic").site.binds
    return [(bind.source, bind.target, bind.optional) for bind in found]


def test_a_pattern_becomes_its_matches(configuration: Configuration, lib: Path) -> None:
    names = ("libcxi.so", "libcxi.so.1", "libcxi.so.1.5")
    assert binds(configuration, "binds: {host-libs: ['ROOT/lib/libcxi.so*', /a]}") == [
        *((f"{lib}/{name}", f"{lib}/{name}", True) for name in names),
        ("/a", "/a", False),
    ]


def test_with_a_target_the_matches_go_into_it(configuration: Configuration, lib: Path) -> None:
    found = binds(configuration, "binds: {host-libs: ['ROOT/lib/l*.so.1:/opt/host/:ro']}")
    assert found == [(f"{lib}/libcxi.so.1", "/opt/host/libcxi.so.1", True)]
    assert configuration.site(site="generic").site.binds[0].options == ("ro",)


def test_what_has_no_match_is_missing_or_left_out(configuration: Configuration, lib: Path) -> None:
    text = "binds: {a: ['ROOT/lib/none*', {source: 'ROOT/lib/no?', optional: true}, 'ROOT/lib/[no]ther.so']}"
    assert binds(configuration, text) == [
        (f"{lib}/none*", f"{lib}/none*", False),
        (f"{lib}/other.so", f"{lib}/other.so", True),
    ]


def test_an_easyconfigs_patterns_too(configuration: Configuration, lib: Path) -> None:
    text = f"name: App\nversion: '1'\nimage: {{sources: [a.sif]}}\nbinds: ['{lib}/*.so.1']\n"
    loaded = configuration.load(write(configuration.root / "App-1.yaml", text))
    assert [bind.source for bind in loaded.easyconfig.binds] == [f"{lib}/libcxi.so.1"]
    assert f"*{lib}/*.so.1" in [seen.path for seen in loaded.inputs]


@pytest.fixture
def lumi(tmp_path: Path) -> Path:
    """A machine where /scratch and /project hold links into /pfs, with everything below `tmp_path / "m"`."""
    root = tmp_path / "m"
    for name in ("pfs/lustrep1/scratch/project_1", "pfs/lustrep2/scratch/project_2", "scratch/plain/deep", "x/y/z"):
        (root / name).mkdir(parents=True)
    (root / "scratch" / "project_1").symlink_to(root / "pfs/lustrep1/scratch/project_1")
    (root / "scratch" / "project_2").symlink_to("../pfs/lustrep2/scratch/project_2")
    (root / "scratch" / "inside").symlink_to("plain")
    (root / "scratch" / "system").symlink_to("/usr/lib")
    (root / "scratch" / "gone").symlink_to("/no/such/place")
    (root / "scratch" / "plain" / "deep" / "link").symlink_to(root / "x/y/z")
    (root / "project").symlink_to("pfs/lustrep1/project")
    return root


@pytest.fixture
def tops(monkeypatch: pytest.MonkeyPatch, lumi: Path) -> None:
    """Tops counted from `lumi` on, as if that were `/`."""
    from sifmod.config import bind_paths

    def top(found: str) -> str:
        inside = found.removeprefix(f"{lumi}/")
        return "" if inside == found else "/".join((str(lumi), *inside.split("/")[:2]))

    monkeypatch.setattr(bind_paths, "_top", top)


@pytest.mark.usefixtures("tops")
def test_the_places_where_links_lead_are_bound(configuration: Configuration, lumi: Path) -> None:
    (lumi / "pfs/lustrep1/project").mkdir()
    text = "binds: {filesystems: [{source: ROOT/m/scratch, links: true}, {source: ROOT/m/project, links: true}, /b]}"
    assert binds(configuration, text) == [
        (f"{lumi}/scratch", f"{lumi}/scratch", False),
        (f"{lumi}/project", f"{lumi}/project", False),
        ("/b", "/b", False),
        (f"{lumi}/pfs/lustrep1", f"{lumi}/pfs/lustrep1", True),
        (f"{lumi}/pfs/lustrep2", f"{lumi}/pfs/lustrep2", True),
    ]


@pytest.mark.usefixtures("tops")
def test_what_is_bound_anyway_is_not_bound_twice(configuration: Configuration, lumi: Path) -> None:
    text = "binds: {filesystems: [ROOT/m/pfs, {source: ROOT/m/scratch, links: true}]}"
    assert [source for source, _, _ in binds(configuration, text)] == [f"{lumi}/pfs", f"{lumi}/scratch"]


@pytest.mark.usefixtures("tops")
def test_without_links_nothing_is_followed(configuration: Configuration, lumi: Path) -> None:
    assert binds(configuration, "binds: {a: [ROOT/m/scratch]}") == [(f"{lumi}/scratch", f"{lumi}/scratch", False)]


@pytest.mark.usefixtures("tops")
def test_links_on_the_way_are_followed(lumi: Path) -> None:
    (lumi / "short" / "d").mkdir(parents=True)
    (lumi / "short" / "to").symlink_to(lumi / "x" / "y")
    (lumi / "flash").mkdir()
    (lumi / "flash" / "mine").symlink_to(lumi / "short" / "to" / "z")
    assert tops_of_links(f"{lumi}/flash") == (f"{lumi}/short/to", f"{lumi}/x/y")


def test_the_top_is_two_directories_deep(shared_tmp: Path) -> None:
    (shared_tmp / "a" / "b").mkdir(parents=True)
    (shared_tmp / "links").mkdir()
    (shared_tmp / "links" / "one").symlink_to(shared_tmp / "a" / "b")
    assert tops_of_links(f"{shared_tmp}/links") == (str(shared_tmp),)
    assert tops_of_links(f"{shared_tmp}/none") == ()


@pytest.mark.usefixtures("tops")
def test_what_comes_later_is_noticed(configuration: Configuration, lumi: Path, lib: Path) -> None:
    """The receipt keeps what was seen: a new match, or a project on another file system, is a changed input."""
    binds(configuration, "binds: {a: ['ROOT/lib/*.so.*', {source: ROOT/m/scratch, links: true}]}")
    seen = [one for one in configuration.site(site="generic").inputs if one.path[0] in "*@"]
    assert [one.path for one in seen] == [f"*{lib}/*.so.*", f"@{lumi}/scratch"]
    assert [read_input(one.path, {}) for one in seen] == seen
    (lumi / "scratch" / "new").symlink_to("project_1")
    (lib / "other").touch()
    assert [read_input(one.path, {}) for one in seen] == seen
    (lumi / "scratch" / "newer").symlink_to(lumi / "x" / "y")
    (lib / "libnew.so.3").touch()
    assert all(read_input(one.path, {}) != one for one in seen)
