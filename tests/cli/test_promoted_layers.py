"""Layers that a member made in staging, promoted by who publishes: what the lock names, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.layer_commands import command
from sifmod.actions.sharing import closed_files
from sifmod.actions.start import site_in_force
from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations, live
from support.config import write
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.promotion import GOOD, PACKED, SKIP, Promotion
from support.user import OrdinaryUser


@pytest.fixture
def promotion(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> Promotion:
    here = shared_tmp / "a place"
    here.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(here / "own"))
    monkeypatch.chdir(here)
    return Promotion(here, images.tiny_sif, ordinary_user)


@pytest.mark.usefixtures("needs_root")
def test_what_a_member_writes_later_does_not_reach_what_was_published(promotion: Promotion) -> None:
    """S2: the image of a layer was a hard link to the member's file, of mode 0664."""
    promotion.lock()
    assert promotion.apply() == 0
    there = promotion.published()
    assert there

    def poison() -> None:
        (promotion.root / "layer.squashfs").chmod(0o644)
        (promotion.root / "layer.squashfs").write_bytes(b"hsqs: poison\n")

    call_as(promotion.member.user, poison)
    status = (there / "layer.squashfs").stat()
    assert (there / "layer.squashfs").read_bytes() == PACKED
    assert (status.st_uid, status.st_mode & 0o777, status.st_nlink) == (os.geteuid(), 0o444, 1)
    assert promotion.verify() == 0


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(("mode", "names"), [(0o444, 2), (0o644, 1), (0o464, 1), (0o400, 1)])
def test_a_file_of_ones_own_is_shared_where_nobody_may_write_it(promotion: Promotion, mode: int, names: int) -> None:
    """Who publishes what that user has made in staging, whose group, or later self, may write there."""
    promotion.lock()
    source = promotion.root / "layer.squashfs"
    os.chown(source, 0, -1)
    source.chmod(mode)
    os.chown(promotion.root / "pylock.toml", 0, -1)
    os.chown(promotion.root.parent, 0, -1)
    assert promotion.apply() == 0
    there = promotion.published()
    assert there
    status = (image := there / "layer.squashfs").stat()
    assert (status.st_mode & 0o777, status.st_nlink) == (0o444, names)
    if mode & 0o222:
        source.write_bytes(b"hsqs: later\n")
    elif names == 2:
        site = site_in_force({"prefix": str(promotion.production)}).site
        site = replace(site, sharing="site", umask=0o022)
        assert closed_files(site) == ()
        source.chmod(0o400)  # which closes what is published
        (said,) = closed_files(site)
        why = f"{image} is closed to them: its owner can run `chmod a+r '{image}'`"
        assert said == f"users that may load Good/1 are kept out, because {why}"
    assert (there / "layer.squashfs").read_bytes() == PACKED
    assert promotion.verify() == 0


@pytest.mark.usefixtures("needs_root")
def test_a_layer_that_a_member_may_have_open_for_writing_is_copied(promotion: Promotion) -> None:
    """It is the publisher's own, and read-only by now, but it was made where the group can write."""
    promotion.lock()
    source = promotion.root / "layer.squashfs"
    for place in (source, promotion.root / "pylock.toml", promotion.root.parent):
        os.chown(place, 0, 100)
    promotion.root.parent.chmod(0o2775)
    with source.open("r+b") as member:
        source.chmod(0o444)
        assert promotion.apply() == 0
        member.write(b"hsqs: later\n")
    there = promotion.published()
    assert there
    assert (there / "layer.squashfs").read_bytes() == PACKED


def test_a_command_that_nobody_locked_is_not_published(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """S3: M's `bin/ls` was copied, and a command that M had changed."""
    promotion.lock()

    def plant() -> None:
        for name in ("ls", "demo"):
            write(promotion.root / "bin" / name, "#!/bin/sh\necho planted\n").chmod(0o755)

    call_as(promotion.member.user, plant)
    assert promotion.apply() == 0
    there = promotion.published()
    assert there
    assert {path.name: path.read_text() for path in (there / "bin").iterdir()} == {
        name: command(name, "site") for name in ("demo", "de-mo2")
    }
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in (there / "bin").iterdir())
    capfd.readouterr()
    assert promotion.verify() == 0
    write(there / "bin/demo", "#!/bin/sh\necho planted\n")
    write(there / "bin/ls", "#!/bin/sh\necho planted\n")
    write(there / "pylock.toml", "lock-version = '2.0'\n")
    assert promotion.verify() != 0
    out = "".join(capfd.readouterr())
    assert all(f"{there}/{name}" in out for name in ("bin/demo", "bin/ls", "pylock.toml"))


@pytest.mark.parametrize("name", ["ls", "..", "a b", "-x", "a\nb", "", "x/y"])
def test_a_name_that_is_no_plain_command_is_refused(
    promotion: Promotion, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """S3: also one that the member has put into the receipt of the layer before the lock was written."""
    receipt = promotion.root / "layer.json"
    fields = json.loads(receipt.read_text())
    fields["made"] = [*fields["made"], [f"bin/{name}", "0" * 64]]
    receipt.write_text(json.dumps(fields))
    code = run(["stack", "lock", "stack.yaml", "--prefix", str(promotion.staging)])
    assert code == 18
    assert "is not a valid command name in" in capfd.readouterr().err
    assert not (promotion.here / "stack.lock").exists()


def a_private_file(root: Path, name: str, secret: Path) -> None:
    (root / name).unlink()
    (root / name).symlink_to(secret)


def a_private_directory(root: Path, name: str, secret: Path) -> None:
    moved = secret.parent / "moved"
    shutil.copytree(root, moved, symlinks=True)
    (moved / name).write_bytes(secret.read_bytes())
    shutil.rmtree(root)
    root.symlink_to(moved)


def a_pipe(root: Path, name: str, _secret: Path) -> None:
    (root / name).unlink()
    os.mkfifo(root / name)


def a_directory(root: Path, name: str, _secret: Path) -> None:
    (root / name).unlink()
    (root / name).mkdir()


def a_hole(root: Path, name: str, _secret: Path) -> None:
    os.truncate(root / name, 1 << 40)


def another(root: Path, name: str, _secret: Path) -> None:
    data = bytearray((root / name).read_bytes())
    data[-1] ^= 1
    (root / name).write_bytes(data)


def nothing(root: Path, name: str, _secret: Path) -> None:
    (root / name).unlink()


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("name", ["layer.squashfs", "pylock.toml"])
@pytest.mark.parametrize("plant", [a_private_file, a_private_directory, a_pipe, a_directory, a_hole, another, nothing])
def test_what_is_not_what_the_lock_names_is_not_read_into_the_tree(
    promotion: Promotion,
    name: str,
    plant: Callable[[Path, str, Path], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """S4: M's link to P's file of mode 0600, and what else can lie there."""
    promotion.lock()
    secret = write(promotion.here / "private" / "key", "the key of P\n")
    secret.chmod(0o600)
    plant(promotion.root, name, secret)  # by who may do more than a member
    private = disk_state(promotion.here / "private")
    assert promotion.apply() == 18
    err = capfd.readouterr().err
    assert "the layer site of Good/1" in err
    assert promotion.published() is None
    assert not installations(Layout(promotion.production))
    files = (path for path in promotion.production.rglob("*") if path.is_file())
    assert not any(b"the key of P" in path.read_bytes() for path in files if path.suffix != ".sif")
    assert disk_state(promotion.here / "private") == private


def test_what_the_receipt_of_a_layer_says_is_locked_too(
    promotion: Promotion, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else `add` looks for packages where the member wants."""
    promotion.lock()
    receipt = promotion.root / "layer.json"
    fields = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**fields, "places": ["/home/m/wheels"]}))
    words = ["stack", "plan", "stack.yaml", "--locked", "--from", str(promotion.staging)]
    assert run([*words, "--prefix", str(promotion.production)]) == 18
    assert "[!] Good/1: the layer site of Good/1 does not match the lock" in capfd.readouterr().out
    assert promotion.apply() == 18
    assert "the layer site of Good/1 does not match the lock" in capfd.readouterr().err
    assert not promotion.production.exists()


def test_without_its_layer_a_module_is_not_published(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """It was, and its users had no packages; the exit code said so."""
    promotion.lock()
    (promotion.root / "layer.squashfs").write_bytes(PACKED.replace(b"packages", b"PACKAGES"))
    assert promotion.apply() == 18  # its size is that of the lock: only a hash shows it
    assert "the layer site of Good/1 does not match the lock" in capfd.readouterr().err
    assert not installations(Layout(promotion.production))
    locked = ["install", "--locked", SKIP, "Good-1.yaml", "--prefix", str(promotion.production)]
    (promotion.here / "stack.lock").rename(promotion.here / "Good-1.lock")
    assert run(locked) == 18
    assert not installations(Layout(promotion.production))


@pytest.mark.parametrize("part", ["layer.json", "pylock.toml"])
def test_a_published_layer_that_was_changed_is_brought_again(promotion: Promotion, part: str) -> None:
    """Its packages are those of the lock still: what else is in it counts too."""
    promotion.lock()
    assert promotion.apply() == 0
    there = promotion.published()
    assert there
    good = (there / part).read_text()
    (there / part).chmod(0o644)
    (there / part).write_text(good.replace("/wheels", "/home/m/wheels").replace("'1.0'", "'1.1'"))
    assert (there / part).read_text() != good
    assert promotion.apply() == 0
    again = promotion.published()
    assert again
    assert (again / part).read_text() == good
    before = disk_state(again)
    assert promotion.apply() == 0
    assert promotion.published() == again
    assert disk_state(again) == before


def test_a_comment_in_an_input_is_noted_and_another_file_is_refused(
    promotion: Promotion, capfd: pytest.CaptureFixture[str]
) -> None:
    """T4: the lock has a digest of every generated file, and those decide; the easyconfig itself is one of them."""
    site = write(promotion.here / "site.yaml", "name: ours\n")
    words = ["stack", "apply", "stack.yaml", SKIP, "--site", str(site), "--prefix"]
    assert run([*words, str(promotion.staging)]) == 0
    assert run(["stack", "lock", "stack.yaml", "--site", str(site), "--prefix", str(promotion.staging)]) == 0
    site.write_text("# a comment\nname: ours\n")
    capfd.readouterr()
    assert run([*words, str(promotion.production), "--locked", "--from", str(promotion.staging)]) == 0
    assert "changed since the lock was written: site.yaml" in capfd.readouterr().err
    other, before = promotion.here / "other", disk_state(promotion.production)
    site.write_text("name: ours\nenv: {A: b}\n")
    assert run([*words, str(other), "--locked", "--from", str(promotion.staging)]) == 18
    err = capfd.readouterr().err
    assert "Good/1: does not match the lock: " in err
    assert "would differ; changed since the lock was written: site.yaml" in err
    assert disk_state(promotion.production) == before
    assert live(Layout(other), GOOD) is None


def test_an_image_behind_a_link_is_not_published(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """The publisher's file of mode 0600 was copied for all to read."""
    promotion.lock()
    (stored,) = Layout(promotion.staging).images.glob("*.sif")
    private = write(promotion.here / "private" / "key", "")
    stored.rename(private)
    private.chmod(0o600)
    stored.symlink_to(private)
    words = ["stack", "plan", "stack.yaml", "--locked", "--from", str(promotion.staging), "--json"]
    capfd.readouterr()
    assert run([*words, "--prefix", str(promotion.production)]) == 0
    assert json.loads(capfd.readouterr().out)["copies"] == 0


def test_a_promotion_is_planned_as_it_is_then_applied(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """W8: images that another tree has are copied, and were called "1 image to fetch"."""
    promotion.lock()
    capfd.readouterr()
    before = disk_state(promotion.here)
    words = ["stack", "plan", "stack.yaml", "--locked", "--from", str(promotion.staging)]
    assert run([*words, "--prefix", str(promotion.production), "--json"]) == 0
    row = json.loads(capfd.readouterr().out)
    assert disk_state(promotion.here) == before
    assert (row["images"], row["copies"], row["size"]) == (0, 1, 0)
    assert row["copied"] > 1_000_000
    assert [(one["module"], one["mark"]) for one in row["members"]] == [("Good/1", " ")]
    assert promotion.apply() == 0
    err = capfd.readouterr().err
    assert "1 image to copy from another tree: 1.2 MB" in err
    assert "to fetch" not in err
    assert [str(one.module) for one in installations(Layout(promotion.production))] == [
        one["module"] for one in row["members"]
    ]
    assert run([*words, "--prefix", str(promotion.production), "--json"]) == 0
    row = json.loads(capfd.readouterr().out)
    assert ([one["mark"] for one in row["members"]], row["copies"]) == (["x"], 0)


def test_a_layer_that_the_lock_does_not_name_is_shown(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """Removed in staging and locked again, it stayed in the published module, and nothing said so."""
    promotion.lock()
    assert promotion.apply() == 0
    assert promotion.plan() == 0
    assert "warning" not in capfd.readouterr().out
    shutil.rmtree(promotion.staging / "layers")
    promotion.lock()
    capfd.readouterr()
    layers = promotion.production / "layers"
    words = f"layer remove Good/1 --all --layer site --dir '{layers}' --prefix '{promotion.production}'"
    for found in (promotion.plan, promotion.apply):
        assert found() == 0
        said = "".join(capfd.readouterr())
        assert f"Good/1 has the layer site, which the lock does not name; `sifmod {words}` removes it\n" in said
    assert promotion.published()
    shutil.rmtree(layers)
    assert promotion.plan() == 0
    assert "warning" not in capfd.readouterr().out


def test_a_layer_that_is_replaced_is_planned_and_the_earlier_lock_brings_it_back(
    promotion: Promotion, capfd: pytest.CaptureFixture[str]
) -> None:
    """The plan said `[x]`, and the earlier lock "no tree has the locked one", though both trees kept that layer."""
    promotion.lock()
    first = (promotion.here / "stack.lock").read_bytes()
    assert promotion.apply() == 0
    promotion.add(b"hsqs: later packages\n")
    promotion.lock()
    assert promotion.apply() == 0
    capfd.readouterr()
    (promotion.here / "stack.lock").write_bytes(first)
    for found in (promotion.plan, promotion.apply):
        assert found() == 0
        said = "".join(capfd.readouterr())
        assert "[L] Good/1: its layers differ from the lock, which a copy of the locked ones replaces\n" in said
    there = promotion.published()
    assert there
    assert (there / "layer.squashfs").read_bytes() == PACKED
    assert promotion.verify() == 0
    capfd.readouterr()
    assert promotion.plan() == 0
    assert "[x] Good/1\n" in capfd.readouterr().out


@pytest.fixture
def replaced(promotion: Promotion, images: Images) -> Promotion:
    """Published, and then with another image and the layer over it in staging, locked."""
    promotion.lock()
    assert promotion.apply() == 0
    promotion.take(images.tiny("another"))
    promotion.add(b"hsqs: packages of the next image\n")
    promotion.lock()
    return promotion


@pytest.mark.parametrize("moment", ["after_install", "before_publish"])
def test_a_hook_that_refuses_a_module_with_a_layer_leaves_all_as_it_was(replaced: Promotion, moment: str) -> None:
    replaced.hook(moment, "exit 1")
    before = replaced.state()
    assert replaced.apply() == 18
    assert replaced.state() == before


@pytest.mark.parametrize("moment", ["after_install", "before_publish", "after_publish"])
def test_a_module_never_has_its_next_image_without_the_layer(
    replaced: Promotion, moment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The module was published first, and during `after_publish` readers missed its packages."""
    seen = replaced.here / "seen"
    replaced.hook(moment, f"cat '{replaced.production}'/layers/Good/1/site/*/live/layer.squashfs > '{seen}'")
    assert replaced.apply() == 0
    assert "packages of the next image" in seen.read_text()
    assert "does not fit" not in "".join(capfd.readouterr())


def test_a_hook_that_fails_after_the_publication_leaves_the_layer_too(replaced: Promotion) -> None:
    """The module is live then, and its packages would be missing."""
    replaced.hook("after_publish", "exit 1")
    assert replaced.apply() == 18
    there = replaced.published()
    assert there
    assert (there / "layer.squashfs").read_bytes() == b"hsqs: packages of the next image\n"
    assert replaced.verify() == 0


def test_a_layer_that_cannot_be_published_leaves_the_module(replaced: Promotion) -> None:
    """The module was live with its next image, and without the layer."""
    layers = replaced.production / "layers/Good/1"
    shutil.rmtree(layers)
    write(layers, "in the way")
    before = replaced.state()
    assert replaced.apply() == 18
    assert replaced.state() == before


def test_a_rollback_names_the_layer_that_stays(promotion: Promotion, capfd: pytest.CaptureFixture[str]) -> None:
    """The module of before came back with the packages of after, and nothing said so."""
    promotion.lock()
    assert promotion.apply() == 0
    write(promotion.here / "Good-1.yaml", (promotion.here / "Good-1.yaml").read_text() + "env: {MARK: '2'}\n")
    assert run(["stack", "apply", "stack.yaml", SKIP, "--prefix", str(promotion.staging)]) == 0
    promotion.add(b"hsqs: later packages\n")
    promotion.lock()
    assert promotion.apply() == 0
    capfd.readouterr()
    assert run(["rollback", "Good/1", "--prefix", str(promotion.production)]) == 0
    assert "Good/1 keeps its layer site, version 2: a rollback changes no layer\n" in capfd.readouterr().err


@pytest.mark.usefixtures("needs_root")
def test_a_new_shared_tree_gets_its_group_before_its_first_layer(promotion: Promotion) -> None:
    promotion.lock()
    settings = f"sharing: site\ngroup: games\nprefix: '{promotion.production}'\n"
    write(Path(os.environ["SIFMOD_CONFIG_DIR"], "a.yaml"), settings)
    assert promotion.apply() == 0
    assert promotion.published()
    assert run(["verify", "--modes", "--prefix", str(promotion.production)]) == 0
