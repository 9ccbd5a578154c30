import json
import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from sifmod.actions.garbage import GcPlan, plan_gc
from sifmod.actions.gc import Collected, apply_gc
from sifmod.actions.life import update_life
from sifmod.actions.reporter import Reporter
from sifmod.actions.rollback import rollback
from sifmod.actions.slurm import Jobs, ask_slurm
from sifmod.actions.uninstall import uninstall
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.tree.generation import module_lock
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.life import Life, NameLife, Retired
from sifmod.tree.locking import lock
from sifmod.tree.receipt import live_number, numbers
from sifmod.tree.store import Store
from sifmod.tree.stored_image import entries
from support.disk_state import disk_state
from support.identity import call_as
from support.slurm import Slurm
from support.tree import ALONE, LEASE, MODULE, install, names, nobody, put_image, tree_of
from support.user import OrdinaryUser


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))


no_slurm = pytest.mark.usefixtures("_no_slurm")


def install_several(layout: Layout, tags: str, module: ModuleName = MODULE) -> None:
    for tag in tags:
        install(layout, tag, module)


def collect(layout: Layout, plan: GcPlan) -> Collected:
    return apply_gc(tree_of(layout), plan, ALONE)


def kept(plan: GcPlan) -> dict[int, str]:
    return {old.number: old.keep for old in plan.generations}


def stored(layout: Layout) -> list[str]:
    return sorted(path.read_text().split()[1] for path in layout.images.glob("*.sif"))


@no_slurm
def test_old_generations_and_their_images_go(layout: Layout) -> None:
    install_several(layout, "abcd")
    before = disk_state(layout.prefix)
    plan = plan_gc(layout, days=0)
    assert disk_state(layout.prefix) == before
    assert kept(plan) == {1: "", 2: "", 3: "`sifmod rollback` would restore it"}
    done = collect(layout, plan)
    assert [old.number for old in done.generations] == [1, 2]
    assert done.size == plan.size == sum(image.size for image in done.images) > 0
    assert numbers(layout, MODULE) == (3, 4)
    assert stored(layout) == ["c", "d"]
    assert collect(layout, plan_gc(layout, days=0)) == Collected((), (), (), 0)
    assert collect(layout, plan) == Collected((), (), (), 0)
    rollback(tree_of(layout), MODULE, None, ALONE)


@no_slurm
def test_what_stays_is_untouched(layout: Layout) -> None:
    install_several(layout, "abc")
    other = install(layout, "a", ModuleName("Other", "1"))
    stay = (layout.generation(MODULE, 2), layout.generation(MODULE, 3), Path(other.root), layout.modules)
    before = disk_state(*stay)
    collect(layout, plan_gc(layout, days=0))
    assert disk_state(*stay) == before
    assert stored(layout) == ["a", "b", "c"]  # a is Other's too


@no_slurm
def test_the_young_stay(layout: Layout) -> None:
    install_several(layout, "abc")
    plan = plan_gc(layout)
    assert kept(plan)[1].endswith("kept for 14 days")
    before = names(layout)
    collect(layout, plan)
    assert names(layout) == before
    days_ago(layout, 15)
    assert kept(plan_gc(layout))[1] == ""


@no_slurm
def test_under_a_clock_that_was_wrong_nothing_goes(layout: Layout) -> None:
    """A node whose clock begins in 1970 has superseded what was live a moment ago."""
    install_several(layout, "ab")
    first, _ = json.loads(layout.history(MODULE).read_text())
    layout.history(MODULE).write_text(json.dumps([first, [2, 7.5, []]]))
    install_several(layout, "c")
    before = names(layout)
    assert kept(plan_gc(layout)).keys() == {1, 2}
    collect(layout, plan_gc(layout))
    assert names(layout) == before


def days_ago(layout: Layout, days: float) -> None:
    """Make the history of the module that much older."""
    path = layout.history(MODULE)
    events = [[number, since - days * 86400, held] for number, since, held in json.loads(path.read_text())]
    path.write_text(json.dumps(events))


@no_slurm
def test_the_days_count_from_when_it_was_superseded(layout: Layout) -> None:
    install(layout, "a")
    days_ago(layout, 100)
    install_several(layout, "bc")
    assert "kept for 14 days" in kept(plan_gc(layout))[1]


@no_slurm
def test_an_uninstalled_module_goes_as_a_whole(layout: Layout) -> None:
    install_several(layout, "ab")
    uninstall(tree_of(layout), MODULE, ALONE)
    assert set(kept(plan_gc(layout)).values()) == {kept(plan_gc(layout))[1]}
    done = collect(layout, plan_gc(layout, days=0))
    assert [old.number for old in done.generations] == [1, 2]
    assert names(layout) == {".staging", "images", "images/sha256", "modules"}


@no_slurm
def test_files_that_no_receipt_names_keep_a_generation(layout: Layout) -> None:
    install(layout, "a")
    (layout.generation(MODULE, 1) / "data").mkdir()
    (layout.generation(MODULE, 1) / "data" / "results.csv").write_text("mine")
    install_several(layout, "bcd")
    assert (layout.generation(MODULE, 4) / "data" / "results.csv").exists()
    assert kept(plan_gc(layout, days=0))[1] == ""  # the live generation has the file too
    (layout.generation(MODULE, 4) / "data" / "results.csv").unlink()
    plan = plan_gc(layout, days=0)
    assert kept(plan)[1] == "it holds files that sifmod did not write: data/results.csv"
    collect(layout, plan)
    assert (layout.generation(MODULE, 1) / "data" / "results.csv").read_text() == "mine"
    assert "a" in stored(layout)


def as_file(path: Path, text: str) -> None:
    path.write_text(text)


def as_link(path: Path, text: str) -> None:
    path.symlink_to(text)


@no_slurm
@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        ((as_file, "mine"), (as_file, "mine"), False),
        ((as_file, "mine"), (as_file, "thin"), True),
        ((as_file, "mine"), (as_file, "mine too"), True),
        ((as_link, "there"), (as_link, "there"), False),
        ((as_link, "there"), (as_link, "where"), True),
        ((as_file, "there"), (as_link, "there"), True),
        ((as_link, "other"), (as_file, "mine"), True),
    ],
)
def test_only_what_the_live_generation_has_just_so_can_go(
    layout: Layout,
    old: tuple[Callable[[Path, str], None], str],
    new: tuple[Callable[[Path, str], None], str],
    stays: bool,
) -> None:
    """Of the same name and size is not the same."""
    install(layout, "a")
    (layout.generation(MODULE, 1) / "other").write_text("mine")
    old[0](layout.generation(MODULE, 1) / "own", old[1])
    install_several(layout, "bc")
    live = layout.generation(MODULE, 3) / "own"
    live.unlink()
    new[0](live, new[1])
    before = disk_state(layout.generation(MODULE, 1))
    plan = plan_gc(layout, days=0)
    assert kept(plan)[1] == ("it holds files that sifmod did not write: own" if stays else "")
    collect(layout, plan)
    assert (disk_state(layout.generation(MODULE, 1)) == before) if stays else numbers(layout, MODULE) == (2, 3)


@no_slurm
def test_files_added_after_the_plan_keep_a_generation(layout: Layout) -> None:
    install_several(layout, "abc")
    plan = plan_gc(layout, days=0)
    (layout.generation(MODULE, 1) / "late").write_text("mine")
    assert collect(layout, plan) == Collected((), (), (), 0)
    assert (layout.generation(MODULE, 1) / "late").read_text() == "mine"


@no_slurm
def test_what_the_plan_did_not_name_stays(layout: Layout) -> None:
    """It could go by now; but nobody was told that it would."""
    install_several(layout, "abc")
    plan = plan_gc(layout, days=0)
    install(layout, "d")
    assert [old.number for old in collect(layout, plan).generations] == [1]
    assert numbers(layout, MODULE) == (2, 3, 4)


def test_a_directory_that_cannot_be_looked_through_keeps_a_generation(
    tmp_path: Path, ordinary_user: OrdinaryUser
) -> None:
    install(Layout(tmp_path / "prefix"), "a")  # what is imported late may be closed to the user
    layout = Layout(ordinary_user.home / "prefix")

    def do() -> dict[int, str]:
        install(layout, "a")
        (layout.generation(MODULE, 1) / "own").mkdir()
        (layout.generation(MODULE, 1) / "own").chmod(0)
        layout.switch(MODULE).unlink()  # so that nobody tries to carry it over
        install_several(layout, "bc")
        return kept(plan_gc(layout, days=0, ask_jobs=False))

    assert call_as(ordinary_user.user, do)[1] == "it holds files that sifmod did not write: own"


@no_slurm
def test_a_changed_file_keeps_a_generation(layout: Layout) -> None:
    install_several(layout, "abc")
    path = layout.generation(MODULE, 1) / "modulefile.lua"
    path.chmod(0o644)
    path.write_text("mine")
    plan = plan_gc(layout, days=0)
    assert kept(plan)[1] == "files in it were changed by hand: modulefile.lua"
    collect(layout, plan)
    assert path.read_text() == "mine"


def other_link(root: Path) -> str:
    (root / "user-software").unlink()
    (root / "user-software").symlink_to("elsewhere")
    return "user-software"


def file_for_link(root: Path) -> str:
    (root / "user-software").unlink()
    (root / "user-software").write_text("mine")
    return "user-software"


def link_to_the_same(root: Path) -> str:
    (root / "easyconfig.yaml").rename(root.parent / "moved.yaml")
    (root / "easyconfig.yaml").symlink_to(root.parent / "moved.yaml")
    return "easyconfig.yaml"


@no_slurm
@pytest.mark.parametrize("change", [other_link, file_for_link, link_to_the_same])
def test_whatever_was_changed_by_hand_keeps_a_generation(layout: Layout, change: Callable[[Path], str]) -> None:
    install_several(layout, "abc")
    path = change(layout.generation(MODULE, 1))
    before = disk_state(layout.generation(MODULE, 1))
    plan = plan_gc(layout, days=0)
    assert kept(plan)[1] == f"files in it were changed by hand: {path}"
    collect(layout, plan)
    assert disk_state(layout.generation(MODULE, 1)) == before


@no_slurm
@pytest.mark.parametrize("text", [None, "{"])
def test_without_a_receipt_nothing_is_known(layout: Layout, text: str | None) -> None:
    install_several(layout, "abc")
    receipt = layout.generation(MODULE, 1) / RECEIPT
    receipt.unlink()
    if text is not None:
        receipt.write_text(text)
    plan = plan_gc(layout, days=0)
    assert kept(plan)[1] == "its receipt is missing or cannot be read"
    collect(layout, plan)
    assert numbers(layout, MODULE) == (1, 2, 3)
    assert "a" in stored(layout)


@no_slurm
def test_without_a_history_nothing_old_goes(layout: Layout) -> None:
    install_several(layout, "abcd")
    layout.history(MODULE).unlink()
    plan = plan_gc(layout, days=0)
    assert {keep for _, keep in kept(plan).items()} == {"it is not known when it went out of use"}
    collect(layout, plan)
    assert numbers(layout, MODULE) == (1, 2, 3, 4)


@no_slurm
def test_an_image_that_is_nobodys_stays(layout: Layout) -> None:
    install(layout, "a")
    mine = layout.images / f"{'0' * 64}.sif"
    mine.write_text("image mine")
    collect(layout, plan_gc(layout, days=0))
    assert mine.exists()


@no_slurm
def test_an_image_fetched_for_an_install_that_died_stays_for_a_while(layout: Layout) -> None:
    with lock(layout, "image-1", LEASE, nobody) as held:
        sha256, path = put_image(Store(layout, held), "a")
    (old,) = plan_gc(layout).images
    assert old.keep.endswith("kept for 14 days")
    collect(layout, plan_gc(layout))
    assert path.exists()
    stamp = time.time() - 15 * 86400
    os.utime(path.with_suffix(".json"), (stamp, stamp))
    assert [image.sha256 for image in collect(layout, plan_gc(layout)).images] == [sha256]
    assert entries(layout) == ()


@no_slurm
def test_an_image_that_a_run_uses_now_stays(layout: Layout, tmp_path: Path) -> None:
    """Also one that the run has begun to use since the plan was made."""
    with module_lock(tree_of(layout), MODULE) as held:
        _, path = put_image(Store(layout, held.held), "a")
        assert [old.keep for old in plan_gc(layout, days=0).images] == ["another run is using it"]
        (layout.images.parents[1] / ".staging").rename(tmp_path / "away")
        plan = plan_gc(layout, days=0)
        (tmp_path / "away").rename(layout.staging)
        assert [old.keep for old in plan.images] == [""]
        assert collect(layout, plan).images == ()
        assert path.exists()
    assert len(collect(layout, plan).images) == 1


@no_slurm
def test_a_removed_link_releases_the_image(layout: Layout) -> None:
    """As on LUMI: `rm $SIF`, and the site's copy is used; the space is free at once."""
    installation = install(layout, "a")
    (Path(installation.root) / "tiny.sif").unlink()
    done = collect(layout, plan_gc(layout))
    assert [image.sha256 for image in done.images] == [installation.required_image.sha256]
    assert stored(layout) == []


@no_slurm
def test_what_the_user_added_is_never_touched(layout: Layout) -> None:
    install_several(layout, "abc")
    (layout.user_software(MODULE) / "user-software" / "venv").mkdir()
    uninstall(tree_of(layout), MODULE, ALONE)
    collect(layout, plan_gc(layout, days=0))
    assert (layout.user_software(MODULE) / "user-software" / "venv").is_dir()


def test_slurm_without_a_cluster_stops_nothing(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs are installed, and nothing says where a cluster is."""
    install_several(layout, "abc")
    for name in ("SLURM_CONF", "SLURM_CONF_SERVER"):
        monkeypatch.delenv(name, raising=False)
    assert plan_gc(layout, days=0).jobs == Jobs(None)
    assert kept(plan_gc(layout, days=0)) == {1: "", 2: "`sifmod rollback` would restore it"}


def test_when_slurm_cannot_be_asked_everything_stays(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_several(layout, "abc")
    uninstall(tree_of(layout), MODULE, ALONE)
    (tmp_path / "slurm.conf").write_text("ClusterName=broken\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    plan = plan_gc(layout, days=0)
    assert "squeue failed" in plan.jobs.unknown
    assert all("may be in use by a job: squeue failed" in keep for keep in kept(plan).values())
    assert set(kept(plan_gc(layout, days=0, ask_jobs=False)).values()) != set(kept(plan).values())
    assert plan_gc(layout, days=0, ask_jobs=False).jobs.unknown == ""
    before = names(layout)
    assert collect(layout, plan) == Collected((), (), (), 0)
    assert names(layout) == before


def test_a_job_submitted_before_a_reinstall_keeps_the_generation(
    layout: Layout, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    install(layout, "a")
    assert ask_slurm(layout.prefix).unknown == ""
    job = slurm.sbatch(("--hold", "--wrap", "true"))
    time.sleep(1)  # squeue knows whole seconds
    install_several(layout, "bc")
    assert "it may be in use by a job submitted" in kept(plan_gc(layout, days=0))[1]
    slurm.run(("scancel", str(job))).ok()
    slurm.wait(job)
    time.sleep(1)
    later = slurm.sbatch(("--hold", "--wrap", "true"))
    assert kept(plan_gc(layout, days=0))[1] == ""
    assert [old.number for old in collect(layout, plan_gc(layout, days=0)).generations] == [1]
    slurm.run(("scancel", str(later))).ok()


def test_a_job_submitted_before_a_module_retired_keeps_it(
    layout: Layout, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is said to have retired long ago: until now it could be loaded."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    image = Path(install(layout, "a").required_image.path)
    job = slurm.sbatch(("--hold", "--wrap", "true"))
    time.sleep(1)
    retired = NameLife(None, {MODULE.version: Life(retired=Retired(date(2026, 1, 1)))})
    update_life(layout, MODULE.name, lambda _: retired, load_site({}, os.environ).site, Reporter(print))
    assert "it may be in use by a job submitted" in kept(plan_gc(layout, days=0))[1]
    assert collect(layout, plan_gc(layout, days=0)) == Collected((), (), (), 0)
    assert (live_number(layout, MODULE), image.exists()) == (1, True)
    slurm.run(("scancel", str(job))).ok()
    slurm.wait(job)
    assert len(collect(layout, plan_gc(layout, days=0)).images) == 1
    assert (live_number(layout, MODULE), image.exists()) == (None, False)


def test_jobs_that_slurm_hides_count_as_unknown(
    shared_tmp: Path, slurm: Slurm, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """squeue leaves them out without a word; root and SlurmUser see all."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    hidden = "Slurm hides the jobs of other users (PrivateData)" if os.geteuid() == 0 else ""
    text = slurm.configuration.read_text()
    job = slurm.sbatch(("--hold", "--wrap", "true"))
    try:
        slurm.configuration.write_text(f"{text}PrivateData=usage,jobs\n")
        slurm.run(("scontrol", "reconfigure")).ok()
        assert call_as(ordinary_user.user, lambda: ask_slurm(shared_tmp)).unknown == hidden
        assert ask_slurm(shared_tmp).earliest is not None
    finally:
        slurm.configuration.write_text(text)
        slurm.run(("scontrol", "reconfigure")).ok()
        slurm.run(("scancel", str(job))).ok()
    assert call_as(ordinary_user.user, lambda: ask_slurm(shared_tmp)).unknown == ""


def test_only_jobs_of_those_who_can_read_the_tree_count(
    shared_tmp: Path, slurm: Slurm, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    job = slurm.sbatch(("--hold", "--wrap", "true"))  # root's, or the user's who runs the tests
    private = ordinary_user.home / "private"
    private.mkdir()
    (private / "tree").mkdir()
    ordinary_user.own(private)
    private.chmod(0o700)
    assert ask_slurm(shared_tmp).earliest is not None
    assert (ask_slurm(private / "tree").earliest is None) == (os.geteuid() == 0)
    slurm.run(("scancel", str(job))).ok()
