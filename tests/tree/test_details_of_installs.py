"""Small promises of install and its files: each was once broken by fuzz/faults.py without a test that noticed."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from plans import plan
from sifmod.actions import slurm
from sifmod.actions.author.site import draft_site
from sifmod.actions.author.survey import Survey, survey
from sifmod.actions.install.decision import _digests
from sifmod.cli.main import run
from sifmod.module.image_origin import NO_ORIGIN
from sifmod.module.render import render
from sifmod.tree.change import Change
from sifmod.tree.durable import move, take, write
from sifmod.tree.generation import module_lock
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.log import logged_modules
from sifmod.tree.removal import prune
from support import tree
from support.images import Images
from support.tree import tree_of


@pytest.fixture
def easyconfig(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    path = tmp_path / "Tiny-1.0.yaml"
    path.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n")
    return path


def test_a_dry_run_in_json(easyconfig: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--dry-run", "--json", str(easyconfig)]) == 0
    row = {"easyconfig": str(easyconfig), "variant": None, "module": "Tiny/1.0", "mark": " "}
    assert json.loads(capfd.readouterr().out) == [{**row, "outgoing_layers": []}]


def test_own_files_are_told_when_there_are_some(
    easyconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    generations = tmp_path / "prefix" / "software" / "Tiny" / ".generations" / "1.0"
    for _ in range(2):
        assert run(["install", "--rebuild", str(easyconfig)]) == 0
        assert "your own files" not in capfd.readouterr().err
    (generations / "2" / "mine").write_text("1")
    assert run(["install", "--rebuild", str(easyconfig)]) == 0
    assert "your own files were carried over: mine" in capfd.readouterr().err
    os.mkfifo(generations / "3" / "pipe")
    assert run(["install", "--rebuild", str(easyconfig)]) == 0
    said = capfd.readouterr().err
    assert "your own files were carried over: mine" in said
    assert "your own files stay in the previous generation: pipe" in said


def test_every_text_ends_with_one_line_end() -> None:
    for file in render(plan(), 1):
        assert file.text.endswith("\n"), file.path
        assert not file.text.endswith("\n\n"), file.path


def test_a_change_that_fails_half_way_gives_everything_back(tmp_path: Path) -> None:
    """Content and mode of a file, and the text of a link."""
    place = tmp_path / "prefix" / "modules"
    place.mkdir(parents=True)
    (place / "file").write_text("old")
    (place / "file").chmod(0o640)
    (place / "link").symlink_to("somewhere")
    (place / "removed").write_text("kept")
    (place / "full").mkdir()
    (place / "full" / "of").write_text("something")
    layout = Layout(tmp_path / "prefix")
    with lock(layout, "x", 60, lambda _who: None) as held:
        change = Change(held)
        change.file(place / "file", "new")
        change.link(place / "link", "elsewhere")
        change.file(place / "new", "new")
        change.remove(place / "removed")
        change.link(place / "other", "x")
        (place / "other").mkdir()  # so that the last step fails
        (place / "other" / "file").touch()
        with pytest.raises(OSError, match="other"):
            change.apply()
    assert ((place / "file").read_text(), (place / "file").stat().st_mode & 0o777) == ("old", 0o640)
    assert os.readlink(place / "link") == "somewhere"
    assert (place / "removed").read_text() == "kept"
    assert not (place / "new").exists()


def test_empty_directories_go_up_to_the_top_and_past_those_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    prune(tmp_path / "top" / "a" / "b" / "gone" / "too", tmp_path / "top")
    assert os.listdir(tmp_path / "top") == []
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "file").touch()
    prune(tmp_path / "top" / "a" / "b", tmp_path / "top")
    assert os.listdir(tmp_path / "top" / "a") == ["file"]
    prune(tmp_path / "top" / "x", tmp_path / "elsewhere")
    assert (tmp_path / "top").is_dir()


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fsync, by what it is of: the file, and then its directory; and a failure is not hidden."""
    synced: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    write(tmp_path / "new", b"x" * 100_000, tmp_path)
    assert synced == ["new"]
    move(tmp_path / "new", tmp_path / "made" / "there", tmp_path)
    assert synced == ["new", "made"]
    take(tmp_path / "made" / "there", tmp_path / "back", tmp_path)
    assert synced == ["new", "made", "made"]
    assert (tmp_path / "back").read_bytes() == b"x" * 100_000


def test_a_draft_for_networks_of_two_kinds() -> None:
    for networks, plugin in ((("ib0", "hsn0"), "AWS Libfabric"), (("ib0", "ib1"), "IB")):
        text = draft_site("yes", ("cuda", "seen"), Survey((), (), (), (), networks))
        assert f"NCCL_NET: {plugin}\n" in text


def test_uninstall_cleans_up_after_a_run_that_was_killed(easyconfig: Path, tmp_path: Path) -> None:
    """Of another module too, and before it looks for its own."""
    assert run(["install", "-q", str(easyconfig)]) == 0
    layout = Layout(tmp_path / "prefix")
    with lock(layout, "Other@1", 60, lambda _who: None) as held:
        left = held.directory
    left.mkdir(parents=True)
    (left / "1.new").touch()
    assert run(["uninstall", "Tiny/1.0"]) == 0
    assert not left.exists()


def test_what_is_no_regular_file_is_no_image(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Device-1.yaml"
    path.write_text("name: Device\nversion: '1'\nimage: {sources: [/dev/null], filename: x.sif}\n")
    assert run(["install", "--prefix", str(tmp_path / "prefix"), str(path)]) == 10
    assert "/dev/null is not a regular file" in capfd.readouterr().err


def test_an_install_says_from_where(easyconfig: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", str(easyconfig)]) == 0
    assert f"Tiny/1.0: installing from {easyconfig}\n" in capfd.readouterr().err
    assert run(["install", "--rebuild", "--quiet", str(easyconfig)]) == 0
    assert "installing from" not in capfd.readouterr().err


def test_a_module_that_cannot_be_published_is_not_there(
    easyconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file stands where the modulefile's directory has to be."""
    place = tmp_path / "prefix" / "modules" / "Tiny"
    place.parent.mkdir(parents=True)
    place.write_text("somebody's")
    assert run(["install", str(easyconfig)]) == 18
    assert "cannot publish Tiny/1.0" in capfd.readouterr().err
    assert place.read_text() == "somebody's"
    assert os.listdir(place.parent) == ["Tiny"]
    assert list((tmp_path / "prefix").glob("software/Tiny/1.0")) == []
    assert run(["list"]) == 0
    assert "Tiny" not in capfd.readouterr().out


def test_a_squeue_that_does_not_answer_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\nexec sleep 60\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "_TIMEOUT", 0.2)
    assert slurm.ask_slurm(tmp_path).unknown.startswith("Slurm did not answer: ")


def test_doctor_says_who_chose_the_prefix(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(["doctor"])
    assert "default; sifmod asks before it fetches images over 2 GB" in capfd.readouterr().out
    monkeypatch.setenv("SIFMOD_PREFIX", str(own_home / "mine"))
    run(["doctor"])
    assert f"{own_home / 'mine'} (configured), " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("left_behind", "there"), [(None, False), (("1.new",), True), (("1.going",), False)], ids=["none", "new", "going"]
)
def test_a_module_whose_run_died_is_whole_or_gone_and_another_ones_is_left(
    tmp_path: Path, left_behind: tuple[str, ...] | None, *, there: bool
) -> None:
    """What is missing without a dead run is somebody's wish, which the next reinstall asks about."""
    layout = Layout(tmp_path / "prefix")
    tree.install(layout, "a")
    stub = layout.modules / "Tiny" / "1.0.lua"
    stub.unlink()
    with lock(layout, str(tree.MODULE), 60, tree.nobody) as held:
        directory = held.directory
    for name in left_behind or ():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    with module_lock(tree_of(layout, 60, tree.nobody), tree.MODULE):
        pass
    assert stub.exists() is there
    assert layout.switch(tree.MODULE).exists() is (left_behind != ("1.going",))


def test_only_logs_of_modules_are_logs(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for name in ("Tiny/1.0.log", "Tiny/2.0", "Tiny/.log", "Tiny/a b.log", "a b/1.0.log", "Big/3.log/x"):
        (layout.logs / "modules" / name).parent.mkdir(parents=True, exist_ok=True)
        (layout.logs / "modules" / name).touch()
    found, problems = logged_modules(layout)
    assert ([str(module) for module in found], problems) == (["Big/3", "Tiny/1.0"], ())


def test_what_is_restored_is_said(easyconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "-q", "--module-syntax", "lua", str(easyconfig)]) == 0
    stub = tmp_path / "prefix" / "modules" / "Tiny" / "1.0.lua"
    text = stub.read_text()
    stub.unlink()
    capfd.readouterr()
    assert run(["install", "--module-syntax", "lua", str(easyconfig)]) == 0
    said = capfd.readouterr().err
    assert "\n== restoring: " in said
    assert f"{stub} is missing\n" in said
    assert "== Tiny/1.0: restored, generation 1\n" in said
    assert stub.read_text() == text
    script = tmp_path / "prefix" / "software" / "Tiny" / "1.0" / "bin" / "sh"
    script.resolve().parent.chmod(0o755)
    script.unlink()
    assert run(["install", "--module-syntax", "lua", str(easyconfig)]) == 0
    said = capfd.readouterr().err
    assert "/bin/sh was changed or removed; a new generation restores it\n" in said
    assert "restoring" not in said
    assert "== Tiny/1.0: installed, generation 2\n" in said


def test_the_digests_of_an_image_are_those_that_it_has() -> None:
    assert _digests("ab", NO_ORIGIN) == ("sha256:ab",)
    assert _digests("ab", replace(NO_ORIGIN, manifest="m", index="i")) == ("sha256:ab", "m", "i")


def test_file_systems_of_every_kind_that_machines_share(tmp_path: Path) -> None:
    kinds = ("lustre", "gpfs", "beegfs", "wekafs", "ceph", "nfs", "nfs4", "fhgfs", "panfs", "afs")
    others = ("ext4", "xfs", "tmpfs", "overlay", "proc")
    (tmp_path / "mounts").write_text("".join(f"x /of/{kind} {kind} rw 0 0\n" for kind in (*kinds, *others)))
    odd = "x /home/a nfs\nx /root/a nfs\nx / nfs\nx /a\\040b nfs\nx nfs\nx /homes nfs\n"
    with (tmp_path / "mounts").open("a") as file:
        file.write(odd)
    assert survey(str(tmp_path / "mounts")).filesystems == tuple(sorted(f"/of/{kind}" for kind in kinds))
    (tmp_path / "mounts").write_bytes(b"x /a nfs\n\xff\n")
    assert survey(str(tmp_path / "mounts")).filesystems == ()


def test_a_draft_of_a_site_in_which_nothing_was_found() -> None:
    """Every group is there, with an example."""
    text = draft_site("yes", ("none", "nothing was seen"), Survey((), (), (), (), ()))
    assert text.startswith("# The site yes, written by `sifmod site new`.")
    assert "\nname: 'yes'\ndescription: 'yes'\n\n# nothing was seen: auto looks on each machine;" in text
    assert "\naccelerator: none\n" in text
    for group, example in (
        ("slurm", "/var/spool/slurmd"),
        ("fabric", "/opt/cray"),
        ("host-libs", "/usr/lib64/x.so*"),
        ("filesystems", "/scratch"),
    ):
        assert f"\n  {group}: []  # e.g. [{{source: '{example}', optional: true}}]\n" in text
    assert "\n# runscript_env: {NCCL_SOCKET_IFNAME: hsn0, NCCL_NET: AWS Libfabric}\n" in text
    assert text.endswith("\ndetect:\n  paths: []\n")
