"""Layers on the disk, and what becomes of those that fit no module any more."""

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from sifmod.actions.finding import verify_layer
from sifmod.actions.layer.layer_change import LayerChange, like
from sifmod.actions.layer.layers import hidden, withdrawn
from sifmod.actions.layer.places import found_layers, is_stale
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.cli.main import run as sifmod
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.errors import FullError, InstallError
from sifmod.tree.layer import (
    Layers,
    all_layers,
    image_key,
    layers_in,
    layers_lock,
    remove_old,
)
from sifmod.tree.layout import Layout
from sifmod.tree.life import Life, NameLife, Retired, to_json
from sifmod.tree.locking import lock
from sifmod.tree.log import Done, append, entry, read_log
from sifmod.tree.old_layer import old_layers, remove_layers
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.published import IMAGE, LEASE, MODULE, published, quiet
from support.tree import tree_of
from support.user import OrdinaryUser


def test_one_whose_receipt_cannot_be_read_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    layer = published(tmp_path)
    Path(layer.root, "layer.json").write_text("{")
    (found,) = all_layers(tmp_path / "layers")
    assert (found.module, found.name, found.image) == (MODULE, "default", "")
    assert sifmod(["layers", "--prefix", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["state"], row["sha256"]) == ("unreadable", None)
    assert sifmod(["layers", "--prefix", str(tmp_path)]) == 0
    assert "its layer.json cannot be read" in capfd.readouterr().out


def test_one_that_is_not_what_was_made_is_found(tmp_path: Path) -> None:
    layer = published(tmp_path)
    assert verify_layer(layer) == ()
    packed, file = replace(layer, packed=True, size=4, digest=sha256_bytes(b"made")), Path(layer.root, "layer.squashfs")
    assert verify_layer(packed) == (("missing", str(file), f"sha256:{packed.digest}", "nothing"),)
    file.write_bytes(b"made")
    assert verify_layer(packed) == ()
    file.write_bytes(b"mad")
    assert verify_layer(packed) == (
        ("changed", str(file), f"sha256:{packed.digest}", f"sha256:{sha256_bytes(b'mad')}"),
    )
    shutil.rmtree(Path(layer.root, "tree"))
    assert [(one.kind, one.path) for one in verify_layer(layer)] == [("missing", f"{layer.root}/tree")]
    Path(layer.root, "layer.json").write_text("{")
    (found,) = all_layers(tmp_path / "layers")
    assert [(one.kind, one.path) for one in verify_layer(found)] == [("unreadable", f"{found.root}/layer.json")]


def test_one_of_a_retired_module_says_where_it_moves(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also after `gc` has removed the module."""
    published(tmp_path)
    layout, day = Layout(tmp_path), date(2026, 3, 31)
    layout.life(MODULE.name).parent.mkdir(parents=True)
    life = NameLife(None, {MODULE.version: Life(retired=Retired(day, "PyTorch/2.13.0"))})
    layout.life(MODULE.name).write_text(to_json(life))
    assert sifmod(["layers", "--prefix", str(tmp_path)]) == 0
    assert (
        "PyTorch/2.2.0 was retired on 2026-03-31: use PyTorch/2.13.0; `sifmod add PyTorch/2.2.0 --onto PyTorch/2.13.0`"
        in capfd.readouterr().out
    )
    assert sifmod(["layers", "--prefix", str(tmp_path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["successor"] == "PyTorch/2.13.0"


def test_a_stale_one_is_shown_as_such(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    published(tmp_path)
    assert sifmod(["layers", "--prefix", str(tmp_path)]) == 0
    words = capfd.readouterr().out
    assert "default (stale)" in words
    assert f"its module is not installed; `sifmod layer remove {MODULE} --all` removes it" in words


def test_one_that_another_gc_removes_ends_no_look(tmp_path: Path) -> None:
    first, second = published(tmp_path), published(tmp_path, 2)
    place = Path(first.root).parent
    other = place.with_name("f" * 16)
    shutil.copytree(place, other, symlinks=True)
    (other / "live").unlink()

    def removes(_: float) -> str:
        shutil.rmtree(other)
        return ""

    rows = list(old_layers(Layout(tmp_path), removes))
    assert [str(row.root) for row in rows] == [first.root, second.root]


def test_a_closed_place_hides_no_other(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """A colleague's, in SIFMOD_LAYERS or a shared prefix; the lock of its module must know that it cannot be read."""
    layer = published(shared_tmp)
    top = shared_tmp / "layers"
    for place in (top / "Closed", top / MODULE.name / "1.0", Path(layer.root).parents[1].with_name("closed")):
        place.mkdir(parents=True)
        place.chmod(0o700)
    key = Path(layer.root).parents[1] / ("f" * 16)
    key.mkdir(0o700)

    def seen() -> tuple[list[str], list[Path], str]:
        try:
            list(all_layers(top, ModuleName("Closed", "1.0")))
            refused = ""
        except PermissionError as error:
            refused = str(error.filename)
        rows = list(old_layers(Layout(shared_tmp), lambda _: ""))
        return [one.root for one in all_layers(top)], [row.root for row in rows], refused

    expected = ([layer.root], [Path(layer.root)], str(top / "Closed" / "1.0"))
    assert call_as(ordinary_user.user, seen) == expected


def test_what_was_replaced_goes_and_what_is_live_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first, second = published(tmp_path), published(tmp_path, 2)
    before = disk_state(Path(second.root))
    rows = {old.root.name: old for old in old_layers(layout, lambda _: "")}
    assert not rows["1"].keep
    assert rows["1"].size >= 5
    assert "an image that the module does not have now" in rows["2"].keep  # and its lock is what `--onto` needs
    assert all(old.keep for old in old_layers(layout, lambda since: "young" if since > time.time() - 60 else ""))
    going = [old for old in rows.values() if not old.keep]
    assert remove_layers(tree_of(layout), going) == going
    assert not os.path.exists(first.root)
    assert remove_layers(tree_of(layout), [rows["2"]]) == []  # live after all
    assert disk_state(Path(second.root)) == before


def test_gc_removes_what_a_killed_add_left(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    if (child := os.fork()) == 0:
        with layers_lock(layers_in(layout), MODULE, tree_of(layout)) as held:
            held.path("layer").mkdir()
            (held.directory / "1.layer" / "uv.toml").write_text("a login of the index")
            os._exit(9)
    os.waitpid(child, 0)
    staging = layers_in(layout).staging
    assert len(os.listdir(staging)) == 1
    assert sifmod(["gc", "--prefix", str(tmp_path)]) == 0
    assert len(os.listdir(staging)) == 1
    assert sifmod(["gc", "--yes", "--ignore-jobs", "--prefix", str(tmp_path)]) == 0
    assert os.listdir(staging) == []


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    """Also when earlier generations are gone, as `add` removes all but three."""
    layers = Layers(tmp_path / "layers", tmp_path)
    place = layers.place(MODULE, "default", IMAGE)
    for number in range(1, 7):
        layer = published(tmp_path)
        assert (layer.number, Path(layer.root).name, os.readlink(place / "live")) == (number, *[str(number)] * 2)
        with lock(layers, str(MODULE), LEASE, quiet) as held:
            remove_old(layers, layer, 3, held)
        there = sorted(path.name for path in place.iterdir() if path.name != "live")
        assert there == [str(one) for one in range(max(1, number - 2), number + 1)]


@pytest.mark.parametrize("before", [0, 1])
def test_one_that_cannot_be_made_live_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    for _ in range(before):
        published(tmp_path)
    was = disk_state(tmp_path)
    usual = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        if target == "live":
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), target)
        usual(source, target, **named)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(FullError, match="what was installed before is unchanged"):
        published(tmp_path)
    now = disk_state(tmp_path)
    locks = str(tmp_path / "layers" / ".locks")
    assert {path: now[path] for path in now if path in was and not path.startswith(locks)} == {
        path: was[path] for path in was if not path.startswith(locks)
    }
    assert not {path for path in now.keys() - was.keys() if "PyTorch/" in path}


def test_only_a_directory_that_the_user_names_may_be_behind_a_link(tmp_path: Path) -> None:
    link, tree = tmp_path / "prefix/layers", tree_of(Layout(tmp_path / "prefix"), LEASE, quiet)
    (tmp_path / "elsewhere").mkdir()
    link.parent.mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    theirs, named = Layers(link, link.parent), Layers(link, link.parent, named=True)
    with pytest.raises(InstallError, match="layers is a symlink"), layers_lock(theirs, MODULE, tree):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with layers_lock(named, MODULE, tree) as held:
        assert held.directory.is_dir()


def test_of_several_earlier_layers_the_latest_is_taken_over(tmp_path: Path) -> None:
    """They are of one name and of different images; the order on disk is that of the images' digests."""
    for latest in ("aa", "cc", "bb"):
        layers = [published(tmp_path, image=image * 32) for image in ("aa", "bb", "cc")]
        for layer in layers:
            then = time.time() - (0 if layer.image.startswith(latest) else 1000)
            os.utime(layer.root, (then, then))
            text = Path(layer.root, "layer.json").read_text().replace('"demo', f'"demo-{layer.image[:2]}')
            Path(layer.root, "layer.json").chmod(0o644)
            Path(layer.root, "layer.json").write_text(text)
        there = tuple(all_layers(tmp_path / "layers"))
        assert like(LayerChange("New/1", model=str(MODULE)), MODULE, there).add.requirements == (f"demo-{latest}",)


def test_a_layer_of_a_module_that_is_gone_can_be_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept, stale = published(tmp_path, name="kept"), published(tmp_path)
    append(Layout(tmp_path), entry(Done("installed", MODULE), "sifmod install"))
    assert is_stale(stale, {})
    words = ["remove", str(MODULE), "--stale", "--prefix", str(tmp_path)]
    assert sifmod([*words, "demo"]) == 2
    assert sifmod([*words, "--layer", "none"]) == 24
    capfd.readouterr()
    assert sifmod([*words, "--json"]) == 0
    assert [row["state"] for row in json.loads(capfd.readouterr().out)] == ["removed"]
    assert [layer.name for layer in all_layers(tmp_path / "layers")] == [kept.name]
    done = read_log(Layout(tmp_path), MODULE).entries[-1].done
    assert (done.what, done.layer, done.before) == ("removed", "default", stale.number)
    (row,) = (old for old in old_layers(Layout(tmp_path), lambda _: "") if not old.keep)
    assert row.root == Path(stale.root)
    assert remove_layers(tree_of(Layout(tmp_path)), [row]) == [row]
    assert not (tmp_path / "layers" / str(MODULE) / "default").exists()


def test_a_stale_layer_of_a_project_can_be_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No load finds it without SIFMOD_LAYERS: its directory is named."""
    own, project = published(tmp_path / "own", name="mine"), published(tmp_path / "pro ject")
    words = ["remove", str(MODULE), "--stale", "--prefix", str(tmp_path / "own")]
    assert sifmod(words) == 24
    assert sifmod([*words, "--dir", str(tmp_path / "pro ject/layers"), "--layer", "mine", "--json"]) == 0
    capfd.readouterr()
    assert list(all_layers(tmp_path / "own/layers")) == []
    before = disk_state(Path(own.root))
    assert sifmod([*words, "--dir", str(tmp_path / "pro ject/layers"), "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["path"], row["state"]) == (project.root, "removed")
    assert list(all_layers(tmp_path / "pro ject/layers")) == []
    assert disk_state(Path(own.root)) == before


def test_a_layer_for_the_image_of_a_colleagues_tree_is_not_stale(
    shared_tmp: Path, ordinary_user: OrdinaryUser, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """The user's own module of that name has another image; the colleague's tree may be closed."""
    theirs, mine = shared_tmp / "theirs", shared_tmp / "mine"
    for prefix, image in ((theirs, images.tiny_sif), (mine, images.tiny("another"))):
        text = f"name: App\nversion: '1'\nimage: {{sources: ['{image}']}}\nwrappers: [sh]\n"
        (shared_tmp / "App-1.yaml").write_text(text)
        assert sifmod(["install", str(shared_tmp / "App-1.yaml"), "--skip-sanity-check", "--prefix", str(prefix)]) == 0
    layer = published(theirs, image=sha256_bytes(images.tiny_sif.read_bytes()), module=ModuleName("App", "1"))
    words = ["App/1", "--dir", str(theirs / "layers"), "--prefix"]
    assert sifmod(["remove", "--stale", *words, str(mine)]) == sifmod(["remove", "--all", *words, str(mine)]) == 24
    capfd.readouterr()
    assert sifmod(["remove", "--all", *words, str(shared_tmp / "none")]) == 24
    assert "App/1 has no layer default for an earlier image" in capfd.readouterr().err
    (theirs / "software").chmod(0o700)
    assert not call_as(ordinary_user.user, lambda: is_stale(layer, {}))
    assert [one.root for one in all_layers(theirs / "layers")] == [layer.root]
    shutil.rmtree(theirs / "software")
    assert sifmod(["remove", "--stale", *words, str(mine)]) == 0
    assert list(all_layers(theirs / "layers")) == []


def test_all_of_a_module_that_was_uninstalled_goes_and_no_other_module_is_meant(
    tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of two modules, one's name is the beginning of the other's."""
    prefix = ["--prefix", str(tmp_path / "prefix")]
    for version in ("1", "12"):
        text = f"name: App\nversion: '{version}'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
        (tmp_path / f"App-{version}.yaml").write_text(text)
        assert sifmod(["install", str(tmp_path / f"App-{version}.yaml"), "-q", "--skip-sanity-check", *prefix]) == 0
    sha256 = sha256_bytes(images.tiny_sif.read_bytes())
    gone = published(tmp_path / "prefix", image=sha256, module=ModuleName("App", "1"))
    other = published(tmp_path / "prefix", image=sha256, module=ModuleName("App", "12"))
    assert sifmod(["uninstall", "App/1", *prefix]) == 0
    capfd.readouterr()
    assert sifmod(["add", "App/1", "six", *prefix]) == 24
    said = capfd.readouterr().err
    assert "App/1 is not installed" in said
    assert "`sifmod layer list App/1`" in said
    assert sifmod(["remove", "App/1", "--all", *prefix]) == 0
    said = capfd.readouterr().err
    removed = "== layer default of App/1, which is not installed: removed"
    assert said == f"{removed}; `sifmod gc --yes` frees its space after 14 days, with --now at once\n"
    assert [layer.root for layer in all_layers(tmp_path / "prefix" / "layers")] == [other.root]
    assert sifmod(["gc", "--yes", "--now", "--ignore-jobs", *prefix]) == 0
    assert not Path(gone.root).exists()


def test_a_layer_of_another_prefix_is_listed_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = published(tmp_path / "here"), published(tmp_path / "there", name="mine")
    monkeypatch.setenv("SIFMOD_LAYERS", str(tmp_path / "there" / "layers"))
    assert sifmod(["layers", "--prefix", str(tmp_path / "here")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(" removes it")[2].strip() for line in lines] == [f"in {there.root}", ""]
    assert "--all --layer mine`" in lines[0]
    assert sifmod(["remove", str(MODULE), "--all", "--layer", "mine", "--prefix", str(tmp_path / "here")]) == 0
    assert f"`sifmod gc --prefix {tmp_path}/there --yes` frees its space" in capfd.readouterr().err
    assert [one.root for top in ("here", "there") for one in all_layers(tmp_path / top / "layers")] == [here.root]


def test_one_of_two_with_a_name_is_used_and_that_is_said(tmp_path: Path) -> None:
    site, own, project = tmp_path / "site", tmp_path / "own", tmp_path / "project"
    tree, environ = Layout(site), {"HOME": "/h", "SIFMOD_PREFIX": str(own)}
    alone = published(own)
    assert hidden(alone, tree, environ) == ""
    assert hidden(alone, Layout(own), environ | {"SIFMOD_PREFIX": f"{own}/"}) == ""  # one place, written in two ways
    of_site, of_project = published(site), published(project)
    assert hidden(alone, tree, environ) == f"this layer is used instead of the layer default in {site}/layers"
    first = f"warning: the layer default in {own}/layers comes first, so this one is not used; see --layer"
    assert hidden(of_site, tree, environ) == first
    assert hidden(of_project, tree, environ) == ""  # SIFMOD_LAYERS does not name it yet
    assert "instead of the layer" in hidden(of_project, tree, {**environ, "SIFMOD_LAYERS": f"{project}/layers"})
    both = f"{own}/layers:{project}/layers"
    assert hidden(of_project, tree, {**environ, "SIFMOD_LAYERS": both}) == first


def test_one_in_a_projects_directory_is_withdrawn_there(tmp_path: Path) -> None:
    layer = published(tmp_path)
    withdrawn(layer, tree_of(Layout(tmp_path)), Reporter(quiet))
    assert list(found_layers((), {"SIFMOD_LAYERS": str(tmp_path / "layers"), "HOME": str(tmp_path)})) == []
    assert image_key(IMAGE) == Path(layer.root).parent.name


def test_one_elsewhere_is_no_change_of_the_tree(tmp_path: Path) -> None:
    """The log of a shared module tells of its own layers, and not of those of its users' projects."""
    layout = Layout(tmp_path / "tree")
    append(layout, entry(Done("installed", MODULE, None, 1), "sifmod install"))
    own, project = published(layout.prefix), published(tmp_path / "project", name="mine")
    for layers, layer in (
        (Layers(tmp_path / "project/layers", layout.prefix), project),
        (Layers(layout.prefix / "layers", layout.prefix), own),
    ):
        record_layer(layers, layer, None, tree_of(layout), Reporter(quiet))
        record_layer(layers, None, layer, tree_of(layout), Reporter(quiet))
    told = [(one.done.what, one.done.layer) for one in read_log(layout, MODULE).entries]
    assert told == [("installed", None), ("made", "default"), ("removed", "default")]


def test_a_place_where_nobody_finds_a_layer_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's directory that was closed: its layers were not used, and nothing said so."""
    published(tmp_path)
    monkeypatch.setenv("SIFMOD_LAYERS", f"{tmp_path}/layers::{tmp_path}/gone:layers")
    assert sifmod(["layer", "list", "--prefix", str(tmp_path)]) == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "SIFMOD_LAYERS" in line]
    assert [line.partition(" of ")[0].rpartition(" ")[2] for line in told] == [f"{tmp_path}/gone", "layers"]
    assert all(line.startswith("== warning: modules find no layer in ") for line in told)
