"""What a user adds to a generation or changes in it, and what of that another generation has as well."""

import hashlib
import os
from pathlib import Path

import pytest

from sifmod.module.plan import File
from sifmod.tree.generation import module_lock, staged_generation
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import CommandLine, ImageChoice, Provenance
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation, LinkRecord
from sifmod.tree.state import Carried, additions, carry_over, changes, only_in
from support.tree import MODULE, tree_of

MADE = Provenance("0.1", "/x.yaml", "1.0", None, "test", "none", (), (), CommandLine(), ImageChoice("x"), "x")
IMAGE = ImageRecord("a" * 64, 1, "x", "amd64", "copy", "x.sif", "/x.sif")


def generation(root: Path) -> Installation:
    """One of two files and two links in two directories."""
    files = {"bin/tool": "tool", "text": "text"}
    links = {"link": "text", "bin/link": "nowhere"}
    (root / "bin").mkdir(parents=True)
    for path, text in files.items():
        (root / path).write_text(text)
    for path, text in links.items():
        (root / path).symlink_to(text)
    (root / "receipt.json").write_text("{}")
    records = tuple(FileRecord(path, hashlib.sha256(text.encode()).hexdigest(), 0o644) for path, text in files.items())
    return Installation(
        MODULE, 1, str(root), MADE, IMAGE, records, tuple(LinkRecord(*one) for one in links.items()), ()
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
