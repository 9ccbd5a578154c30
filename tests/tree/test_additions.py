"""What a user adds to a generation or changes in it, and what of that another generation has as well."""

import errno
import hashlib
import os
import struct
from pathlib import Path

import pytest

from sifmod.module.plan import File
from sifmod.tree.generation import module_lock, staged_generation
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import CommandLine, ImageChoice, Provenance
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation, LinkRecord
from sifmod.tree.removal import remove_tree
from sifmod.tree.state import Carried, additions, carry_over, changes, only_in
from support.tree import MODULE, tree_of

MADE = Provenance("0.1", "/x.yaml", "1.0", None, "test", "none", (), (), CommandLine(), ImageChoice("x"), "x")
FILES = {"bin/tool": "tool", "text": "text"}
LINKS = {"link": "text", "bin/link": "nowhere"}
IMAGE = ImageRecord("a" * 64, 1, "x", "amd64", "copy", "x.sif", "/x.sif")


def generation(root: Path) -> Installation:
    """One of two files and two links in two directories."""
    (root / "bin").mkdir(parents=True)
    for path, text in FILES.items():
        (root / path).write_text(text)
    for path, text in LINKS.items():
        (root / path).symlink_to(text)
    (root / "receipt.json").write_text("{}")
    return generation_there(root)


def generation_there(root: Path) -> Installation:
    """The installation that `generation` has made."""
    records = tuple(FileRecord(path, hashlib.sha256(text.encode()).hexdigest(), 0o644) for path, text in FILES.items())
    return Installation(
        MODULE, 1, str(root), MADE, IMAGE, records, tuple(LinkRecord(*one) for one in LINKS.items()), ()
    )


def add(root: Path) -> None:
    """Of every kind; and an empty directory, which is none."""
    (root / "z").write_text("mine")
    (root / "a").symlink_to("z")
    (root / "bin" / "more").write_text("mine")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("mine")
    (root / "deep" / "directory").symlink_to("er")
    (root / "far" / "off").mkdir(parents=True)
    (root / "far" / "off" / "file").write_text("mine")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")


ADDED = ("a", "bin/more", "deep/directory", "deep/er/file", "far/off/file", "pipe", "z")


def test_additions_are_what_the_receipt_does_not_name(tmp_path: Path) -> None:
    installation = generation(tmp_path / "1")
    assert additions(installation) == ()
    add(tmp_path / "1")
    assert additions(installation) == ADDED


def test_changes_are_of_content_kind_and_target(tmp_path: Path) -> None:
    root = tmp_path / "1"
    installation = generation(root)
    assert changes(installation) == ()
    for path in ("text", "link"):
        (root / path).rename(tmp_path / path)
        assert changes(installation) == ()
    (root / "text").symlink_to(tmp_path / "text")  # the same content
    assert changes(installation) == ("text",)
    (root / "link").write_text("text")
    (root / "bin" / "tool").write_text("other")
    (root / "bin" / "link").unlink()
    (root / "bin" / "link").symlink_to("elsewhere")
    assert changes(installation) == ("bin/link", "bin/tool", "link", "text")
    (root / "bin" / "tool").unlink()
    (root / "bin" / "tool").mkdir()
    (root / "link").unlink()
    (root / "link").mkdir()
    assert changes(installation) == ("bin/link", "bin/tool", "link", "text")


def test_additions_are_carried_over_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    add(tmp_path / "1")
    (target / "bin").mkdir(parents=True)
    (target / "z").write_text("another")
    synced: set[str] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), target))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    assert carry_over(installation, target) == Carried(ADDED[:5], ADDED[5:])
    assert synced == {".", "bin", "deep", "deep/er", "far", "far/off"}
    assert os.readlink(target / "a") == "z"
    assert os.readlink(target / "deep" / "directory") == "er"
    assert (target / "deep" / "er" / "file").samefile(tmp_path / "1" / "deep" / "er" / "file")
    assert (target / "z").read_text() == "another"
    assert not os.path.lexists(target / "pipe")


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    target.mkdir()
    source = tmp_path / "1" / "z"
    source.write_text("mine")
    source.chmod(0o6750)
    os.utime(source, (1, 1))
    synced: list[str] = []

    def noting(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), target))

    def refused(*_: object, **__: object) -> None:
        raise OSError(31, "Too many links")

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "link", refused)
    assert carry_over(installation, target) == Carried(("z",), ())
    made = (target / "z").stat()
    assert ((target / "z").read_text(), made.st_mode & 0o7777, made.st_mtime, made.st_nlink) == ("mine", 0o750, 1, 1)
    assert synced == ["z", "."]


def test_what_only_one_generation_has(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    installation, other = generation(one), generation(two)
    add(one)
    assert only_in(installation, None) == ADDED
    assert only_in(installation, installation) == ADDED
    assert only_in(installation, other) == ADDED
    (two / "a").symlink_to("z")
    (two / "bin" / "more").hardlink_to(one / "bin" / "more")
    (two / "deep" / "er").mkdir(parents=True)
    (two / "deep" / "er" / "file").write_text("mine")
    (two / "far" / "off").mkdir(parents=True)
    (two / "far" / "off" / "file").write_text("mine")
    (two / "z").write_text("mine")
    (two / "deep" / "directory").symlink_to("er")
    assert only_in(installation, other) == ("pipe",)
    assert only_in(other, installation) == ()
    os.mkfifo(two / "pipe")  # of two pipes nobody can say that they are the same
    assert only_in(installation, other) == ("pipe",)


@pytest.mark.parametrize("kind", ["content", "size", "kind", "target"])
def test_what_another_generation_has_differently(tmp_path: Path, kind: str) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    installation, other = generation(one), generation(two)
    if kind == "target":
        (one / "z").symlink_to("text")
        (two / "z").symlink_to("link")
    else:
        (one / "z").write_text("mine")
        if kind == "kind":
            (two / "mine").write_text("mine")
            (two / "z").symlink_to("mine")
        else:
            (two / "z").write_text("MINE" if kind == "content" else "mine too")
    assert only_in(installation, other) == ("z",)
    assert only_in(other, installation) == (("mine", "z") if kind == "kind" else ("z",))


def test_nothing_is_carried_over_where_nothing_is_installed(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "prefix")
    with module_lock(tree_of(layout), MODULE) as held, staged_generation(held) as stage:
        assert stage.carry_over() == Carried((), ())
        stage.write((File("x", ""),))


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """An access control list as acl(5) stores it: tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
ONE_READER = access_list((1, 6, NOBODY), (2, 4, 12345), (4, 0, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY))
ONE_VISITOR = access_list((1, 7, NOBODY), (2, 5, 12345), (4, 0, NOBODY), (16, 5, NOBODY), (32, 0, NOBODY))


def lists(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path) if "acl" in name}


def linkless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hard links are refused, as for another user's files."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)


@pytest.fixture
def with_lists(tmp_path: Path) -> Path:
    """A generation with a file and a directory that are open to one user besides the owner, by a list."""
    root = tmp_path / "1"
    generation(root)
    (root / "file").write_text("mine")
    (root / "place").mkdir()
    (root / "place" / "other").write_text("mine")
    os.setxattr(root / "file", "system.posix_acl_access", ONE_READER)
    os.setxattr(root / "place", "system.posix_acl_access", ONE_VISITOR)
    os.setxattr(root / "place", "system.posix_acl_default", ONE_VISITOR)
    return root


def test_access_control_lists_are_carried_over(with_lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linkless(monkeypatch)
    target = with_lists.parent / "2"
    target.mkdir()
    os.setxattr(target, "system.posix_acl_default", access_list((1, 7, NOBODY), (4, 7, NOBODY), (32, 7, NOBODY)))
    installation = generation_there(with_lists)
    assert carry_over(installation, target) == Carried(("file", "place/other"), ())
    for path in ("file", "place", "place/other"):
        assert lists(target / path) == lists(with_lists / path), path
        assert (target / path).stat().st_mode & 0o077 == (with_lists / path).stat().st_mode & 0o077, path


def test_a_list_that_cannot_be_given_opens_nothing(with_lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linkless(monkeypatch)
    target = with_lists.parent / "2"
    target.mkdir()

    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "setxattr", refused)
    carry_over(generation_there(with_lists), target)
    assert [(target / path).stat().st_mode & 0o077 for path in ("file", "place")] == [0, 0]


def test_what_is_of_a_group_that_cannot_be_given_is_as_open_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member who was one of the others is one of the tree's group for the copy."""
    linkless(monkeypatch)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchown", refused)
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    target.mkdir()
    wanted = {"all": (0o644, 0o644), "group": (0o640, 0o600), "others": (0o604, 0o604), "run": (0o775, 0o755)}
    for name, (mode, _) in wanted.items():
        (tmp_path / "1" / name).touch()
        (tmp_path / "1" / name).chmod(mode)
    (tmp_path / "1" / "listed").touch()
    os.setxattr(tmp_path / "1" / "listed", "system.posix_acl_access", ONE_READER)
    carry_over(installation, target)
    made = {name: (target / name).stat().st_mode & 0o777 for name in (*wanted, "listed")}
    assert made == {name: mode for name, (_, mode) in wanted.items()} | {"listed": made["listed"] & 0o700}


def test_a_sticky_directory_stays_sticky(tmp_path: Path) -> None:
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    target.mkdir()
    for name, mode in (("all", 0o1777), ("group", 0o1775)):
        (tmp_path / "1" / name).mkdir()
        (tmp_path / "1" / name).chmod(mode)
        (tmp_path / "1" / name / "file").touch()
    carry_over(installation, target)
    assert [(target / name).stat().st_mode & 0o1002 for name in ("all", "group")] == [0o1002, 0o1000]


def test_what_is_too_deep_for_a_path_stays(tmp_path: Path) -> None:
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    target.mkdir()
    (tmp_path / "1" / "file").touch()
    here = os.open(tmp_path / "1", os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    deep = "/".join(["d" * 200] * 25 + ["deep"])
    assert carry_over(installation, target) == Carried(("file",), (deep,))
    assert only_in(installation, installation) == (deep, "file")
    remove_tree(tmp_path / "1", tmp_path)
    remove_tree(target, tmp_path)


@pytest.mark.parametrize("gone", ["file", "place/other"])
def test_what_its_user_removes_meanwhile_is_not_missed(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation, target = generation(tmp_path / "1"), tmp_path / "2"
    target.mkdir()
    (tmp_path / "1" / "place").mkdir()
    for name in ("file", "place/other", "z"):
        (tmp_path / "1" / name).touch()
    shown = os.path.lexists

    def removed_first(path: str | Path) -> bool:
        if Path(path) == target / gone:
            (tmp_path / "1" / gone).unlink(missing_ok=True)
        return shown(path)

    linkless(monkeypatch)
    monkeypatch.setattr(os.path, "lexists", removed_first)
    assert carry_over(installation, target) == Carried(tuple(sorted({"file", "place/other", "z"} - {gone})), ())


def test_a_directory_that_is_removed_meanwhile_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = generation(tmp_path / "1")
    (tmp_path / "1" / "place").mkdir()
    (tmp_path / "1" / "z").touch()
    opened = os.open

    def removed_first(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "place":
            (tmp_path / "1" / "place").rmdir()
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", removed_first)
    assert additions(installation) == ("z",)


def test_holes_are_not_read_to_compare_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole costs its owner nothing; both generations of a module can have one of the same size."""
    one, other = generation(tmp_path / "1"), generation(tmp_path / "2")
    for root in (tmp_path / "1", tmp_path / "2"):
        with (root / "hole").open("wb") as file:
            file.truncate(1 << 40)
    monkeypatch.setattr("sifmod.tree.state.sha256_file", lambda path: pytest.fail(f"{path} is read"))
    assert only_in(one, other) == ("hole",)
