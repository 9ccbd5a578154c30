"""The log of a tree: a line for each change that was made, and for nothing else."""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sifmod import __version__
from sifmod.actions.log import changes, record, record_beside
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree import log as logs
from sifmod.tree.generation import module_lock
from sifmod.tree.layout import Layout
from sifmod.tree.log import Done, Log, append, entry, logged_modules, read_log
from support import outlook
from support.answer import answer
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.members import Members, make_members
from support.tree import ALONE, MODULE, tree_of
from support.trial import Place, make_place
from support.user import OrdinaryUser
from support.victim import Outcome, Victim

Row = tuple[str, str | None, int | None, int | None]
UMASKS = (0o077, 0o022, 0o002)


@pytest.fixture
def place(images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = make_place(images, tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(made.prefix))
    return made


@pytest.fixture
def layout(place: Place) -> Layout:
    return Layout(place.prefix)


def ok(*words: str | Path) -> None:
    assert run([str(word) for word in words]) == 0


def told(*words: str, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `sifmod log --json` prints."""
    rows: list[dict[str, Any]] = answer(capfd, ("log", *words))
    return rows


def rows(layout: Layout) -> list[Row]:
    """What was done, in the order of the log."""
    log = changes(layout)
    assert log.problems == ()
    done = (one.done for one in log.entries)
    return [(one.what, str(one.module) if one.module else None, one.before, one.generation) for one in done]


def test_every_verb_that_changes_something_writes_a_line(place: Place, layout: Layout, images: Images) -> None:
    module = "Tiny/1.0"
    ok(*place.install("a"))
    ok(*place.install("b"))
    ok(*place.install("b"), "--module-only")
    layout.switch(MODULE).joinpath("tiny.sif").unlink()
    ok(*place.install("b"))
    ok("rollback", module)
    ok("uninstall", module)
    ok("rollback", module)
    ok("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs")
    ok("uninstall", "--purge", "--ignore-jobs", module)
    assert rows(layout) == [
        ("installed", module, None, 1),
        ("installed", module, 1, 2),
        ("rendered", module, 2, 3),
        ("restored", module, 3, 3),
        ("rolled back", module, 3, 2),
        ("held", module, 3, None),
        ("uninstalled", module, 2, None),
        ("rolled back", module, None, 2),
        ("removed", module, 1, None),
        ("removed", None, None, None),
        ("uninstalled", module, 2, None),
        ("removed", module, 2, None),
        ("removed", module, 3, None),
        ("removed", None, None, None),
    ]
    assert not layout.software.exists()
    source = f"oci:{images.tiny_layout()}"
    ok("fetch", source)
    ok("fetch", source)
    ok("install", "--fetch", place.directory / "a" / "Tiny-1.0.yaml")
    (layout.partials / "0123456789abcdef").mkdir(parents=True)
    ok("gc", "--yes", "--now", "--ignore-jobs")
    images_then = [one.done for one in changes(layout).entries][14:]
    assert [(one.what, bool(one.sha256), one.size) for one in images_then[:2]] == [
        ("fetched", True, images_then[0].size),
        ("fetched", True, images.tiny("crash-a").stat().st_size),
    ]
    assert sorted((one.what, bool(one.sha256)) for one in images_then[2:]) == [
        ("removed", False),
        ("removed", True),
        ("removed", True),
    ]


def test_a_line_says_when_who_where_and_how(
    place: Place, layout: Layout, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    source = images.tiny("crash-c")
    words = [*map(str, place.install("a")), f"--source={source}"]
    ok(*words)
    (row,) = told(capfd=capfd)
    assert row["command"] == " ".join(["sifmod", *words])
    assert (row["uid"], row["host"], row["sifmod"]) == (os.geteuid(), os.uname().nodename, __version__)
    image = json.loads((layout.generation(MODULE, 1) / "receipt.json").read_text())["image"]["sha256"]
    assert (row["what"], row["module"], row["before"], row["generation"], row["sha256"]) == (
        "installed",
        "Tiny/1.0",
        None,
        1,
        image,
    )
    assert row["time"].startswith("20")
    assert row["time"].endswith("Z")
    written = json.loads(layout.log(MODULE).read_text())
    assert (written.pop("from"), written.pop("to"), written.pop("image")) == (None, 1, image)
    assert written.items() <= row.items()


def test_the_table_has_the_newest_last(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    for tag in "ab":
        ok(*place.install(tag))
    ok("uninstall", "--purge", "--ignore-jobs", "Tiny")
    capfd.readouterr()
    ok("log")
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert ["".join(line.split("  ")[3:4]).strip() for line in lines[:3]] == [
        "installed Tiny/1.0, generation 1",
        "installed Tiny/1.0, generation 2 (was 1)",
        "uninstalled Tiny/1.0, generation 2",
    ]
    assert "removed image " in lines[-1]
    assert lines[-1].endswith("  sifmod uninstall --purge --ignore-jobs Tiny")
    ok("log", "Tiny")
    assert capfd.readouterr().out.splitlines() == [line for line in lines if " image " not in line]


def write(layout: Layout, done: Done) -> None:
    """As a verb does that has made a change."""
    assert done.module is not None
    with module_lock(tree_of(layout), done.module) as held:
        record(layout, done, held.held, ALONE)


@pytest.mark.parametrize("tree", ["there", "not there"])
def test_where_nothing_is_recorded(place: Place, tree: str, capfd: pytest.CaptureFixture[str]) -> None:
    """As `list` says it: success, and a line on standard error."""
    if tree == "there":
        place.prefix.mkdir()
    unknown = "== warning: no change of X is recorded\n== warning: no change of Y/1 is recorded\n"
    for words, said in ((["log"], "no changes are recorded here\n"), (["log", "X", "Y/1"], unknown)):
        assert run(words) == 0
        assert capfd.readouterr() == ("", said)
    assert told(capfd=capfd) == []
    assert place.prefix.exists() == (tree == "there")


def test_a_name_is_that_of_a_module_or_begins_a_version(layout: Layout) -> None:
    for name, version in (("A", "1.0"), ("A", "1.1"), ("A", "1.12"), ("AB", "1.0")):
        write(layout, Done("installed", ModuleName(name, version), None, 1))
    time.sleep(0.002)  # a line has the millisecond
    record_beside(tree_of(layout), Done("removed", size=1), ALONE)

    def found(*names: str) -> list[str]:
        return [str(one.done.module) for one in changes(layout, names).entries]

    assert found() == ["A/1.0", "A/1.1", "A/1.12", "AB/1.0", "None"]
    assert found("A") == found("A/") == ["A/1.0", "A/1.1", "A/1.12"]
    assert found("A/1.", "AB", "A") == ["A/1.0", "A/1.1", "A/1.12", "AB/1.0"]
    assert found("A/1.1") == ["A/1.1"]
    assert found("B") == found("") == found("A/..") == []


def test_no_secret_is_recorded(place: Place, layout: Layout, images: Images) -> None:
    """As typed, but for passwords and signatures, however the option is spelled."""
    for source in ("docker://ann:s3cret@host.invalid/x", "https://host.invalid/x.sif?X-Amz-Signature=s3cret"):
        easyconfig = place.directory / "two.yaml"
        easyconfig.write_text(
            f"name: Two\nversion: '1.0'\nimage: {{sources: ['{source}'], filename: t.sif}}\nwrappers: []\n"
        )
        sif = str(images.tiny("crash-a"))
        run(
            [
                "install",
                str(easyconfig),
                f"--source={source}",
                "--source",
                source,
                "--source",
                sif,
                "--skip-sanity-check",
            ]
        )
    written = layout.log(ModuleName("Two", "1.0")).read_text()
    assert written.count("host.invalid/x") >= 2
    assert "s3cret" not in written


def test_what_changes_nothing_is_not_recorded(place: Place, layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    ok(*place.install("a"))
    ok(*place.install("b"))
    easyconfig = place.directory / "b" / "Tiny-1.0.yaml"
    before = disk_state(layout.logs)
    for words in (
        place.install("b"),
        (*place.install("a"), "--dry-run"),
        (*place.install("a"), "-x"),
        ("install", "--module-only", "--skip-sanity-check"),
        ("list",),
        ("show", "Tiny"),
        ("verify",),
        ("check", easyconfig),
        ("rollback", "Tiny", "--to", "2"),
        ("gc", "--now", "--rollbacks", "--ignore-jobs"),
        ("gc", "--yes", "--ignore-jobs"),
        ("log", "--json"),
    ):
        ok(*words)
    assert disk_state(layout.logs) == before
    ok("uninstall", "Tiny")
    before = disk_state(layout.logs)
    ok("uninstall", "Tiny")
    assert disk_state(layout.logs) == before
    capfd.readouterr()


def test_what_fails_is_not_recorded(place: Place, layout: Layout) -> None:
    assert run([*map(str, place.install("a")), "--source", "/nothing.sif"]) == 10
    easyconfig = place.directory / "a" / "Tiny-1.0.yaml"
    easyconfig.write_text(easyconfig.read_text() + "wrappers: [nothing-of-this-name]\n")
    assert run(["install", str(easyconfig)]) == 22
    assert not layout.logs.exists()
    ok(*place.install("b"))
    before = disk_state(layout.logs)
    layout.module_file(MODULE, "lua").write_text("mine")
    assert run(["uninstall", "Tiny"]) == 18
    assert run([*map(str, place.install("c"))]) == 18
    assert run(["rollback", "Tiny", "--to", "7"]) == 24
    assert disk_state(layout.logs) == before


def test_a_long_command_is_cut(layout: Layout) -> None:
    for command in ("x" * 10_000, "\U0001f600" * 999, "a\n\x1b]0;b\x07\udcff"):
        append(layout, entry(Done("installed", MODULE, None, 10**17, "0" * 64), command))
    lines = layout.log(MODULE).read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    assert all(len(line) <= logs.LONGEST and line.isascii() for line in lines)
    log = read_log(layout, MODULE)
    assert log.problems == ()
    assert [one.command[-1] for one in log.entries] == ["…", "…", "f"]
    assert log.entries[2].command == r"a\n\x1b]0;b\x07\udcff"


def test_lines_of_runs_at_once_are_all_there(layout: Layout) -> None:
    """Of a module under its lock, which the test stands for by a file each, and of the store under its own."""
    children = []
    for number in range(6):
        if (child := os.fork()) == 0:
            code = 1
            try:
                for count in range(20):
                    record_beside(tree_of(layout, 60.0, print), Done("removed", size=100 * number + count), ANYBODY)
                    write(layout, Done("installed", ModuleName("M", str(number)), count, count + 1))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    log = changes(layout)
    assert log.problems == ()
    sizes = [one.done.size for one in log.entries if one.done.module is None]
    assert sorted(size for size in sizes if size is not None) == [100 * n + c for n in range(6) for c in range(20)]
    assert len(log.entries) == 240
    assert [str(module) for module in logged_modules(layout)[0]] == [f"M/{number}" for number in range(6)]


ANYBODY = type(ALONE)(lambda text: None)  # noqa: ARG005


@pytest.fixture
def members(shared_tmp: Path, ordinary_user: OrdinaryUser) -> Members:
    return make_members(shared_tmp, ordinary_user)


def test_each_member_of_a_group_writes_whatever_the_umask(images: Images, members: Members) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run commands as different users")
    place = make_place(images, members.home.parent)
    members.prefix.rename(place.prefix)
    with Victim(place.env) as victim:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
        for number, umask in enumerate((*UMASKS, *UMASKS)):
            user = (members.ann, members.bob)[number % 2]
            for words in (
                (*place.install("abc"[number % 3]), "--rebuild", "--source", images.tiny("crash-a")),
                ("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs", "--prefix", place.prefix),
            ):
                outcome = victim.run(words, who=(user.uid, user.gid, umask))
                assert outcome.code == 0, outcome.stderr
                assert "warning" not in outcome.stderr
        layout = Layout(place.prefix)
        done = [(one.uid, one.done.what) for one in changes(layout).entries]
        both = [members.ann.uid, members.bob.uid]
        assert [uid for uid, what in done if what == "installed"] == both * 3
        assert [uid for uid, what in done if what == "removed"] == (both * 3)[1:]
        assert {path.stat().st_mode & 0o777 for path in layout.logs.rglob("*.log")} == {0o664}
        assert {path.stat().st_gid for path in layout.logs.rglob("*")} == {members.ann.gid}
        reader = (members.bob.uid + 7, members.bob.gid + 7, 0o022)
        before = disk_state(layout.logs)
        for words in (("log", "--prefix", place.prefix), ("log", "Tiny", "--json", "--prefix", place.prefix)):
            assert victim.run(words, who=reader).stderr == ""
        assert disk_state(layout.logs) == before


def closed(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    file.chmod(0o444)
    os.chown(file, 4321, -1)


def closed_directory(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.parent.chmod(0o555)
    os.chown(file.parent, 4321, -1)


@pytest.mark.parametrize("close", [closed, closed_directory])
def test_a_log_that_cannot_be_written_is_one_warning(
    images: Images, members: Members, close: Callable[[Path], None]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    place = make_place(images, members.home.parent)
    members.prefix.rename(place.prefix)
    layout = Layout(place.prefix)
    for file in (layout.log(MODULE), layout.log(None)):
        close(file)
    module = ("Tiny/1.0", "--prefix", place.prefix)
    who = (members.bob.uid, members.bob.gid, 0o022)
    with Victim(place.env) as victim:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
        for words in (
            place.install("a"),
            place.install("b"),
            ("rollback", *module),
            ("uninstall", *module),
            ("gc", "--yes", "--now", "--ignore-jobs", "--prefix", place.prefix),
        ):
            outcome = victim.run(words, who=who)
            assert outcome.code == 0, outcome.stderr
            assert outcome.stderr.count("warning: the change was made but not logged: ") == 1, outcome.stderr
            assert "Permission denied" in outcome.stderr
    assert not layout.software.exists()
    assert list(layout.staging.iterdir()) == []
    assert changes(layout).entries == ()


def test_a_line_that_was_not_written_to_its_end_is_ended_first(layout: Layout) -> None:
    write(layout, Done("installed", MODULE, None, 1))
    with layout.log(MODULE).open("a") as file:
        file.write('{"time": "2026-')
    write(layout, Done("installed", MODULE, 1, 2))
    log = read_log(layout, MODULE)
    assert [one.done.generation for one in log.entries] == [1, 2]
    assert log.problems == (f"1 line of the log {layout.log(MODULE)} cannot be read",)


@dataclass(frozen=True)
class Reinstall:
    """Build b over build a, again and again, in memory, where fsyncs cost nothing."""

    place: Place
    victim: Victim
    start: Path
    steps: int

    def run(self, how: str, step: int) -> Outcome:
        """Disturbed at this step."""
        outlook.copy(self.start, self.place.prefix)
        return self.victim.run(self.place.install("b"), how, step)

    @property
    def live(self) -> str | None:
        return outlook.live_number(self.place.prefix)

    @property
    def log(self) -> Log:
        return read_log(Layout(self.place.prefix), MODULE)


@pytest.fixture(scope="module")
def reinstall(images: Images) -> Iterator[Reinstall]:
    with TemporaryDirectory(dir="/dev/shm", prefix="sifmod-tests-") as directory:
        place = make_place(images, Path(directory))
        with Victim(place.env) as victim:
            assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
            assert victim.run(place.install("a")).code == 0
            start = place.directory / "start"
            outlook.copy(place.prefix, start)
            yield Reinstall(place, victim, start, victim.run(place.install("b")).steps)


def test_a_killed_run_leaves_a_log_that_is_true(reinstall: Reinstall) -> None:
    """The line comes just after the change: a kill between the two loses the line, and none is ahead of its change."""
    found = set()
    for step in range(reinstall.steps - 50, reinstall.steps + 1):
        assert reinstall.run("killed", step).code == -9
        log, live = reinstall.log, reinstall.live
        assert log.problems == ()
        recorded = tuple(one.done.generation for one in log.entries)
        found.add((live, recorded))
        if step % 5 == 0:
            outcome = reinstall.victim.run(reinstall.place.install("c"))
            assert outcome.code == 0, outcome.stderr
            assert reinstall.log.entries[-1].done[2:4] == (int(live or 0), int(reinstall.live or 0))
    assert found == {("1", (1,)), ("2", (1,)), ("2", (1, 2))}


def test_a_full_disk_takes_the_line_and_not_the_change(reinstall: Reinstall) -> None:
    """At every write the disk may be full: the verb fails and says so, or is done and at most the line is missing."""
    warned = 0
    for step in range(reinstall.steps - 50, reinstall.steps + 1):
        outcome = reinstall.run("failing", step)
        recorded = [one.done.generation for one in reinstall.log.entries]
        if "not logged" in outcome.stderr:
            warned += 1
            assert outcome.stderr.count("warning:") == 1
            assert "unchanged" not in outcome.stderr
            assert (outcome.code, reinstall.live) == (0, "2")
        else:
            assert recorded == ([1, 2] if outcome.code == 0 else [1])
    assert warned


def test_the_log_is_of_the_modes_that_the_prefix_has(place: Place, layout: Layout, ordinary_user: OrdinaryUser) -> None:
    place.prefix.mkdir(mode=0o700)
    before = os.umask(0o002)
    try:
        ok(*place.install("a"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(layout.log(MODULE).stat().st_mode) == 0o600
    assert stat.S_IMODE(layout.logs.stat().st_mode) == 0o700
    if os.geteuid() == 0:
        assert call_as(ordinary_user.user, lambda: os.access(layout.logs, os.R_OK)) is False
