"""default, hide, deprecate and retire: what is on disk after them, after a kill, after an uninstall and after a gc."""

import json
import os
import time
from datetime import date, timedelta
from pathlib import Path

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.actions.life import change_life, update_life
from sifmod.actions.reporter import Reporter
from sifmod.actions.rollback import rollback
from sifmod.actions.spider_cache import refresh_spider_cache
from sifmod.actions.start import site_in_force
from sifmod.actions.uninstall import uninstall
from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import ModuleError, OptionError
from sifmod.tree.layout import Layout
from sifmod.tree.life import Deprecated, Life, NameLife, Retired, read_life, today
from sifmod.tree.receipt import live_number
from sifmod.tree.write_life import commands, is_ours
from support.config import write
from support.disk_state import disk_state
from support.steps import some
from support.tree import ALONE, MODULE, install, names, tree_of
from support.victim import Victim

OTHER = ModuleName("Tiny", "2.0")
TODAY = today()
LONG_AGO = TODAY - timedelta(days=30)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "prefix")
    for tag, module in (("a", MODULE), ("b", OTHER)):
        install(made, tag, module, syntaxes=("lua", "tcl"))
    return made


@pytest.fixture
def site(layout: Layout) -> Site:
    return site_in_force({"prefix": str(layout.prefix)}).site


def decide(layout: Layout, version: str, life: Life) -> None:
    update_life(
        layout, "Tiny", lambda before: before.with_life(version, life), load_site({}, os.environ).site, Reporter(print)
    )


def verb(layout: Layout, *words: str) -> int:
    return run([*words, "--prefix", str(layout.prefix)])


def test_a_change_is_made_once_and_logged(layout: Layout, site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = NameLife("2.0", {"1.0": Life(retired=Retired(TODAY, "Tiny/2.0")), "2.0": Life(labels=(("team", "ai"),))})
    before = names(layout)
    told: list[str] = []
    assert change_life(layout, "Tiny", wanted, site, Reporter(told.append)).changed
    assert told == []
    added = {"life", "life/Tiny", "life/Tiny/.life.json", "life/Tiny/1.0"}
    assert names(layout) - before == {*added, "modules/Tiny/.modulerc.lua", "modules/Tiny/.modulerc"}
    after = disk_state(layout.prefix / "life", layout.modules, layout.logs)
    assert not change_life(layout, "Tiny", wanted, site, ALONE).changed
    assert disk_state(layout.prefix / "life", layout.modules, layout.logs) == after
    assert verb(layout, "log") == 0
    said = capfd.readouterr().out
    for line in ("retired Tiny/1.0, generation 1", "labelled Tiny/2.0, generation 1", "made the default Tiny/2.0"):
        assert said.count(line) == 1
    assert str(layout.prefix).encode() not in b"".join(
        path.read_bytes() for path in (*layout.modules.glob("*/.mod*"), *layout.lives("Tiny").iterdir())
    )
    assert change_life(layout, "Tiny", NameLife(), site, ALONE).changed
    stay = {"modules/Tiny/.modulerc.lua", "modules/Tiny/.modulerc"}  # Lmod may be reading the directory
    assert names(layout) == before | stay
    assert {path: commands((layout.prefix / path).read_text()) for path in stay} == dict.fromkeys(stay, ())
    for module in (MODULE, OTHER):
        uninstall(tree_of(layout), module, ALONE)
    assert not (layout.modules / "Tiny").exists()


def test_what_cannot_be_logged_is_made_all_the_same(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """Here the lock of the module cannot be taken; the error said that nothing had changed."""
    (layout.prefix / ".locks" / "Tiny@1.0").rename(layout.prefix / "away")
    (layout.prefix / ".locks" / "Tiny@1.0").touch()
    capfd.readouterr()
    assert verb(layout, "hide", "Tiny/1.0") == 0
    said = capfd.readouterr().err
    assert "warning: the change was made but not logged: cannot lock Tiny/1.0: Not a directory" in said
    assert "Tiny/1.0: hidden\n" in said
    assert verb(layout, "list") == 0
    assert "hidden" in capfd.readouterr().out


def test_the_verbs(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("default", "Tiny/2.0"),
        ("deprecate", "Tiny/1.0", "--since", "2026-01-02", "--until", "2999-03-31", "--message", "use 2.0"),
        ("hide", "Tiny/1.0"),
    ):
        assert verb(layout, *words) == 0
    decided = Life(hidden=True, deprecated=Deprecated(date(2026, 1, 2), date(2999, 3, 31), "use 2.0"))
    assert read_life(layout, "Tiny") == NameLife("2.0", {"1.0": decided})
    assert verb(layout, "list") == 0
    _, first, second = capfd.readouterr().out.splitlines()
    assert first.endswith("hidden, retires 2999-04-01, deprecated")
    assert second.endswith("default")
    assert verb(layout, "retire", "Tiny/1.0", "--successor", "Tiny/2.0") == 0
    assert verb(layout, "list", "1.0") == 0
    assert capfd.readouterr().out.rstrip().endswith(f"retired since {TODAY}, use Tiny/2.0")
    for words in (("retire", "1.0"), ("deprecate", "1.0"), ("hide", "1.0")):
        assert verb(layout, words[0], f"Tiny/{words[1]}", "--undo") == 0
    assert verb(layout, "default", "--none", "Tiny") == 0
    assert not layout.life("Tiny").exists()
    there = [path.name for path in sorted((layout.modules / "Tiny").iterdir())]
    assert there == [".modulerc", ".modulerc.lua", "1.0", "1.0.lua", "2.0", "2.0.lua"]


def test_a_repeated_verb_takes_nothing_back(layout: Layout) -> None:
    """What it does not say again stays: the last day, the reason and the successor."""
    assert (
        verb(layout, "deprecate", "Tiny/1.0", "--since", "2026-01-02", "--until", "2999-03-31", "--message", "a") == 0
    )
    assert verb(layout, "deprecate", "Tiny/1.0", "--message", "b") == 0
    assert verb(layout, "retire", "Tiny/1.0", "--since", "2999-01-02", "--successor", "Tiny/2.0", "--message", "c") == 0
    decided = read_life(layout, "Tiny").of("1.0")
    assert decided.deprecated == Deprecated(date(2026, 1, 2), date(2999, 3, 31), "b")
    for words in (("retire",), ("deprecate",)):
        assert verb(layout, *words, "Tiny/1.0") == 0
    assert read_life(layout, "Tiny").of("1.0") == decided
    assert verb(layout, "retire", "Tiny/1.0", "--undo") == 0
    assert verb(layout, "retire", "Tiny/1.0") == 0
    assert read_life(layout, "Tiny").of("1.0").retired == Retired(TODAY)


def test_a_module_whose_last_day_is_over_is_retired(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    assert verb(layout, "deprecate", "Tiny/1.0", "--since", "2026-01-02", "--until", "2026-01-03") == 0
    assert verb(layout, "default", "Tiny/1.0") == 2
    assert "cannot be the default: Tiny/1.0 was retired on 2026-01-04" in capfd.readouterr().err
    assert verb(layout, "retire", "--undo", "Tiny/1.0") == 0
    assert read_life(layout, "Tiny").of("1.0") == Life(deprecated=Deprecated(date(2026, 1, 2)))
    assert verb(layout, "default", "Tiny/1.0") == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("hide", "Tiny/3.0"), 24, "no module is called `Tiny/3.0`"),
        (("hide", "Tiny/1.0", "Tiny/3.0"), 24, "no module is called `Tiny/3.0`"),
        (("retire", "Tiny/1.0", "--successor", "Tiny/3.0"), 24, "no module is called `Tiny/3.0`"),
        (("retire", "Tiny/1.0", "--successor", "Tiny/1.0"), 2, "cannot be its own successor"),
        (("retire", "Tiny/1.0", "--message", "a\x1b[2Jb"), 2, "a text must be one line"),
        (("retire", "Tiny/1.0", "--undo", "--message", "x"), 2, "--undo cannot be combined with"),
        (("deprecate", "Tiny/1.0", "--until", "2026-02-30"), 2, "such as 2027-03-31, got '2026-02-30'"),
        (("deprecate", "Tiny/1.0", "--until", "9999-12-31"), 2, "expected a day of 2000 to 2999, such as 2027-03-31"),
        (("retire", "Tiny/1.0", "--since", "1969-12-01"), 2, "expected a day of 2000 to 2999, such as 2027-03-31"),
        (("deprecate", "Tiny/1.0", "--until", "20270331"), 2, "expected a day of 2000 to 2999, such as 2027-03-31"),
        (("deprecate", "Tiny/1.0", "--until", "2020-01-01"), 2, "which is before"),
        (("retire", "Tiny/1.0", "--message", "https://me:a b@h/x"), 2, "the message contains a login or token"),
        (("deprecate", "Tiny/1.0", "--message", "at https://h/x?token=a"), 2, "the message contains a login or token"),
        (("deprecate", "Tiny/1.0", "--message", "x" * 501), 2, "at most 500 printable characters"),
        (("hide", "Tiny/2.0"), 2, "cannot be the default and hidden"),
        (("retire", "Tiny/2.0"), 2, "cannot be the default and retired"),
    ],
)
def test_what_cannot_be_decided(
    layout: Layout, words: tuple[str, ...], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert verb(layout, "default", "Tiny/2.0") == 0
    before = disk_state(layout.prefix)
    assert verb(layout, *words) == code
    assert said in " ".join(capfd.readouterr().err.split())
    assert disk_state(layout.prefix) == before


def test_what_a_stack_cannot_want(layout: Layout, site: Site) -> None:
    before = names(layout)
    for wanted, kind in (
        (NameLife("3.0"), ModuleError),
        (NameLife("1.0", {"1.0": Life(hidden=True)}), OptionError),
    ):
        with pytest.raises(kind):
            change_life(layout, "Tiny", wanted, site, ALONE)
        assert names(layout) == before


@pytest.mark.parametrize("edited", [False, True])
def test_a_file_of_others_is_kept_and_told(layout: Layout, edited: bool, capfd: pytest.CaptureFixture[str]) -> None:
    mine = layout.modules / "Tiny" / ".modulerc.lua"
    if edited:
        assert verb(layout, "default", "Tiny/1.0") == 0
    text = mine.read_text() + "-- mine\n" if edited else 'module_version("Tiny/1.0", "default")\n'
    mine.write_text(text)
    assert verb(layout, "default", "Tiny/2.0") == 0
    said = capfd.readouterr().err
    assert f"{mine} was edited or not written by sifmod, so it was kept; it needs these lines:\n" in said
    assert '  module_version("Tiny/2.0", "default")\n' in said
    assert mine.read_text() == text
    assert is_ours(mine.with_name(".modulerc").read_bytes())
    assert verb(layout, "uninstall", "Tiny/2.0") == 0
    assert mine.read_text() == text
    assert commands(mine.with_name(".modulerc").read_text()) == ()


def test_a_link_in_the_place_of_a_file_is_kept(layout: Layout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.write_text("mine")
    link = layout.modules / "Tiny" / ".modulerc"
    link.symlink_to(elsewhere)
    assert verb(layout, "hide", "Tiny/1.0") == 0
    assert (os.readlink(link), elsewhere.read_text()) == (str(elsewhere), "mine")


def test_uninstall_forgets_and_rollback_leaves(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    install(layout, "c", OTHER)
    assert verb(layout, "default", "Tiny/2.0") == 0
    decide(layout, "1.0", Life(hidden=True))
    decided = read_life(layout, "Tiny")
    rollback(tree_of(layout), OTHER, None, ALONE)
    assert read_life(layout, "Tiny") == decided
    assert verb(layout, "uninstall", "Tiny/2.0") == 0
    assert "Tiny/2.0: it was the default; `sifmod default`" in capfd.readouterr().err
    assert read_life(layout, "Tiny") == NameLife(None, decided.versions)
    assert not uninstall(tree_of(layout), MODULE, ALONE).default
    assert not (layout.prefix / "life").exists()
    assert list(layout.modules.iterdir()) == []


def test_what_comes_and_goes_is_written_for_its_module_system(layout: Layout) -> None:
    """A reinstall with other modulefiles, and the uninstall of the last of them, by the functions of the tree."""
    install(layout, "c", MODULE)
    install(layout, "d", OTHER)
    decide(layout, "1.0", Life(hidden=True))
    there = {path.name for path in (layout.modules / "Tiny").glob(".*")}
    assert there == {".modulerc.lua"}
    install(layout, "e", OTHER, syntaxes=("tcl",))
    assert {path.name for path in (layout.modules / "Tiny").glob(".*")} == {".modulerc.lua", ".modulerc"}


def test_changes_at_once_are_all_made(layout: Layout) -> None:
    children = []
    for version in ("1.0", "2.0", "3.0", "4.0"):
        if (child := os.fork()) == 0:
            decide(layout, version, Life(hidden=True))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert read_life(layout, "Tiny").versions.keys() == {"1.0", "2.0", "3.0", "4.0"}
    assert (layout.modules / "Tiny" / ".modulerc.lua").read_text().count("hide_version") == 4


def test_killed_at_any_step_it_is_as_before_or_whole(layout: Layout, tmp_path: Path) -> None:
    """The next run of any verb writes what is missing."""
    env = {"HOME": str(tmp_path), "SIFMOD_SITE": "generic", "PATH": "/none", "SIFMOD_CONFIG_DIR": "/none"}
    words = ("retire", "Tiny/1.0", "--prefix", layout.prefix)
    undone = (*words, "--undo")
    with Victim(env) as victim:
        whole = victim.run(words)
        assert whole.code == 0
        new = names(layout) | {"log"}
        found = set()
        for step in some(whole.steps - 45, whole.steps, 9):
            assert victim.run(undone).code == 0
            old = names(layout)
            assert victim.run(words, "killed", step).code == -9
            assert victim.run(("gc", "--yes", "--prefix", layout.prefix)).code == 0
            seen = names(layout) - {".staging"}
            assert seen in (old - {".staging"}, new - {".staging", "log"})
            found.add(len(seen))
    assert len(found) == 2


def test_gc_ends_a_retired_module_after_its_time(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    image = Path(install(layout, "c").required_image.path)
    decide(layout, "1.0", Life(retired=Retired(TODAY - timedelta(days=3), "Tiny/2.0")))
    os.utime(layout.lives("Tiny") / "1.0", (0, 0))
    kept = [old.keep for old in plan_gc(layout, ask_jobs=False).generations]
    assert len(kept) == 2
    assert kept[1] == f"out of use since {TODAY - timedelta(days=3)}, kept for 14 days"
    decide(layout, "1.0", Life(retired=Retired(LONG_AGO, "Tiny/2.0")))
    (now,) = {old.keep for old in plan_gc(layout, ask_jobs=False).generations[1:]}
    assert now == f"out of use since {TODAY}, kept for 14 days"  # when it was refused, whatever is said of it
    os.utime(layout.lives("Tiny") / "1.0", (0, 0))  # as if that had been decided then
    root = layout.generation(MODULE, 2)
    root.chmod(0o755)
    (root / "notes.txt").write_text("mine")
    assert "notes.txt" in plan_gc(layout, ask_jobs=False).generations[1].keep
    (root / "notes.txt").unlink()
    apply_gc(tree_of(layout), plan_gc(layout, ask_jobs=False), ALONE)
    assert (live_number(layout, MODULE), root.exists()) == (None, False)
    apply_gc(tree_of(layout), plan_gc(layout, 0.0, ask_jobs=False), ALONE)  # the image came today
    assert not image.exists()
    assert live_number(layout, OTHER) == 1
    assert [path.name for path in (layout.modules / "Tiny").glob("2*.lua")] == ["2.0.lua"]
    capfd.readouterr()
    assert verb(layout, "add", "Tiny/1.0", "numpy") == 24
    assert f"Tiny/1.0 was retired on {LONG_AGO}: use Tiny/2.0; `sifmod add Tiny/1.0 --onto Tiny/2.0`" in " ".join(
        capfd.readouterr().err.split()
    )


def test_a_damaged_file_stops_nothing_but_its_change(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    layout.life("Tiny").parent.mkdir(parents=True)
    layout.life("Tiny").write_text("{")
    assert verb(layout, "hide", "Tiny/1.0") == 18
    assert "move it away" in capfd.readouterr().err
    assert verb(layout, "list") == 0
    assert capfd.readouterr().out.count("is invalid") == 2
    assert verb(layout, "gc", "--ignore-jobs") == 0
    assert verb(layout, "show", "Tiny/1.0") == 0
    assert f"warning: {layout.life('Tiny')} is invalid" in capfd.readouterr().err
    assert layout.life("Tiny").read_text() == "{"
    before = disk_state(layout.software, layout.modules)
    assert verb(layout, "uninstall", "Tiny/1.0") == 18
    assert disk_state(layout.software, layout.modules) == before


def test_the_spider_cache(tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lmod's own program writes it, after a verb that changed something and not after another."""
    cache, stamp = tmp_path / "cache", tmp_path / "stamps" / "stamp"
    (tmp_path / "site.yaml").write_text(f"name: x\nspider_cache: {{directory: {cache}, timestamp: {stamp}}}\n")
    monkeypatch.setenv("SIFMOD_SITE", str(tmp_path / "site.yaml"))
    assert verb(layout, "hide", "Tiny/1.0") == 0
    assert "Tiny/1.0" in (cache / "spiderT.lua").read_text()
    made = stamp.stat().st_mtime_ns
    time.sleep(0.01)
    assert verb(layout, "hide", "Tiny/1.0") == 0
    assert stamp.stat().st_mtime_ns == made
    stamp.unlink()
    stamp.mkdir(mode=0)
    (tmp_path / "site.yaml").write_text(f"name: x\nspider_cache: {{directory: {stamp / 'x'}, timestamp: {stamp}}}\n")
    site = site_in_force({"prefix": str(layout.prefix)}).site
    told: list[str] = []
    assert not refresh_spider_cache(layout, site, Reporter(told.append))
    assert told[0].startswith("warning: the spider cache was not refreshed: ")
    assert json.loads(layout.life("Tiny").read_text())["versions"] == {"1.0": {"hidden": True}}


@pytest.mark.parametrize("place", ["my tree", "tree[1]", "tree*"])
def test_a_spider_cache_of_a_part_of_the_path_is_not_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lmod's program splits its arguments: the cache was valid, and lacked the modules after the first blank."""
    layout, cache = Layout(tmp_path / place), tmp_path / "cache"
    install(layout, "a", syntaxes=("lua",))
    keys = f"directory: {cache}, timestamp: {cache}/stamp"
    monkeypatch.setenv("SIFMOD_SITE", str(write(tmp_path / "site.yaml", f"name: x\nspider_cache: {{{keys}}}\n")))
    assert verb(layout, "hide", "Tiny/1.0") == 0
    assert "warning: the spider cache was not refreshed: " in capfd.readouterr().err
    assert not cache.exists()
    text = f"name: x\nspider_cache:\n  {keys.replace(', ', chr(10) + '  ')}\n  modulepath: [/a, '/{place}']\n"
    write(tmp_path / "site.yaml", text)
    assert verb(layout, "hide", "Tiny/1.0", "--undo") == 5
    assert "site.yaml:5:20: spider_cache.modulepath[1]: expected a path without blanks" in capfd.readouterr().err


def test_an_error_leaves_no_stale_cache(tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided before it is in the cache, and what a failed after_retire cannot undo."""
    program = write(tmp_path / "lmod/update_lmod_system_cache_files", '#!/bin/sh\ntouch "$4"\necho x >>calls\n')
    hook = write(tmp_path / "hook", "#!/bin/sh\nexit 1\n")
    for file in (program, hook):
        file.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    cache = f"spider_cache: {{directory: {tmp_path}/cache, timestamp: {tmp_path}/cache/stamp}}\n"
    write(tmp_path / "etc-sifmod.d/x.yaml", f"{cache}hooks: {{after_retire: [{hook}]}}\n")
    calls = layout.prefix / "calls"
    assert verb(layout, "default", "Tiny/2.0") == 0
    calls.unlink()
    assert verb(layout, "hide", "Tiny/2.0") == 2
    assert not calls.exists()
    assert verb(layout, "hide", "Tiny/1.0", "Tiny/2.0") == 2
    assert calls.read_text() == "x\n"
    assert verb(layout, "retire", "Tiny/1.0") == 18
    assert calls.read_text() == "x\nx\n"


@pytest.mark.parametrize("words", [("hide", "Tiny/2.0"), ("default", "--none", "Tiny"), ("default", "Tiny/2.0")])
def test_a_default_that_a_full_disk_has_kept_stops_no_later_decision(layout: Layout, words: tuple[str, ...]) -> None:
    """Its module was uninstalled: each later decision about the name was refused, whoever made it."""
    assert verb(layout, "default", "Tiny/1.0") == 0
    kept = layout.life("Tiny").read_bytes()
    assert verb(layout, "uninstall", "Tiny/1.0") == 0
    write(layout.life("Tiny"), kept.decode())
    assert verb(layout, *words) == 0
    assert read_life(layout, "Tiny").default == ("2.0" if words == ("default", "Tiny/2.0") else None)
