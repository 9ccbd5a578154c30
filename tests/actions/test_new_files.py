"""Files and trees that verbs begin: whole or not at all, with the site's umask and group, and gone after a failure."""

import errno
import grp
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.author.import_easyconfig import Converted, find_sources
from sifmod.actions.author.import_easyconfig import write as write_imported
from sifmod.actions.author.new_file import check_target, write_text
from sifmod.actions.changing_prefix import changing_prefix, for_layers
from sifmod.config.site import Site
from sifmod.errors import EasyconfigNotFoundError, OptionError, PermissionsError
from sifmod.tree.layout import Layout
from support.config import Configuration

CONVERTED = Converted(Path("x.eb"), "Tiny/1.0-a", "text: ä\n")
OWN = grp.getgrgid(os.getegid()).gr_name  # a group that this process is in
HINT = "give another name, or - for standard output"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is written to the disk, in turn."""
    found: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.append("" if path.is_dir() else f"{path.name} {path.stat().st_size}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return found


def test_a_text_is_written_whole(own_home: Path, synced: list[str]) -> None:
    target = own_home / "new.yaml"
    write_text("text: ä\n", target)
    assert target.read_text(encoding="utf-8") == "text: ä\n"
    assert os.listdir(own_home) == ["new.yaml"]
    file, directory = synced
    assert file.startswith(".new.yaml.")
    assert (file[-2:], directory) == (" 9", "")


def test_what_is_there_stays(own_home: Path) -> None:
    """Also a link that leads to nothing, and a directory that is none."""
    target = own_home / "new.yaml"
    target.symlink_to("/no/such")
    acts: tuple[Callable[[], object], ...] = (lambda: check_target(target), lambda: write_text("x", target))
    for act in acts:
        with pytest.raises(OptionError) as caught:
            act()
        assert caught.value.message == f"{target} exists already and was not changed"
        assert caught.value.hint == HINT
    with pytest.raises(OptionError, match=f"there is no directory {own_home}/none to write x in"):
        check_target(own_home / "none/x")
    assert os.listdir(own_home) == ["new.yaml"]


def test_somebody_was_faster(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = own_home / "new.yaml", os.link

    def late(source: Path, to: Path) -> None:
        target.write_text("other")
        link(source, to)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(OptionError, match="exists already"):
        write_text("mine", target)
    assert (target.read_text(), os.listdir(own_home)) == ("other", ["new.yaml"])


@pytest.mark.parametrize("faster", [False, True])
def test_a_file_system_without_hard_links(own_home: Path, faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    target = own_home / "new.yaml"

    def refused(_source: Path, _to: Path) -> None:
        if faster:
            target.write_text("other")
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    if faster:
        with pytest.raises(OptionError, match="exists already"):
            write_text("mine", target)
    else:
        write_text("mine", target)
    assert (target.read_text(), os.listdir(own_home)) == ("other" if faster else "mine", ["new.yaml"])


def failing(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "act",
    [lambda place: write_text("x", place / "new.yaml"), lambda place: write_imported(CONVERTED, place, force=False)],
)
def test_a_disk_that_is_full_leaves_nothing(
    own_home: Path, act: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(Exception, match="No space left") as caught:
        act(own_home)
    assert getattr(caught.value, "exit_code", 0) == 18
    assert os.listdir(own_home) == []


def test_an_imported_easyconfig_is_written_whole(own_home: Path, synced: list[str]) -> None:
    """The file, and then its name in the directory."""
    target = own_home / "Tiny-1.0-a.yaml"
    assert write_imported(CONVERTED, own_home, force=False) == target
    assert target.read_bytes() == "text: ä\n".encode()
    assert (synced[0].endswith(" 9"), synced[1:]) == (True, [""])
    with pytest.raises(OptionError) as caught:
        write_imported(replace(CONVERTED, text="other"), own_home, force=False)
    assert caught.value.message == f"{target} exists already and was not changed"
    assert caught.value.hint == "use --force to replace it"
    assert target.read_bytes() == "text: ä\n".encode()
    assert write_imported(replace(CONVERTED, text="other"), own_home, force=True) == target
    assert (target.read_text(), os.listdir(own_home)) == ("other", ["Tiny-1.0-a.yaml"])


def test_the_files_to_import(tmp_path: Path) -> None:
    """Those given as they are given; of a directory those of three kinds, sorted, without hidden ones; each once."""
    for name in ("b/x.eb", "b/.x.eb", "b/.git/y.eb", "a.lua", "a.yaml", "c/container.yaml", "c/x.yml", "z.eb"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    place = tmp_path / "in"
    inside = (place / "a.lua", place / "b/x.eb", place / "c/container.yaml", place / "z.eb")
    assert find_sources((place,)) == inside
    given = (place / "z.eb", place, place / "a.yaml", place / "c/x.yml")
    assert find_sources(given) == (place / "z.eb", *inside[:3], place / "a.yaml", place / "c/x.yml")
    (place / "x.txt").touch()
    (place / "none").mkdir()
    for path, error, said in (
        (place / "gone.eb", EasyconfigNotFoundError, f"no such file: {place}/gone.eb"),
        (
            place / "x.txt",
            OptionError,
            f"{place}/x.txt: expected an EasyBuild .eb, a container.yaml or a .lua modulefile",
        ),
        (place / "none", OptionError, f"there is no .eb, no container.yaml and no .lua file in {place}/none"),
    ):
        with pytest.raises(error) as caught:
            find_sources((path,))
        assert caught.value.message == said


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return replace(Configuration(tmp_path).site(site="generic").site, prefix=tmp_path / "a/prefix")


def umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


@pytest.mark.parametrize("fails", [False, True])
def test_the_umask_of_a_site_holds_for_the_block(site: Site, fails: bool) -> None:
    before = umask()
    for wanted, inside in ((0o027, 0o027), (0, 0), (None, before)):
        seen = None
        try:
            with changing_prefix(replace(site, umask=wanted)):
                seen = umask()
                if fails:
                    raise ValueError
        except ValueError:
            assert fails
        assert (seen, umask()) == (inside, before)
    assert not site.prefix.exists()


def test_a_new_prefix_is_the_groups(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, str]] = []
    monkeypatch.setattr(shutil, "chown", lambda path, *, group: given.append((path.stat().st_ino, group)))
    with changing_prefix(replace(site, group=OWN, umask=0o022)):
        assert site.prefix.stat().st_mode & 0o7777 == 0o2755
    assert given == [(site.prefix.stat().st_ino, OWN)]  # it had the group before it had its name
    site.prefix.chmod(0o700)
    with changing_prefix(replace(site, group=OWN)):
        assert site.prefix.stat().st_mode & 0o7777 == 0o700
    assert len(given) == 1


def test_a_run_that_is_killed_before_the_group_is_given_leaves_nothing_for_good(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = replace(site, group=OWN, umask=0o022)
    site.prefix.parent.mkdir()
    kept = site.prefix.with_name(".prefix.0123abcd")
    (kept / "of a user").mkdir(parents=True)
    before = os.listdir(site.prefix.parent)
    if (child := os.fork()) == 0:
        monkeypatch.setattr(shutil, "chown", lambda *_, **__: os._exit(9))
        with changing_prefix(shared):
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(os.listdir(site.prefix.parent)) == 2
    with changing_prefix(shared):
        assert sorted(os.listdir(site.prefix.parent)) == sorted([*before, "prefix"])


@pytest.mark.parametrize("error", [LookupError("no such group: 'staff'"), PermissionError(errno.EPERM, "not yours")])
def test_a_group_that_cannot_be_given(site: Site, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path, **_group: str) -> None:
        raise error

    monkeypatch.setattr(shutil, "chown", refused)
    before = umask()
    with pytest.raises(PermissionsError) as caught, changing_prefix(replace(site, group=OWN, umask=0o077)):
        raise AssertionError("the block does not begin")
    assert caught.value.message == f"{site.prefix} cannot be given to the group {OWN}: {error}"
    assert caught.value.hint == "correct `group` in the settings, or be a member of it"
    assert not site.prefix.exists()
    assert umask() == before


def test_what_is_made_above_a_shared_prefix_can_be_passed(site: Site) -> None:
    with changing_prefix(replace(site, sharing="group", group=None, umask=0o007)):
        assert site.prefix.parent.stat().st_mode & 0o777 == 0o755
        assert site.prefix.stat().st_mode & 0o777 == 0o770
        assert (site.prefix / "images" / "marks").stat().st_mode & 0o7777 == 0o1770
    with changing_prefix(replace(site, sharing="site", umask=0o022)):
        assert (site.prefix / "images" / "marks").stat().st_mode & 0o7777 == 0o1777


def test_layers_are_as_open_as_the_prefix_or_as_their_own_place(site: Site, tmp_path: Path) -> None:
    shared = replace(site, sharing="group", group=OWN, umask=0o007)
    within, elsewhere = site.prefix / "layers", tmp_path / "project"
    elsewhere.mkdir()
    elsewhere.chmod(0o750)
    for start, directory, inside in (
        (shared, within, 0o007),
        (shared, elsewhere, 0o027),
        (replace(site, umask=0o002), elsewhere, 0o002),
    ):
        with changing_prefix(for_layers(start, directory)):
            assert umask() == inside
        assert not (directory / "images").exists()
    site.prefix.mkdir(parents=True)
    site.prefix.chmod(0o2770)
    with changing_prefix(for_layers(site, within)):
        assert umask() == 0o007


@pytest.mark.parametrize(("mode", "inside"), [(0o2770, 0o007), (0o2755, 0o022), (0o770, 0o077), (0o1777, 0o077)])
def test_a_projects_new_layers_are_open_to_the_project(site: Site, tmp_path: Path, mode: int, inside: int) -> None:
    """They were closed to it by a umask of 077, and nobody was told."""
    project = tmp_path / "project"
    project.mkdir()
    project.chmod(mode)
    before = os.umask(0o077)
    try:
        for directory in (project / "layers", project / "some" / "layers"):
            with changing_prefix(for_layers(site, directory)):
                assert umask() == inside
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mode", "inside"), [(0o1777, 0o077), (0o3777, 0o002), (0o755, 0o022)])
def test_layers_where_all_may_write_are_as_open_as_the_umask_says(
    site: Site, tmp_path: Path, mode: int, inside: int
) -> None:
    """A private package could be read by all."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    before = os.umask(0o077)
    try:
        with changing_prefix(for_layers(site, place)):
            assert umask() == inside
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to any group")
@pytest.mark.parametrize(
    ("mode", "gid", "inside"),
    [
        *((0o775, 0, 0o002), (0o775, 71_000, 0o022), (0o2775, 71_000, 0o002), (0o770, 71_000, 0o007)),
        *((0o777, 0, 0o000), (0o1777, 0, 0o002), (0o1777, 71_000, 0o022), (0o3777, 71_000, 0o002)),
    ],
)
def test_nobody_may_write_in_a_tree_who_may_not_in_its_prefix(mode: int, gid: int, inside: int, site: Site) -> None:
    """Without a set-gid bit new files have the user's group: in a prefix of another, its members could change them."""
    site.prefix.mkdir(parents=True)
    os.chown(site.prefix, 0, gid)
    site.prefix.chmod(mode)
    with changing_prefix(site):
        assert umask() == inside


def begin(layout: Layout) -> None:
    for place in (layout.staging, layout.locks, layout.images):
        place.mkdir(parents=True)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_tree_that_a_failed_run_began_goes(site: Site, tmp_path: Path, error: type[BaseException]) -> None:
    layout = Layout(tmp_path / "a/b/prefix")
    with pytest.raises(error), changing_prefix(replace(site, prefix=layout.prefix)):
        begin(layout)
        raise error
    assert not (tmp_path / "a").exists()
    assert tmp_path.is_dir()


def test_what_came_to_be_in_it_stays(site: Site, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a/prefix")
    with pytest.raises(ValueError, match="x"), changing_prefix(replace(site, prefix=layout.prefix)):
        begin(layout)
        (layout.images / "x").touch()
        raise ValueError("x")
    assert sorted(os.listdir(layout.prefix)) == [layout.images.relative_to(layout.prefix).parts[0]]


def test_a_tree_that_was_there_or_that_is_well_stays(site: Site, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "prefix")
    with changing_prefix(replace(site, prefix=layout.prefix)):
        begin(layout)
    assert layout.staging.is_dir()
    with pytest.raises(ValueError, match="x"), changing_prefix(replace(site, prefix=layout.prefix)):
        raise ValueError("x")
    assert all(place.is_dir() for place in (layout.staging, layout.locks, layout.images))
