"""A disk that is really full, with from no to enough free pages: a clear error, and what was installed still loads."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.actions.layer.bytecode import COMPILE
from sifmod.actions.layer.inside import Inside
from sifmod.actions.rollback import release_held, rollback
from sifmod.actions.stack.bundle import write_bundle
from sifmod.actions.stack.bundle_items import HEAD, Item
from sifmod.errors import FullError
from sifmod.image.disk import NoSpaceError
from sifmod.tree.history import held_since, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.stack_record import Applied, read_applied, stack_lock, write_applied
from support import outlook
from support.command import SIFMOD, Result, run
from support.config import write
from support.fault_fs import FaultFs, Rules
from support.images import Images
from support.module_tool import ModuleTool
from support.outlook import Known
from support.small_disk import filled, small_disk, without_inodes
from support.tree import ALONE, MODULE, install, tree_of
from support.trial import Command, Place, make_place
from support.user import ONLY_ROOT
from support.victim import Outcome, Victim

SIZE = 8 << 20
ENOUGH = 600  # pages, for everything that a reinstall writes


@pytest.fixture(scope="module")
def place(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Build a is installed; its disk has room for a few more images."""
    with small_disk(tmp_path_factory.mktemp("full") / "disk", SIZE) as disk:
        yield make_place(images, disk)


@pytest.fixture(scope="module")
def victim(place: Place) -> Iterator[Victim]:
    with Victim(place.env) as victim:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
        yield victim


@pytest.fixture(scope="module")
def known(place: Place, victim: Victim) -> Known:
    """Build a, which is live at the beginning of every test."""
    outcome = victim.run(place.install("a"))
    assert outcome.code == 0, outcome.stderr
    content = outlook.generation(place.prefix, "1")
    return Known({"a": content}, (place.prefix / "modules" / "Tiny" / "1.0.lua").read_bytes())


def refused(outcome: Outcome) -> None:
    assert outcome.code in (10, 18), outcome.stderr
    assert "No space left on device" in outcome.stderr or "not enough space" in outcome.stderr
    assert "hint: " in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_reinstall_with_so_many_free_pages(place: Place, victim: Victim, known: Known) -> None:
    before = outlook.paths(place.prefix)
    refusals = []
    pages = 0
    while True:
        with filled(place.directory / "ballast", pages):
            outcome = victim.run(place.install("b"))
        if outcome.code == 0:
            break
        refused(outcome)
        refusals.append(outcome.stderr)
        assert outlook.seen(place.prefix, known) == "a"
        assert {path for path in outlook.paths(place.prefix) if not path.startswith("images/")} == {
            path for path in before if not path.startswith("images/")
        }
        assert pages < ENOUGH
        pages += 1 if pages < 40 or pages > 280 else 24
    assert len({text.splitlines()[-3] for text in refusals}) > 3, "it was full at different places"
    assert victim.run(("rollback", "Tiny/1.0", "--prefix", place.prefix)).code == 0
    assert outlook.seen(place.prefix, known) == "a"
    assert victim.run(("rollback", "--release", "Tiny/1.0", "--prefix", place.prefix)).code == 0
    assert victim.run(("gc", "--yes", "--days", "0", "--prefix", place.prefix)).code == 0


@pytest.mark.parametrize("verb", ["rollback", "uninstall"])
def test_a_verb_with_so_many_free_pages(place: Place, victim: Victim, known: Known, verb: str) -> None:
    for tag in "ba":
        assert victim.run((*place.install(tag), "--rebuild")).code == 0
    for pages in range(40):
        with filled(place.directory / "ballast", pages):
            outcome = victim.run((verb, "Tiny/1.0", "--prefix", place.prefix))
        if outcome.code == 0:
            break
        refused(outcome)
        assert outlook.seen(place.prefix, known) == "a"
    assert outcome.code == 0
    assert pages > 0 or verb == "uninstall", "which is the first step of a purge"
    if verb == "rollback":
        assert victim.run(("rollback", "--release", "Tiny/1.0", "--prefix", place.prefix)).code == 0
    assert victim.run((*place.install("a"), "--rebuild")).code == 0


def test_gc_needs_little(place: Place, victim: Victim, known: Known) -> None:
    """On a full disk it is what is needed: it works with the pages that locks take."""
    for tag in "bca":
        assert victim.run((*place.install(tag), "--rebuild")).code == 0
    with filled(place.directory / "ballast", 4):
        outcome = victim.run(("gc", "--yes", "--days", "0", "--prefix", place.prefix))
    assert outcome.code == 0, outcome.stderr
    assert outlook.seen(place.prefix, known) == "a"
    assert len(list(place.prefix.glob("images/sha256/*.sif"))) == 2


def freeing(verb: str, place: Place) -> Command:
    return {
        "gc": ("gc", "--yes", "--days", "0", "--prefix", place.prefix),
        "purge": ("uninstall", "Tiny/1.0", "--purge", "--ignore-jobs", "--prefix", place.prefix),
    }[verb]


def test_a_disk_where_no_program_starts_gets_no_module(images: Images, tmp_path: Path) -> None:
    """A load would succeed, and `python` be the host's."""
    with small_disk(tmp_path / "disk", 32 << 20, noexec=True) as disk:
        place = make_place(images, disk)
        words = [word for word in place.install("a") if word != "--skip-sanity-check"]

        def sifmod(*words: str | Path) -> Result:
            return run((*SIFMOD, *words, "--prefix", place.prefix), env=place.env, cwd=tmp_path)

        refused = run((*SIFMOD, *words), env=place.env, cwd=tmp_path)
        assert (refused.code, f"{place.prefix} is mounted noexec, so no command" in refused.stderr) == (22, True)
        assert sifmod("list", "--json").ok().stdout.strip() == "[]"
        assert "mounted noexec" in sifmod("doctor").stdout
        run((*SIFMOD, *words, "--skip-sanity-check"), env=place.env, cwd=tmp_path).ok()
        found = sifmod("verify")
        assert (found.code, "a file system mounted noexec" in found.stdout) == (1, True)


@pytest.mark.parametrize("verb", ["gc", "purge"])
def test_a_disk_without_a_free_inode_can_be_freed(images: Images, tmp_path: Path, verb: str) -> None:
    """As one with many small files, or a user's quota of files: no lock can be taken in the usual way."""
    with small_disk(tmp_path / "a disk", 32 << 20, inodes=2000) as disk:
        place = make_place(images, disk)
        with Victim(place.env) as victim:
            assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
            for tag in "cba":
                assert victim.run((*place.install(tag), "--rebuild")).code == 0
            with without_inodes(disk / "ballast"):
                outcome = victim.run(freeing(verb, place))
                assert outcome.code == 0, outcome.stderr
                assert os.statvfs(disk).f_ffree > 10
            assert not [*place.prefix.glob(".staging/*")]
            assert len(list(place.prefix.glob("images/sha256/*.sif"))) == (2 if verb == "gc" else 0)
            assert victim.run(place.install("b")).code == 0
            assert victim.run(("verify", "--prefix", place.prefix)).code == 0


@pytest.mark.parametrize("verb", ["gc", "purge"])
@pytest.mark.parametrize("kind", ["tmpfs", pytest.param("ext4", marks=ONLY_ROOT)])
@pytest.mark.parametrize("kills", [False, True])
def test_a_disk_without_a_free_page_can_be_freed(
    images: Images, tmp_path: Path, lmod: ModuleTool, kind: str, verb: str, kills: bool
) -> None:
    with small_disk(tmp_path / "a disk", 32 << 20, kind) as disk:
        place = make_place(images, disk)
        other = disk / "kept" / "Other-2.0.yaml"
        other.parent.mkdir()
        other.write_text((disk / "b" / "Tiny-1.0.yaml").read_text().replace("Tiny", "Other").replace("1.0", "2.0"))
        words = freeing(verb, place)
        with Victim(place.env) as victim:
            assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
            for tag in "cba":
                assert victim.run((*place.install(tag), "--rebuild")).code == 0
            assert victim.run(("install", other, *place.install("a")[2:])).code == 0
            with filled(disk / "ballast", 0):
                for step in range(1, 60, 7):  # killed before a change of the disk; the next run goes on
                    if kills and victim.run(words, "killed", step).code != -9:
                        break
                outcome = victim.run(words)
                if kills and verb == "purge":  # which does not know a module of which only the image is left
                    outcome = victim.run(("gc", "--yes", "--now", "--prefix", place.prefix))
                assert outcome.code == 0, outcome.stderr
                assert os.statvfs(disk).f_bavail > 10
                loaded = lmod.run("module load Other/2.0", place.prefix / "modules")
                assert (loaded.code, loaded.environment["SINGULARITYENV_TAG"]) == (0, "b")
            assert not [*place.prefix.glob(".staging/*")]
            assert len(list(place.prefix.glob("images/sha256/*.sif"))) == (2 if verb == "gc" else 1)
            outcome = victim.run(place.install("b"))
            assert outcome.code == 0, outcome.stderr


def test_what_keeps_an_image_can_end_on_a_full_disk(tmp_path: Path) -> None:
    """A rollback's hold and a stack's lock: neither could, so that `gc` freed nothing where they kept everything."""
    with small_disk(tmp_path / "a disk", SIZE) as disk:
        layout = Layout(disk / "tree")
        tree, applied = tree_of(layout), Applied("ours", "/stack.yaml", (MODULE,), images=("a" * 64,))
        for tag in "ab":
            install(layout, tag)
        rollback(tree, MODULE, None, ALONE)
        with stack_lock("ours", tree) as held:
            write_applied(layout, applied, held)
        with filled(disk / "ballast", 0):
            assert release_held(tree, MODULE, ALONE) == (2,)
            with stack_lock("ours", tree) as held:
                write_applied(layout, applied._replace(images=()), held)
            with stack_lock("ours", tree) as held, pytest.raises(FullError):
                write_applied(layout, applied._replace(images=("a" * 64, "b" * 64)), held)
        assert held_since(read_history(layout, MODULE)) == {}
        assert read_applied(layout, "ours") == applied._replace(images=())
        assert not [*layout.staging.iterdir()]


@pytest.mark.parametrize("verb", ["gc", "uninstall"])
def test_a_quota_without_a_free_block_can_be_freed(images: Images, tmp_path: Path, verb: str) -> None:
    """No byte can be written, and no name whose text is long be made."""
    place = make_place(images, tmp_path)
    with FaultFs(tmp_path) as fault, Victim(place.env, *fault.command) as victim:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
        for tag in "cba":
            assert victim.run((*place.install(tag), "--rebuild")).code == 0
        fault.obey(Rules(always={"write": errno.EDQUOT}))
        more = ("gc", "--yes", "--days", "0") if verb == "gc" else ("uninstall", "Tiny/1.0", "--purge", "--ignore-jobs")
        outcome = victim.run((*more, "--prefix", place.prefix))
        assert outcome.code == 0, outcome.stderr
        assert "Disk quota exceeded" in outcome.stderr, "the log lacks it"
        assert len(list(place.prefix.glob("images/sha256/*.sif"))) == (2 if verb == "gc" else 0)
        fault.obey(Rules())
        assert victim.run((*place.install("c"), "--rebuild")).code == 0
        assert victim.run(("verify", "--prefix", place.prefix)).code == 0


def test_it_still_loads(place: Place, victim: Victim, known: Known, lmod: ModuleTool) -> None:
    with filled(place.directory / "ballast", 0):
        refused(victim.run(place.install("b")))
        step = lmod.run("module load Tiny/1.0", place.prefix / "modules")
        assert (step.code, step.stderr) == (0, "")
        assert step.environment["SINGULARITYENV_TAG"] == "a"
        assert Path(step.environment["SIF"]).read_bytes()[:4]
    assert outlook.seen(place.prefix, known) == "a"


def test_bytecode_that_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("X = 1\n")
    (tmp_path / "wanted").write_text(json.dumps({"key": ["module.py"]}))
    with small_disk(tmp_path / "disk", 1 << 14) as disk:
        (disk / "rest").write_bytes(bytes(shutil.disk_usage(disk).free))
        words = (sys.executable, "-c", COMPILE, tmp_path, disk, tmp_path / "wanted", "1")
        ended = run(words)
    assert (ended.code, ended.stderr) == (3, "the bytecode cannot be kept: No space left on device\n")


def test_a_full_disk_is_no_image_whose_python_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's Python can write no list of its packages, and its traceback was the message."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache" / "uv"))
    wrapper = write(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    with small_disk(tmp_path / "disk", 1 << 16) as disk, Inside(wrapper, disk) as inside:
        (disk / "work").mkdir()
        monkeypatch.setattr(inside, "target", str(disk))  # there is no container here
        inside.start()
        with filled(disk / "ballast", 0), pytest.raises(OSError, match=r"No space left on device: '.*held\.json'"):
            inside.look(())


def test_a_module_that_cannot_be_read_is_no_full_cache(tmp_path: Path) -> None:
    (tmp_path / "wanted").write_text(json.dumps({"0": ["gone.py"]}))
    ended = run((sys.executable, "-c", COMPILE, tmp_path, tmp_path, tmp_path / "wanted", "1"))
    assert ended.code == 1
    assert "No such file or directory" in ended.stderr
    assert "cannot be kept" not in ended.stderr
    assert not (tmp_path / "0").exists()


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_keeps_what_the_next_run_continues(name: str, tmp_path: Path) -> None:
    """And says so, after it has really kept it."""
    files = tuple(Item(f"images/{number}", bytes(40_000), 40_000) for number in range(4))
    head = Item(HEAD, b"{}", 2)
    with small_disk(tmp_path / "disk", 1 << 17) as disk:
        with pytest.raises(NoSpaceError, match="; what was written stays, and the next run continues it"):
            write_bundle(disk / name, iter((head, *files)), lambda *_: None)
        assert shutil.disk_usage(disk).used > 80_000
        write_bundle(disk / name, iter((head, *files[:2])), lambda *_: None)
