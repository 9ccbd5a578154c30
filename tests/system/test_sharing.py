"""A tree that a site shares: two publishers of one group, a user of another, and a stranger, each with a umask."""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from grp import getgrnam
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sifmod.tree.layout import Layout
from sifmod.tree.rights import own_paths
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.layered import make_machine
from support.memory import temporary
from support.steps import some
from support.trial import Place, make_place
from support.victim import Outcome, Victim

GROUP = "staff"
UID = 71_000
CLOSED = {"group": 0o007, "site": 0o002}


@dataclass(frozen=True)
class Machine:
    """The site's tree, and who is on the machine."""

    place: Place
    victim: Victim
    sharing: str

    @property
    def prefix(self) -> Path:
        return self.place.prefix

    def run(self, who: str, *words: str | Path) -> Outcome:
        return self.victim.run(words, who=USERS[who])

    def ok(self, who: str, *words: str | Path) -> str:
        outcome = self.run(who, *words)
        assert outcome.code == 0, outcome.stderr
        return outcome.stderr

    def install(self, tag: str, *words: str | Path) -> tuple[str | Path, ...]:
        return ("install", self.place.directory / tag / "Tiny-1.0.yaml", "--skip-sanity-check", *words)

    def own(self, who: str) -> Path:
        """A prefix of a user's own."""
        home = self.place.directory / f"home-{who}"
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, USERS[who][0], USERS[who][1])
        return home / "sifmod"


def as_promised(prefix: Path, sharing: str) -> None:
    """Every file and directory has its group and its modes."""
    open_to, gid = ~CLOSED[sharing], getgrnam(GROUP).gr_gid
    for path in (prefix, *prefix.rglob("*")):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        assert status.st_gid == gid, path
        if path.name == "marks":
            assert mode == (0o1777 if sharing == "site" else 0o1770)
        elif path.is_dir() and not path.is_symlink():
            assert mode | 0o200 == 0o2777 & open_to, (path, oct(mode))
        elif not path.is_symlink():
            assert mode in {open_to & each for each in (0o666, 0o777, 0o444, 0o555)}, (path, oct(mode))


def _groups() -> dict[str, tuple[int, ...]]:
    staff, users, nobody = (getgrnam(name).gr_gid for name in (GROUP, "users", "nogroup"))
    return {
        "ann": (UID, users, 0o077, staff),
        "bob": (UID + 1, users, 0o002, staff),
        "uma": (UID + 2, users, 0o022),
        "sam": (UID + 3, nobody, 0o022),
        "ann before she joined": (UID, users, 0o022),
    }


USERS = _groups()


@pytest.fixture(scope="module")
def started(images: Images) -> Iterator[tuple[Place, Victim]]:
    """Three easyconfigs of one module, and sifmod."""
    if os.geteuid() != 0:
        pytest.skip("only root can run commands as users of two groups")
    with TemporaryDirectory(dir=temporary(), prefix="sifmod-test-", ignore_cleanup_errors=True) as directory:
        place = make_place(images, Path(directory))
        for tag in "abc":
            sif = place.directory / f"{tag}.sif"
            sif.write_bytes(images.tiny(f"crash-{tag}").read_bytes())
            easyconfig = place.directory / tag / "Tiny-1.0.yaml"
            easyconfig.write_text(easyconfig.read_text().replace(str(images.tiny(f"crash-{tag}")), str(sif)))
        Path(place.env["SIFMOD_CONFIG_DIR"]).mkdir()
        place.directory.chmod(0o1777)
        with Victim(place.env) as victim:
            assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
            yield place, victim


@pytest.fixture
def machine(started: tuple[Place, Victim], request: pytest.FixtureRequest) -> Iterator[Machine]:
    place, victim = started
    sharing = getattr(request, "param", "site")
    settings = Path(place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    settings.write_text(f"sharing: {sharing}\ngroup: {GROUP}\nprefix: {place.prefix}\n")
    before = set(place.directory.iterdir())
    yield Machine(place, victim, sharing)
    for path in set(place.directory.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


BOTH = pytest.mark.parametrize("machine", ["site", "group"], indirect=True)


@BOTH
def test_each_verb_leaves_what_was_promised(machine: Machine) -> None:
    """Whoever of the group goes on; the others change nothing."""
    for who, words in (
        ("ann", machine.install("a")),
        ("bob", machine.install("b")),
        ("ann", ("fetch", machine.place.directory / "c.sif")),
        ("bob", ("rollback", "Tiny/1.0")),
        ("ann", ("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs")),
        ("bob", machine.install("a", "--rebuild")),
        ("bob", ("uninstall", "Tiny/1.0")),
        ("bob", ("rollback", "--release", "Tiny/1.0")),
        ("ann", machine.install("b")),
        ("ann", ("uninstall", "--purge", "--ignore-jobs", "Tiny/1.0")),
        ("bob", machine.install("a")),
    ):
        machine.ok(who, *words)
        as_promised(machine.prefix, machine.sharing)
    assert machine.ok("bob", "verify", "--modes") == ""
    before = disk_state(machine.prefix)
    for who in ("uma", "sam"):
        for words in (machine.install("b"), ("uninstall", "Tiny/1.0"), ("gc", "--yes", "--now", "--ignore-jobs")):
            refused = machine.run(who, *words)
            assert refused.code == 25 or (words[0] == "gc" and machine.sharing == "site"), refused.stderr
    assert disk_state(machine.prefix) == before
    for who in ("uma", "sam"):
        read = machine.run(who, "verify", "Tiny")
        assert (read.code == 0) == (machine.sharing == "site"), read.stderr


@BOTH
def test_a_tree_that_was_made_otherwise_is_told_and_repaired(machine: Machine) -> None:
    """By root, of what sifmod has made; what a user has put there, and what is above, stays as it is."""
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    text = settings.read_text()
    settings.write_text(f"prefix: {machine.prefix}\n")
    machine.ok("ann", *machine.install("a"))
    added = machine.prefix / "user-software/Tiny/1.0/user-software/venv"
    added.mkdir(mode=0o700)
    foreign = machine.prefix / "modules" / "Tiny" / ".modulerc.lua"
    foreign.write_text("-- by hand")
    os.link(next(machine.prefix.glob("images/sha256/*.sif")), machine.place.directory / "linked.sif")
    untouched = (added, foreign, machine.place.directory, *machine.prefix.glob("images/sha256/*.sif"))
    before = [path.stat() for path in untouched]
    settings.write_text(text)
    said = machine.ok("ann", *machine.install("b"))
    assert f"{machine.prefix} is drwx------ of the group users" in said
    assert "`sifmod verify --repair-modes` by its owner corrects it" in said
    assert machine.run("ann", "verify", "--modes").code == 1
    assert machine.run("bob", "verify", "--repair-modes").code == 25
    root = machine.victim.run(("verify", "--repair-modes"), who=(0, 0, 0o077))
    assert root.code == 0, root.stderr
    assert machine.ok("bob", "verify", "--modes") == ""
    assert [(one.st_mode, one.st_uid, one.st_gid) for one in before] == [
        (one.st_mode, one.st_uid, one.st_gid) for one in (path.stat() for path in untouched)
    ]
    machine.ok("bob", "rollback", "Tiny/1.0")
    machine.ok("bob", "gc", "--yes", "--now", "--rollbacks", "--ignore-jobs")


def everything(machine: Machine) -> list[tuple[str | Path, ...]]:
    """Command lines that between them write each kind of file that sifmod has in a tree."""
    stack = machine.place.directory / "a" / "two words.yaml"
    if not stack.exists():
        stack.write_text("name: course\neasyconfigs: [Tiny-1.0.yaml]\n")
        stack.chmod(0o644)
        os.chown(stack.parent, -1, getgrnam(GROUP).gr_gid)
        stack.parent.chmod(0o2775)
    return [
        machine.install("b"),
        machine.install("a"),
        ("sbom", "Tiny/1.0", "-o", "-"),
        ("fetch", machine.place.directory / "c.sif"),
        ("hide", "Tiny/1.0"),
        ("deprecate", "Tiny/1.0", "--until", "2999-12-31"),
        ("hide", "--undo", "Tiny/1.0"),
        ("default", "Tiny/1.0"),
        ("stack", "apply", stack, "--skip-sanity-check", "--quiet"),
        ("stack", "lock", stack),
        ("diff", "Tiny/1.0"),
        ("rollback", "Tiny/1.0"),
    ]


@BOTH
def test_each_member_goes_on_after_each_verb_of_the_other(machine: Machine) -> None:
    """Reading verbs too, each by the one with the closed umask; what they write is in the list, and as promised."""
    for number, words in enumerate(everything(machine)):
        machine.ok("ann", *words)
        as_promised(machine.prefix, machine.sharing)
        if number:
            machine.ok("bob", "gc", "--yes", "--ignore-jobs")
            machine.ok("bob", "show", "Tiny/1.0")
        as_promised(machine.prefix, machine.sharing)
    assert unknown(machine.prefix) == set()


def test_a_spider_cache_in_the_tree_is_opened_with_it(machine: Machine) -> None:
    """`sharing: group` becomes `site`: Lmod of other users cannot read the cache until it is repaired."""
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    cache, stamp = machine.prefix / "lmod/cache", machine.prefix / "stamps/stamp"
    text = f"{settings.read_text()}spider_cache: {{directory: {cache}, timestamp: {stamp}}}\n"
    settings.write_text(text.replace("sharing: site", "sharing: group"))
    machine.ok("ann", *machine.install("a", "--quiet"))
    with Victim({**machine.place.env, "PATH": os.environ["PATH"]}) as victim:
        done = victim.run(("hide", "Tiny/1.0"), who=USERS["ann"])
        assert (done.code, "warning" in done.stderr) == (0, False), done.stderr
    made = {cache, cache.parent, cache / "spiderT.lua", stamp, stamp.parent}
    assert all(map(os.path.lexists, made))
    as_promised(machine.prefix, "group")
    beside = cache / "notes of the site"
    beside.touch(0o600)
    settings.write_text(text)
    told = machine.run("bob", "verify", "--modes").stdout.splitlines()
    assert {path for path in made if any(line.startswith(f"{path} ") or f" {path} " in line for line in told)} == made
    assert machine.run("ann", "verify", "--repair-modes").code == 0
    machine.ok("bob", "verify", "--modes")
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    beside.unlink()
    as_promised(machine.prefix, "site")
    aside = machine.place.directory / "aside"  # a link leads to files that sifmod has not made
    cache.rename(aside)
    cache.symlink_to(aside)
    (aside / "spiderT.lua").chmod(0o600)
    machine.ok("bob", "verify", "--modes")
    assert stat.S_IMODE((aside / "spiderT.lua").stat().st_mode) == 0o600


def unknown(prefix: Path) -> set[Path]:
    """What is in a tree and not in the list of what sifmod writes, but for links, and marks of users."""
    there = {path for path in (prefix, *prefix.rglob("*")) if not path.is_symlink()}
    return there - own_paths(Layout(prefix)) - {prefix / "images/marks"}


def test_the_modes_of_a_tree_that_is_missing_are_not_called_ok(machine: Machine) -> None:
    assert not machine.prefix.exists()
    assert machine.run("bob", "verify", "--modes").stdout == f"{machine.prefix}: does not exist yet\n"


def test_a_tree_that_is_opened_to_all_is_told_and_repaired_whole(machine: Machine) -> None:
    """`sharing: group` becomes `site`: strangers cannot load, and verify and doctor say so."""
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    text = settings.read_text()
    settings.write_text(text.replace("sharing: site", "sharing: group"))
    for words in everything(machine):
        machine.ok("ann", *words)
    as_promised(machine.prefix, "group")
    assert machine.run("bob", "verify").code == 0
    settings.write_text(text)
    modulerc = machine.prefix / "modules/Tiny/.modulerc.lua"
    assert modulerc.stat().st_mode & 0o777 == 0o660
    for verb in ("verify", "doctor"):
        told = machine.run("bob", verb)
        assert told.code == 1, verb
    machine.prefix.chmod(0o2775)
    told = machine.run("bob", "verify")
    assert (told.code, "closed, for reading or for changes, to users that `sharing: site` lets in" in told.stderr) == (
        1,
        True,
    )
    partly = machine.run("bob", "verify", "--repair-modes")
    assert partly.code == 1
    assert f"{modulerc}: Operation not permitted; only its owner user {UID} or root can correct it" in partly.stderr
    assert f"left: {modulerc} of user {UID}: expected -rw-rw-r--" in partly.stdout
    assert "changed" not in partly.stdout
    assert machine.run("ann", "verify", "--repair-modes").code == 0
    as_promised(machine.prefix, "site")
    machine.ok("bob", "verify", "--modes")
    for who in ("bob", "uma", "sam"):
        machine.ok(who, "verify")
    machine.ok("bob", *everything(machine)[0])


@BOTH
def _adds(machine: Machine, path: str, mode: int, closed: int = 0) -> None:
    """A file of bob's in the live generation; `closed`: the mode of its directory."""
    file = machine.prefix / "software/Tiny/1.0" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    for each, bits in ((file, mode), (file.parent, closed)):
        if bits:
            os.chown(each, UID + 1, -1)
            each.chmod(bits)


def test_a_tree_of_one_owner_names_what_others_have_made(machine: Machine) -> None:
    """`group` left the settings: only root could change what a member had installed, and all said ok."""
    settings, root = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml"), machine.victim
    for words in everything(machine):
        machine.ok("bob", *words)
    os.chown(machine.prefix, USERS["ann"][0], -1)
    settings.write_text(f"sharing: site\nprefix: {machine.prefix}\n")
    told = machine.run("ann", "verify", "--repair-modes")
    assert told.code == 1
    assert f", owned by user {USERS['ann'][0]}" in told.stdout
    assert "only root can correct it" in told.stderr
    assert root.run(("verify", "--repair-modes")).code == 0
    machine.ok("ann", "verify", "--modes")
    machine.ok("ann", "uninstall", "--purge", "Tiny/1.0")


def test_what_a_member_has_added_is_nobody_elses_program(machine: Machine) -> None:
    """A setuid file of bob's that ann copies would run as ann."""
    machine.ok("ann", *machine.install("a"))
    _adds(machine, "helper", 0o4755)
    assert "your own files were carried over: helper" in machine.ok("ann", *machine.install("b"))
    status = (machine.prefix / "software/Tiny/1.0/helper").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, 0o755)


def test_what_a_member_has_closed_stays_closed_and_in_nobodys_way(machine: Machine) -> None:
    machine.ok("ann", *machine.install("a"))
    _adds(machine, "key", 0o600)
    _adds(machine, "private/key", 0o644, 0o700)
    said = machine.ok("ann", *machine.install("b"))
    assert "your own files stay in the previous generation: key, private" in said
    assert not (machine.prefix / "software/Tiny/1.0/private").exists()
    assert (machine.prefix / "software/Tiny/.generations/1.0/1/private/key").read_text() == "mine"
    machine.ok("ann", "gc", "--yes", "--now", "--rollbacks", "--ignore-jobs")
    assert (machine.prefix / "software/Tiny/.generations/1.0/1/private/key").read_text() == "mine"
    machine.ok("ann", "verify")


def test_a_smaller_group_and_a_way_through_stay_so(machine: Machine) -> None:
    machine.ok("ann", *machine.install("a"))
    _adds(machine, "small/key", 0o640, 0o2750)
    _adds(machine, "through/key", 0o644, 0o711)
    live = machine.prefix / "software/Tiny/1.0"
    users = getgrnam("users").gr_gid
    os.chown(live / "small", -1, users)
    machine.ok("bob", *machine.install("b"))
    small, through = (live / "small").stat(), (live / "through").stat()
    assert (small.st_gid, small.st_mode & 0o077) == (users, 0o070 & ~0o020 | small.st_mode & 0o020)
    assert through.st_mode & 0o055 == 0o011


@pytest.mark.parametrize("who", ["bob", "root"])
def test_a_closed_directory_of_an_owner_stays_the_owners(machine: Machine, who: str) -> None:
    machine.ok("ann", *machine.install("a"))
    _adds(machine, "private/key", 0o644, 0o700)
    words = machine.install("b")
    assert (machine.run("bob", *words) if who == "bob" else machine.victim.run(words)).code == 0
    directory = machine.prefix / "software/Tiny/1.0/private"
    assert (directory / "key").read_text() == "mine"
    assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (UID + 1, 0o700)


@pytest.mark.parametrize("stamps", ["made/stamps", "made"])
def test_the_spider_cache_is_each_members(machine: Machine, stamps: str) -> None:
    """Lmod's program gives its files 0644 and copies over the one before, which is another member's."""
    site = machine.place.directory
    cache, stamp = site / "made" / "cache", site / stamps / "stamp"
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    text = f"spider_cache: {{directory: {cache}, timestamp: {stamp}}}\n"
    settings.write_text(settings.read_text() + text)
    machine.ok("ann", *machine.install("a", "--quiet"))
    with Victim({**machine.place.env, "PATH": os.environ["PATH"]}) as victim:
        assert victim.warm(("list",)).code == 0
        for who, *words in (("ann", "hide"), ("bob", "hide", "--undo"), ("ann", "hide"), ("bob", "hide", "--undo")):
            done = victim.run((*words, "Tiny/1.0"), who=USERS[who])
            assert (done.code, "warning" in done.stderr) == (0, False), done.stderr
            there = {path.name for path in cache.iterdir()}
            assert {"spiderT.lua"} <= there <= {"spiderT.lua", "spiderT.luac_5.3"}
            assert set(os.listdir(stamp.parent)) - {"cache"} == {"stamp"}
            assert stamp.stat().st_mtime_ns <= (cache / "spiderT.lua").stat().st_mtime_ns
            assert (cache / "spiderT.lua").stat().st_uid == USERS[who][0]
        assert all(path.stat().st_gid == getgrnam(GROUP).gr_gid for path in (cache, stamp.parent))
        assert {path.stat().st_mode & 0o777 for path in cache.iterdir()} == {0o644}
        cache.rename(site / "another place")  # a link of a member's may lead to another user's files
        cache.symlink_to(site / "another place")
        os.chown(cache, UID + 1, -1, follow_symlinks=False)
        before = disk_state(site / "another place")
        done = victim.run(("hide", "Tiny/1.0"), who=USERS["ann"])
        assert f"the spider cache was not refreshed: {cache} is a link of user {UID + 1}" in done.stderr
        assert disk_state(site / "another place") == before


def test_root_does_not_leave_modules_of_a_group_out_of_the_spider_cache(machine: Machine) -> None:
    """Lmod skips what belongs to root and is closed to others, when root runs it; members' `avail` was empty."""
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    cache, stamp = machine.prefix / "lmod/cache", machine.prefix / "lmod/stamp"
    text = f"{settings.read_text()}spider_cache: {{directory: {cache}, timestamp: {stamp}}}\n"
    settings.write_text(text.replace("sharing: site", "sharing: group"))
    machine.ok("ann", *machine.install("a", "--quiet"))
    with Victim({**machine.place.env, "PATH": os.environ["PATH"]}) as victim:
        assert victim.run(("hide", "Tiny/1.0"), who=USERS["ann"]).code == 0
        before = (cache / "spiderT.lua").read_text()
        done = victim.run(("hide", "--undo", "Tiny/1.0"), who=(0, 0, 0o022))
        assert (done.code, "the spider cache was not refreshed: run by root, Lmod leaves out" in done.stderr) == (
            0,
            True,
        )
        assert (cache / "spiderT.lua").read_text() == before
        assert (cache / "spiderT.lua").stat().st_mtime < stamp.stat().st_mtime  # so Lmod reads the tree
        done = victim.run(("hide", "Tiny/1.0"), who=USERS["bob"])
        assert (done.code, "warning" in done.stderr) == (0, False), done.stderr
        assert (cache / "spiderT.lua").stat().st_mtime >= stamp.stat().st_mtime


@BOTH
def test_who_cannot_reach_the_tree_is_told(machine: Machine) -> None:
    above = machine.place.directory / "above"
    above.mkdir(mode=0o700)
    os.chown(above, USERS["ann"][0], USERS["ann"][1])
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    settings.write_text(settings.read_text().replace(str(machine.prefix), str(above / "tree")))
    said = machine.ok("ann", *machine.install("a")[:-1], "--skip-sanity-check")
    who = "other users" if machine.sharing == "site" else f"the group {GROUP}"
    closed = f"{who} cannot reach {above}/tree, because they cannot enter {above}"
    assert f"{closed}: its owner can run `chmod o+x {above}`" in said
    assert stat.S_IMODE(above.stat().st_mode) == 0o700
    above.chmod(0o701)
    assert "cannot reach" not in machine.ok("ann", *machine.install("a", "--rebuild"))


@pytest.mark.parametrize("mode", [0o2775, 0o775])
@BOTH
def test_a_process_without_the_group_changes_nothing(machine: Machine, mode: int) -> None:
    """Its chmod of a directory takes away the setgid bit, even where the directory above passes on the group."""
    above = machine.place.directory / "above"
    above.mkdir()
    os.chown(above, UID, getgrnam(GROUP).gr_gid)
    above.chmod(mode)
    settings = Path(machine.place.env["SIFMOD_CONFIG_DIR"], "a.yaml")
    settings.write_text(settings.read_text().replace(str(machine.prefix), str(above / "tree")))
    stack = machine.place.directory / "a" / "course.yaml"
    stack.write_text("name: course\neasyconfigs: [Tiny-1.0.yaml]\n")
    first = (machine.install("a"), ("stack", "apply", stack), ("fetch", machine.place.directory / "c.sif"))
    refused_all(machine, above, *first)
    machine.ok("ann", *machine.install("a"))
    later = (("hide", "Tiny/1.0"), ("uninstall", "Tiny/1.0"), ("gc", "--yes", "--now", "--ignore-jobs"))
    more = (("stack", "lock", stack, "-o", above / "course.lock"), ("verify", "--repair-modes"))
    refused_all(machine, above, machine.install("b"), *first[1:], *later, *more)
    before = disk_state(above)
    tested = machine.run("ann before she joined", "test", "Tiny/1.0")
    assert f"the test was not logged: this process is not in the group {GROUP}" in tested.stderr
    assert disk_state(above) == before
    for words in (("list",), ("show", "Tiny/1.0"), ("verify",), machine.install("a"), ("gc",)):
        machine.ok("ann before she joined", *words)
    stack.unlink()


def refused_all(machine: Machine, place: Path, *commands: tuple[str | Path, ...]) -> None:
    before = disk_state(place)
    for words in commands:
        refused = machine.run("ann before she joined", *words)
        assert refused.code == 25, (words, refused.stderr)
        assert f"this process is not in the group {GROUP}" in refused.stderr
        assert f"`newgrp {GROUP}`" in refused.stderr
        assert disk_state(place) == before, words


class Reference:
    """A module of the site, and one of a user's that wants its image by digest; no server has it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.ok("ann", *machine.install("a"))
        (self.image,) = machine.prefix.glob("images/sha256/*.sif")
        own = machine.place.directory / "own"
        own.mkdir()
        self.easyconfig = own / "Mine-2.0.yaml"
        self.easyconfig.write_text(
            "name: Mine\nversion: '2.0'\naccelerator: none\nimage:\n  filename: mine.sif\n"
            f"  sources: ['https://127.0.0.1:9/none.sif']\n  sha256: {self.image.stem}\n"
        )

    def install(self, who: str, *words: str | Path) -> Outcome:
        """With the site's settings, in the user's own prefix."""
        own = ("--prefix", self.machine.own(who), "--skip-sanity-check", "--link", "reference", "--offline")
        return self.machine.run(who, "install", self.easyconfig, *own, *words)

    def marks(self) -> list[Path]:
        return sorted(self.machine.prefix.glob("images/marks/*"))

    def site_gives_up(self) -> None:
        self.machine.ok("ann", "uninstall", "Tiny/1.0")

    def gc(self, *words: str) -> str:
        return self.machine.ok("ann", "gc", "--yes", "--now", "--rollbacks", "--ignore-jobs", *words)


@pytest.fixture
def reference(machine: Machine) -> Reference:
    return Reference(machine)


def test_a_users_module_keeps_the_image_that_it_refers_to(reference: Reference) -> None:
    machine, own = reference.machine, reference.machine.own("uma")
    outcome = reference.install("uma")
    assert outcome.code == 0, outcome.stderr
    assert list(own.glob("images/sha256/*")) == []
    assert os.readlink(own / "software/Mine/2.0/mine.sif") == str(reference.image)
    (mark,) = reference.marks()
    assert (mark.stat().st_uid, mark.stat().st_size) == (UID + 2, 0)
    said = machine.ok("ann", "uninstall", "--purge", "--ignore-jobs", "Tiny/1.0")
    assert f"{reference.image} stays: used from trees of user {UID + 2} (seen " in said
    reference.gc()
    assert reference.image.exists()
    machine.ok("uma", "rollback", "Mine/2.0", "--to", "1", "--prefix", own)
    machine.ok("uma", "uninstall", "Mine/2.0", "--prefix", own)
    assert reference.marks() == []
    machine.ok("uma", "rollback", "Mine/2.0", "--to", "1", "--prefix", own)
    assert reference.marks() == [mark]
    machine.ok("uma", "uninstall", "Mine/2.0", "--prefix", own)
    reference.gc()
    assert not reference.image.exists()


def test_a_gc_that_is_stopped_anywhere_takes_no_image_that_a_module_has_come_to_refer_to(reference: Reference) -> None:
    machine, own = reference.machine, reference.machine.own("uma")
    gc = ("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs")
    came: set[bool] = set()
    for step in some(1, 1000, 20):
        machine.ok("ann", *machine.install("a"))
        reference.site_gives_up()
        stopped = machine.victim.run(gc, "stopped", step, who=USERS["ann"])
        if stopped.code is not None:  # it has no such step any more
            break
        outcome = reference.install("uma")
        ended = machine.victim.resume(stopped)
        assert ended.code == 0, ended.stderr
        came.add(outcome.code == 0)
        assert outcome.code in (0, 10), outcome.stderr
        assert reference.image.exists() == (outcome.code == 0), (step, outcome.stderr, ended.stderr)
        if outcome.code == 0:
            machine.ok("uma", "verify", "--prefix", own)
            machine.ok("uma", "uninstall", "Mine/2.0", "--prefix", own)
            machine.ok("uma", "gc", "--yes", "--now", "--rollbacks", "--prefix", own)
        assert reference.marks() == []
    assert came == {True, False}


def test_a_users_install_that_is_killed_anywhere_is_repeated(reference: Reference) -> None:
    own = reference.machine.own("uma")
    words = ("install", reference.easyconfig, "--prefix", own, "--skip-sanity-check", "--link", "reference")
    for step in some(1, 1000, 45):
        killed = reference.machine.victim.run(words, "killed", step, who=USERS["uma"])
        if killed.code == 0:
            break
        assert killed.code == -9
        reference.site_gives_up()
        reference.gc()
        live = (own / "software/Mine/2.0").is_symlink()
        assert reference.image.exists() or not live, step
        reference.machine.ok("ann", *reference.machine.install("a"))
        assert reference.install("uma").code == 0
        assert len(reference.marks()) == 1
        reference.machine.ok("uma", "uninstall", "Mine/2.0", "--prefix", own)
        reference.machine.ok("uma", "gc", "--yes", "--now", "--rollbacks", "--prefix", own)
        assert reference.marks() == []
    assert step > 30


@pytest.mark.parametrize("how", ["aged", "--marks"])
def test_a_reference_that_went_away_is_told(reference: Reference, how: str) -> None:
    machine, own = reference.machine, reference.machine.own("uma")
    assert reference.install("uma").code == 0
    (mark,) = reference.marks()
    old = mark.stat().st_mtime - 181 * 86400
    os.utime(mark, (old, old))
    reference.site_gives_up()
    if how == "aged":
        assert reference.install("uma").code == 0  # which renews it
        reference.gc()
        assert reference.image.exists()
        os.utime(mark, (old, old))
        reference.gc()
    else:
        reference.gc("--marks")
    assert not reference.image.exists()
    assert reference.marks() == []
    before = disk_state(own / "software")
    assert machine.run("uma", "verify", "--prefix", own).code == 1
    refused = reference.install("uma")
    assert refused.code == 10, refused.stderr
    assert disk_state(own / "software") == before
    sif = machine.place.directory / "a.sif"
    again = machine.run("uma", "install", reference.easyconfig, "--prefix", own, "--source", sif, "--skip-sanity-check")
    assert again.code == 0, again.stderr
    assert machine.run("uma", "verify", "--prefix", own).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is sure to be able to give a prefix to that group")
def test_layers_are_as_open_as_the_tree_or_as_their_own_place(
    shared_tmp: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = make_machine(shared_tmp, images)
    prefix, project = machine.prefix, shared_tmp / "project"
    shutil.rmtree(prefix)
    write(shared_tmp / "etc/a.yaml", f"sharing: group\ngroup: {GROUP}\nprefix: {prefix}\n")
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(shared_tmp / "etc"))
    machine.sifmod("install", str(shared_tmp / "Python-3.11.yaml"), "--skip-sanity-check").ok()
    project.mkdir()
    project.chmod(0o755)
    machine.add("demo").ok()
    machine.add("demo", "--dir", str(project)).ok()
    as_promised(prefix, "group")
    assert unknown(prefix) == set()
    for path in project.rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & 0o077 in (0o044, 0o055), path
        assert path.lstat().st_gid == 0
    assert not list(project.rglob("marks"))


def test_a_directory_that_a_member_made_and_closed_is_in_nobodys_way(machine: Machine) -> None:
    """It holds no module, stays its user's, and even root's repair of the modes does not open it."""
    machine.ok("ann", *machine.install("a"))
    own = [machine.prefix / place / "private" for place in ("software", "modules", "user-software")]
    for directory in own:
        directory.mkdir(mode=0o700)
        os.chown(directory, UID + 1, -1)
        directory.chmod(0o700)
        if directory.parent.name == "modules":
            directory.rename(directory.with_name("another"))
    for words in (("list",), ("verify",), ("gc", "--yes", "--ignore-jobs"), machine.install("b"), ("show", "Tiny/1.0")):
        machine.ok("ann", *words)
    assert machine.victim.run(("verify", "--repair-modes"), who=(0, 0, 0o077)).code == 0
    own[1] = machine.prefix / "modules/another"
    assert [(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode) & 0o777) for path in own] == [(UID + 1, 0o700)] * 3
    (machine.prefix / "software/Tiny").chmod(0o700)
    os.chown(machine.prefix / "software/Tiny", UID + 1, -1)
    refused = machine.run("ann", "list")  # it has a module
    assert (refused.code, f"{machine.prefix}/software/Tiny: Permission denied" in refused.stderr) == (25, True)
