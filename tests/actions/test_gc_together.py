"""One gc of a tree that has something of each kind, each of another size; and what happens between its two looks."""

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.record import change_record
from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.system import size_text
from sifmod.tree.layer import image_key
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.locking import lock
from sifmod.tree.mark import leave
from sifmod.tree.receipt import numbers
from sifmod.tree.stack_record import Applied, read_applied, write_applied
from sifmod.tree.store import Store
from support.answer import answer
from support.tree import ALONE, LEASE, MODULE, image_bytes, install, nobody, put_image, tree_of

KEYS = ("0123456789abcdef", "fedcba9876543210")
GC = ("gc", "--now", "--ignore-jobs")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Three generations, the oldest of which can go; two downloads; three generations of a layer, one of them live."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "my tree"))
    layout = Layout(tmp_path / "my tree")
    for tag in "abc":
        made = install(layout, tag)
    for number, key in enumerate(KEYS, 1):
        (layout.partials / key).mkdir(parents=True)
        (layout.partials / key / "blob").write_bytes(b"h" * 4096 * number)
    place = layout.prefix / "layers" / str(MODULE) / "default" / image_key(made.required_image.sha256)
    for number in (1, 2, 3):
        (place / str(number)).mkdir(parents=True)
        (place / str(number) / "layer.squashfs").write_bytes(b"l" * 7000 * number)
    (place / "live").symlink_to("3")
    return layout


FREED = len(image_bytes("a")) + 4096 + 8192 + 7000 + 14000


def test_what_is_freed_is_what_was_shown(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    rows = answer(capfd, GC)
    going = [(row["kind"], row["size"]) for row in rows if not row["keep"]]
    assert sorted(going, key=str) == sorted(
        [("generation", None), ("image", len(image_bytes("a"))), ("download", 4096), ("download", 8192),
         ("layer", 7000), ("layer", 14000)], key=str,
    )  # fmt: skip
    assert {row["path"] for row in rows if row["kind"] == "layer"} == {
        str(path) for path in layout.prefix.glob("layers/*/*/*/*/[12]")
    }
    assert run([*GC]) == 0
    assert f"== {size_text(FREED)} can be freed: run `sifmod gc --now --ignore-jobs --yes`\n" in capfd.readouterr().err
    assert run([*GC, "--yes"]) == 0
    said = capfd.readouterr().err
    assert f"== removed 1 generation, 1 image, 2 downloads, 2 layers: {size_text(FREED)}\n" in said
    assert "== --rollbacks also removes what `rollback` would restore\n" in said
    assert sorted(path.name for path in layout.prefix.glob("layers/*/*/*/*/*")) == ["3", "live"]
    assert not list(layout.partials.glob("*"))
    log = [(one["what"], one["module"], one["size"]) for one in answer(capfd, ("log",)) if one["what"] == "removed"]
    assert log == [
        ("removed", "Tiny/1.0", None), ("removed", None, len(image_bytes("a"))),
        ("removed", None, 4096), ("removed", None, 8192),
    ]  # fmt: skip


def test_purge_leaves_downloads_and_other_images(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """Of those that stay and belonged to the module it says why."""
    install(layout, "b", ModuleName("Other", "1"))
    install(layout, "x", ModuleName("Other", "2"))
    with lock(layout, "x", LEASE, nobody) as held:
        stray, _ = put_image(Store(layout, held), "w")
    assert run(["uninstall", "--purge", "--ignore-jobs", str(MODULE)]) == 0
    said = capfd.readouterr().err
    freed = len(image_bytes("a")) + len(image_bytes("c"))
    assert f"== removed 3 generations, 2 images: {size_text(freed)}\n" in said
    stays = [line for line in said.splitlines() if " stays: " in line]
    assert len(stays) == 1
    assert stays[0].endswith("stays: used by Other/1")
    assert layout.image(stray).exists()
    assert sorted(path.name for path in layout.partials.iterdir()) == sorted(KEYS)
    assert len(list(layout.prefix.glob("layers/*/*/*/*/*"))) == 4


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ((), ["--now", "--rollbacks"]),
        (("--now",), ["--rollbacks"]),
        (("--rollbacks",), ["--now"]),
        (("--now", "--rollbacks"), []),
    ],
)
def test_what_would_free_more_is_named(
    layout: Layout, words: tuple[str, ...], asks: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """For a download too, which alone is kept for its age."""
    other = Layout(layout.prefix.parent / "other")
    (other.partials / KEYS[0]).mkdir(parents=True)
    for prefix in (layout.prefix, other.prefix):
        assert run(["gc", "--ignore-jobs", "--prefix", str(prefix), *words]) == 0
        said = re.findall(r"(--\w+) also removes", capfd.readouterr().err)
        assert said == (asks if prefix == layout.prefix or "--now" not in words else [])


def marked(layout: Layout, users: Path, tag: str = "a", days: float = 0) -> Path:
    """A mark of a user's tree upon the image of a generation."""
    layout.marks.mkdir(exist_ok=True)
    layout.marks.chmod(0o1777)
    sha256 = next(path.stem for path in layout.images.glob("*.sif") if path.read_bytes() == image_bytes(tag))
    mark, new = leave(layout, sha256, users)
    assert new
    when = time.time() - days * 86400
    os.utime(mark, (when, when))
    return mark


def test_a_mark_that_is_left_between_the_plan_and_the_removal_keeps_the_image(layout: Layout, tmp_path: Path) -> None:
    plan = plan_gc(layout, 0.0, ask_jobs=False)
    assert [old.keep for old in plan.images] == [""]
    mark = marked(layout, tmp_path / "user's")
    assert apply_gc(tree_of(layout), plan, ALONE).images == ()
    assert mark.exists()
    assert mark.name[:64] in {path.stem for path in layout.images.glob("*.sif")}
    rows = plan_gc(layout, 0.0, ask_jobs=False, mark_days=20)
    assert re.fullmatch(r"used from trees of \S+ \(seen 20..-..-..\), kept for 20 days after that", rows.images[0].keep)
    without = plan_gc(layout, 0.0, ask_jobs=False, mark_days=0)  # as `gc --marks` plans
    assert len(apply_gc(tree_of(layout), without, ALONE).images) == 1
    assert not mark.exists()  # of an image that is there no more


def test_marks_count_for_their_days(layout: Layout, tmp_path: Path) -> None:
    for days, keeps in ((4, True), (6, False)):
        mark = marked(layout, tmp_path / f"user {days}", days=days)
        (old,) = plan_gc(layout, 0.0, ask_jobs=False, mark_days=5).images
        assert bool(old.keep) == keeps
        mark.unlink()


def test_each_users_mark_goes_with_the_last_generation_that_refers_to_it(tmp_path: Path) -> None:
    """By a gc of the user's own tree; the mark of another tree stays."""
    store, own = Layout(tmp_path / "store"), Layout(tmp_path / "own")
    install(store, "a")
    mine, other = marked(store, own.prefix), marked(store, tmp_path / "other")
    for tag in "abc":
        install(own, tag)
    receipt = own.generation(MODULE, 1) / RECEIPT
    data = json.loads(receipt.read_text())
    data["image"] |= {"link": "reference", "path": str(next(store.images.glob("*.sif")))}
    receipt.chmod(0o600)
    receipt.write_text(json.dumps(data))
    apply_gc(tree_of(own), plan_gc(own, 0.0, ask_jobs=False), ALONE)
    assert (mine.exists(), other.exists()) == (False, True)


def kept(layout: Layout, days: float = 0.0, rollbacks: bool = False) -> dict[int, str]:
    plan = plan_gc(layout, days, ask_jobs=False, rollbacks=rollbacks)
    return {old.number: old.keep for old in plan.generations}


def test_what_rollback_goes_back_to_goes_where_that_is_asked_for(layout: Layout) -> None:
    assert kept(layout) == {1: "", 2: "`sifmod rollback` would restore it"}
    assert kept(layout, rollbacks=True) == {1: "", 2: ""}
    apply_gc(tree_of(layout), plan_gc(layout, 0.0, ask_jobs=False, rollbacks=True), ALONE)
    assert numbers(layout, MODULE) == (3,)


def test_of_a_retired_module_the_age_counts_from_what_ended_first(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of an old one from when it was replaced, of the live one from the retirement; the log has both removals."""
    history = layout.history(MODULE)
    events = [[number, time.time() - days * 86400, []] for number, days in ((1, 40), (2, 30), (3, 20))]
    history.write_text(json.dumps(events))
    assert run(["retire", str(MODULE), "--since", "2020-01-01"]) == 0
    day = 86400
    for days, going in ((35, []), (25, [1]), (15, [1, 2]), (0, [1, 2, 3])):
        assert [number for number, why in kept(layout, days).items() if not why] == going, days
    notice = layout.lives(MODULE.name) / MODULE.version
    os.utime(notice, (time.time() - 10 * day,) * 2)
    assert [number for number, why in kept(layout, 11).items() if not why] == [1, 2]
    assert [number for number, why in kept(layout, 9).items() if not why] == [1, 2, 3]
    assert run(["gc", "--yes", "--days", "9", "--ignore-jobs"]) == 0
    capfd.readouterr()
    told = [(one["what"], one["before"]) for one in answer(capfd, ("log", str(MODULE)))]
    assert told[-4:] == [("removed", 1), ("removed", 2), ("uninstalled", 3), ("removed", 3)]


def test_a_lock_of_a_stack_that_is_written_between_the_plan_and_the_removal_keeps_the_image(layout: Layout) -> None:
    """A lock of two stacks: the names of both are said until the last one is gone."""
    plan = plan_gc(layout, 0.0, ask_jobs=False)
    (old,) = plan.images
    for name in ("hill", "dale"):
        with lock(layout, name, LEASE, nobody) as held:
            write_applied(layout, Applied(name, f"/{name}.yaml", (), (), (old.image.sha256,)), held)
    assert apply_gc(tree_of(layout), plan, ALONE).images == ()
    assert old.image.path.exists()
    (kept_for,) = (one.keep for one in plan_gc(layout, 0.0, ask_jobs=False).images)
    assert kept_for == "the lock of dale, hill names it, until `sifmod stack lock --forget`"
    for name in ("hill", "dale"):
        (layout.prefix / "stacks" / f"{name}.json").unlink()
    assert len(apply_gc(tree_of(layout), plan_gc(layout, 0.0, ask_jobs=False), ALONE).images) == 1


def test_what_two_runs_write_of_a_stack_at_once_is_kept(layout: Layout) -> None:
    """One has looked, and waits for the other, which writes meanwhile."""
    site, waiting = load_site({}, os.environ).site, Event()

    def images(before: Applied | None) -> Applied:
        return (before or Applied("hill", "/hill.yaml", ()))._replace(images=("ab" * 32,))

    with ThreadPoolExecutor(1) as threads:
        with lock(layout, "stack-hill", LEASE, nobody) as held:
            done = threads.submit(change_record, layout, "hill", images, site, Reporter(lambda _: waiting.set()))
            assert waiting.wait(60)
            write_applied(layout, Applied("hill", "/hill.yaml", (MODULE,)), held)
        done.result()
    assert read_applied(layout, "hill") == Applied("hill", "/hill.yaml", (MODULE,), images=("ab" * 32,))


@pytest.mark.parametrize("number", [1, 5, 6])
def test_the_first_five_files_that_keep_a_generation_are_named(layout: Layout, number: int) -> None:
    root = layout.generation(MODULE, 1)
    for name in "fedcba"[:number]:
        (root / name).touch()
    named = ", ".join(sorted("fedcba"[:number])[:5])
    assert kept(layout)[1] == f"it holds files that sifmod did not write: {named}"
    for name in "fedcba"[:number]:
        (root / name).unlink()
    (root / "bin/python").chmod(0o644)
    (root / "bin/python").write_text("mine")
    assert kept(layout)[1] == "files in it were changed by hand: bin/python"
