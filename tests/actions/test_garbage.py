"""What `gc` says of each thing that stays, before and after it removes the others."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sifmod.actions.garbage import GcPlan, plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.actions.reporter import Reporter
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.generation import module_lock, staged_generation
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.partial import lock_name
from sifmod.tree.store import Store
from support.answer import answer
from support.command import SIFMOD, User
from support.config import write
from support.hold import Other
from support.identity import call_as
from support.tree import LEASE, MODULE, fill, install, nobody, put_image, tree_of
from support.user import OrdinaryUser

KEY = "0123456789abcdef"
OTHER = ModuleName("Other", "2.0")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return Layout(tmp_path / "prefix")


def reasons(layout: Layout, capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """Why each path stays, as the table and `--json` say it alike; empty for what goes."""
    rows = answer(capfd, ("gc", "--ignore-jobs", *words))
    assert run(["gc", "--ignore-jobs", *words]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "  /tmp/sifmod-" not in line]  # the machine's
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith("keep  " if row["keep"] else "remove")
        assert line.endswith(f"  {row['path']}{'  ({})'.format(row['keep']) if row['keep'] else ''}")
    return {str(Path(row["path"]).relative_to(layout.prefix)): row["keep"] or "" for row in rows}


def image(sha256: str) -> str:
    return f"images/sha256/{sha256}.sif"


def test_an_image_says_who_uses_it(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """A live generation by its module's name; the first three of many."""
    a = install(layout, "a").required_image.sha256
    b = install(layout, "b").required_image.sha256
    for name in ("C", "D", "E", "F"):
        install(layout, "b", ModuleName(name, "1"))
    stranger = layout.images / f"{'0' * 64}.sif"
    stranger.write_bytes(b"mine")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert reasons(layout, capfd) == {
        "software/Tiny/.generations/1.0/1": "`sifmod rollback` would restore it",
        image(a): "used by Tiny/1.0 generation 1",
        image(b): "used by C/1, D/1, E/1 and 2 more",
        image("0" * 64): "sifmod did not store it",
    }
    install(layout, "b")
    found = reasons(layout, capfd)
    assert found["software/Tiny/.generations/1.0/1"] == f"out of use since {today}, kept for 14 days"
    assert reasons(layout, capfd, "--now", "--rollbacks")[image(a)] == ""
    assert stranger.read_bytes() == b"mine"


def test_what_a_run_works_with_says_so(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """An image, a download, and a generation that is there and not yet live; `gc --now` waits for none of them."""
    install(layout, "a", OTHER)
    with (
        module_lock(tree_of(layout), MODULE) as held,
        lock(layout, lock_name(KEY), LEASE, nobody),
    ):
        busy, _ = put_image(Store(layout, held.held), "z")
        with staged_generation(held) as stage:
            fill(stage, Store(layout, held.held), "b")
        (layout.partials / KEY).mkdir(parents=True)
        (layout.partials / KEY / "blob").write_bytes(b"half")
        found = reasons(layout, capfd, "--now")
        now = "another run is using it"
        assert found["software/Tiny/.generations/1.0/1"] == "another run is creating it"
        assert (found[image(busy)], found[f"images/partial/{KEY}"]) == (now, now)
        assert run(["gc", "--yes", "--now", "--ignore-jobs"]) == 0
        assert (layout.partials / KEY / "blob").exists()
    assert not layout.generation(MODULE, 1).exists()
    found = reasons(layout, capfd, "--now")
    assert (found[image(busy)], found[f"images/partial/{KEY}"]) == ("", "")


def test_what_a_killed_run_worked_with_is_not_kept_for_it(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    install(layout, "a", OTHER)
    other = Other(layout.prefix, LEASE).take()
    (mine,) = layout.staging.iterdir()
    with lock(layout, "x", LEASE, nobody) as held:
        sha256, _ = put_image(Store(layout, held), "z")
    (mine / f"{sha256}.pin").touch()
    assert reasons(layout, capfd, "--now")[image(sha256)] == "another run is using it"
    other.kill()
    assert reasons(layout, capfd, "--now")[image(sha256)] == ""


def test_a_young_download_says_so(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    path = layout.partials / KEY
    path.mkdir(parents=True)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    where = f"images/partial/{KEY}"
    assert reasons(layout, capfd) == {where: f"a fetch can resume it; written {today}, kept for 14 days"}
    assert reasons(layout, capfd, "--now") == {where: ""}


def test_what_another_user_has_left_closed_says_so(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can leave what an ordinary user cannot remove")
    layout = Layout(ordinary_user.home / "prefix")
    closed = layout.staging / "Tiny@1.0.1.ab.fenced"
    ordinary_user.own(layout.prefix.parent)
    call_as(ordinary_user.user, lambda: install(layout, "a"))
    closed.mkdir()
    closed.chmod(0o700)
    plan = call_as(ordinary_user.user, lambda: plan_gc(layout, ask_jobs=False))
    assert closed in [one.path for one in plan.stays]
    assert closed not in [one.path for one in plan_gc(layout, ask_jobs=False).stays]
    assert shared_tmp in closed.parents


@pytest.mark.usefixtures("needs_root")
def test_a_download_with_what_only_another_user_can_remove_stays_and_ends_nothing(ordinary_user: OrdinaryUser) -> None:
    """It ended the command, half removed, and the next downloads stayed."""
    layout = Layout(ordinary_user.home / "prefix")
    layout.locks.mkdir(parents=True)
    for name in ("a closed directory", "a sticky directory", "open"):
        (layout.partials / name / "below").mkdir(parents=True)
        (layout.partials / name / "below" / "file").touch()
    (layout.partials / "zero").touch()
    ordinary_user.own(layout.prefix.parent)
    closed, sticky = (layout.partials / f"a {kind} directory" / "below" for kind in ("closed", "sticky"))
    os.chown(closed, 0, 0)
    closed.chmod(0o700)
    for path in (sticky, sticky / "file"):
        os.chown(path, 0, 0)
    sticky.chmod(0o1777)

    def collect() -> list[str]:
        plan = plan_gc(layout, 0.0, ask_jobs=False)
        apply_gc(tree_of(layout), plan, Reporter(nobody))
        return [old.keep for old in plan.partials]

    theirs = "only another user can remove it"
    assert call_as(ordinary_user.user, collect) == [theirs, theirs, "", "sifmod did not write it"]
    assert {path.name for path in layout.partials.iterdir()} == {"a closed directory", "a sticky directory", "zero"}
    assert (sticky / "file").exists()


def test_a_link_among_the_downloads_stays_and_is_not_followed(layout: Layout) -> None:
    """A member may put one to a directory of millions of files, which gc read; and one of another user ended it."""
    led = layout.prefix.parent / "led"
    write(led / "large", "x" * 100_000)
    layout.partials.mkdir(parents=True)
    for name, target in (("a", led), ("b", led / "nothing")):
        (layout.partials / name).symlink_to(target)
    plan = plan_gc(layout, 0.0, ask_jobs=False)
    assert [old.partial.size < 100_000 for old in plan.partials] == [True, True]
    assert {old.keep for old in plan.partials} == {"sifmod did not write it"}
    assert apply_gc(tree_of(layout), plan, Reporter(nobody)).partials == ()
    assert (led / "large").is_file()


def test_what_came_into_use_since_it_was_shown_says_so(layout: Layout) -> None:
    """A file is added between the plan and the second look, while `gc` waits for the module's lock."""
    for tag in "abc":
        install(layout, tag)
    root = layout.generation(MODULE, 1)
    words = (*SIFMOD, "gc", "--yes", "--now", "--ignore-jobs")
    with module_lock(tree_of(layout), MODULE):
        gc = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert gc.stderr is not None
        while "waiting for Tiny/1.0" not in (line := gc.stderr.readline()):
            assert line
        (root / "late").write_text("mine")
    out, err = gc.communicate()
    assert (gc.returncode, f"remove  Tiny/1.0 generation 1  {root}" in out) == (0, True)
    assert f"== Tiny/1.0 generation 1 stays in {root}: it came into use meanwhile\n" in err
    assert "removed 0 generations, 0 images, 0 downloads" in err
    assert (root / "late").read_text() == "mine"


def test_what_another_run_removes_while_it_is_looked_at_is_kept(ordinary_user: OrdinaryUser) -> None:
    """Taken away at each look into it in turn, of which a user who is not root has more."""
    layout = Layout(ordinary_user.home / "prefix")
    for tag in "abc":
        install(layout, tag)
    plan_gc(layout, ask_jobs=False)  # what it imports, the user may not read
    ordinary_user.own(layout.prefix.parent)
    root, gone = layout.generation(MODULE, 1), layout.staging / "gone"

    def look(at: int) -> tuple[int, dict[str, str]]:
        looks = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal looks
            if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(str(root)):
                looks += 1
                if looks == at:
                    root.rename(gone)

        sys.addaudithook(watch)
        plan = plan_gc(layout, ask_jobs=False, days=0)
        return looks, {str(old.root): old.keep for old in plan.generations}

    looks, whole = call_as(ordinary_user.user, lambda: look(0))
    assert whole[str(root)] == ""
    for at in range(1, looks + 1):
        _, seen = call_as(ordinary_user.user, partial(look, at))
        assert seen[str(root)].startswith(("it cannot be read: ", "its receipt is missing or cannot be read"))
        gone.rename(root)


@pytest.mark.parametrize(
    ("path", "look"),
    [
        (".staging/run", ".staging/run"),
        (image("f" * 64), f"images/sha256/{'f' * 64}.json"),
        ("images/sha256", "images/sha256"),
    ],
)
def test_what_another_run_removes_ends_no_gc(path: str, look: str, layout: Layout) -> None:
    """A run that ends, and an image that another gc removes, between the listing and the look at it."""
    install(layout, "a")
    place, gone = layout.prefix / path, layout.prefix / "gone"
    if path == "images/sha256":
        pass
    elif look == path:
        place.mkdir()
        (place / f"{'0' * 64}.pin").touch()
    else:
        place.write_text("image")

    def planned() -> tuple[GcPlan, bool]:
        def watch(event: str, arguments: tuple[object, ...]) -> None:
            if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]) == str(layout.prefix / look):
                with suppress(FileNotFoundError):  # the second look
                    place.rename(gone)

        sys.addaudithook(watch)
        return plan_gc(layout, ask_jobs=False, days=0), gone.exists()

    plan, was_removed = call_as(User(os.geteuid(), os.getegid()), planned)
    assert was_removed
    assert place not in [staying.path for staying in plan.stays]


def test_what_a_clock_that_is_ahead_has_dated_goes_without_days(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    """An image, a download, a generation and a layer, written by a node or a server whose clock is an hour ahead."""
    install(layout, "a")
    install(layout, "b")
    ahead = time.time() + 3600
    history = layout.history(MODULE)
    events = [[number, since + 3600, held] for number, since, held in json.loads(history.read_text())]
    history.write_text(json.dumps(events))
    with lock(layout, "other", LEASE, nobody) as held:
        sha256, stored = put_image(Store(layout, held), "c")
    os.utime(stored.with_suffix(".json"), (ahead, ahead))
    (layout.partials / KEY).mkdir(parents=True)
    os.utime(layout.partials / KEY, (ahead, ahead))
    there = {image(sha256), f"images/partial/{KEY}", str(layout.generation(MODULE, 1).relative_to(layout.prefix))}
    kept = reasons(layout, capfd)
    assert all("kept for 14 days" in kept[path] or "rollback" in kept[path] for path in there)
    kept = reasons(layout, capfd, "--now", "--rollbacks")
    assert [kept[path] for path in sorted(there)] == ["", "", ""]
