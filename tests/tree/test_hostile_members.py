"""A member of the group plants things in the prefix: what another one then runs does nothing outside of it."""

import ctypes
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.actions.list import list_modules
from sifmod.actions.reporter import Reporter
from sifmod.actions.rollback import rollback
from sifmod.actions.uninstall import uninstall
from sifmod.cli.main import run as sifmod
from sifmod.errors import InstallError, SifmodError
from sifmod.tree.durable import make_directory
from sifmod.tree.generation import tidy
from sifmod.tree.layer import Layers
from sifmod.tree.layout import HISTORY, RECEIPT, Layout
from sifmod.tree.lease import newest, this_process
from sifmod.tree.locking import forget_locks, left_over, lock
from sifmod.tree.removal import remove_tree
from sifmod.tree.stage import STUBS
from sifmod.tree.stored_image import entries
from support.command import User
from support.disk_state import disk_state
from support.identity import call_as
from support.members import Members, make_members
from support.tree import MODULE, chain_at, install, nobody, tree_of
from support.user import OrdinaryUser

LEASE = 0.3  # seconds: what is planted never beats
STEERING = "\x1b]0;x\x07"  # sets a terminal's title
_EXCHANGE = 2  # renameat2(2)


@pytest.fixture
def members(shared_tmp: Path, tmp_path: Path, ordinary_user: OrdinaryUser) -> Members:
    made = make_members(shared_tmp, ordinary_user)
    everything(Layout(tmp_path / "prefix"))  # what is imported late is imported here: its files may be closed to users
    made.by(made.ann, lambda: [install(Layout(made.prefix), tag) for tag in "ab"])
    return made


def everything(layout: Layout) -> list[str]:
    """Every verb that changes the tree, as one goes on working in it; what each said that it cannot do."""
    said = []
    for do in (
        lambda: tidy(tree_of(layout, LEASE, print)),
        lambda: install(layout, "c", lease=LEASE, on_wait=print),
        lambda: rollback(tree_of(layout, LEASE, print), MODULE, None, Reporter(print)),
        lambda: rollback(tree_of(layout, LEASE, print), MODULE, 1, Reporter(print)),
        lambda: uninstall(tree_of(layout, LEASE, print), MODULE, Reporter(print)),
        lambda: apply_gc(tree_of(layout, LEASE, print), plan_gc(layout, 0.0, ask_jobs=False), Reporter(print)),
        lambda: install(layout, "d", lease=LEASE, on_wait=print),
    ):
        try:
            do()
        except SifmodError as error:
            said.append(str(error))
    list_modules(layout)
    return said


def rewritten(root: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Another receipt in the place of the one of this generation."""
    receipt = root / RECEIPT
    fields = json.loads(receipt.read_text())
    change(fields)
    receipt.unlink()
    receipt.write_text(json.dumps(fields))


def stub_out(text: str) -> Callable[[Path, Path], None]:
    def plant(prefix: Path, home: Path) -> None:
        """S1: a stub whose path leads to a file of Ann's, with the digest of what is there."""
        data = f"Ann's {text}\n".encode()
        way = os.path.relpath(home / text, prefix / "modules")
        for root in prefix.glob("software/Tiny/.generations/1.0/[0-9]*"):
            rewritten(root, lambda fields: fields.update(stubs=[[way, hashlib.sha256(data).hexdigest(), 0o644]]))

    return plant


def new_stub_out(prefix: Path, home: Path) -> None:
    """S1: a stub whose path leads to where Ann has no file yet; its text is where the path leads from the copies."""
    way = os.path.relpath(home / ".bash_login", prefix / "modules")
    for root in prefix.glob("software/Tiny/.generations/1.0/[0-9]*"):
        text = Path(os.path.normpath(root / STUBS / way))
        text.parent.mkdir(parents=True)
        text.write_text("echo planted\n")
        digest = hashlib.sha256(text.read_bytes()).hexdigest()
        rewritten(root, lambda fields, digest=digest: fields.update(stubs=[[way, digest, 0o644]]))  # type: ignore[misc]


def file_out(prefix: Path, home: Path) -> None:
    """S1: files and links of the generation that lead to Ann's home."""
    for root in prefix.glob("software/Tiny/.generations/1.0/[0-9]*"):
        way = os.path.relpath(home / ".bashrc", root)
        rewritten(root, lambda fields, way=way: fields.update(links=[[way, "x"]], files=[[way, "0" * 64, 0o644]]))  # type: ignore[misc]


def stub_text_is_a_link(prefix: Path, home: Path) -> None:
    """What `rollback` would publish is a link to what only Ann can read."""
    for copy in prefix.glob("software/Tiny/.generations/1.0/[0-9]*/share/modules/Tiny/1.0.lua"):
        copy.unlink()
        copy.symlink_to(home / ".profile")
    (prefix / "modules" / "Tiny" / "1.0.lua").unlink()


def staging_names(prefix: Path, home: Path) -> None:  # noqa: ARG001
    """S2: names that lead out when their @ is read as /."""
    for name in ("T@..@..@..@home@ann.7.ab", "..@..@home@ann.7.ab.fenced", "@home@ann.7.ab", "Tiny@...3.ab", "..3.ab"):
        (prefix / ".staging" / name).mkdir()


def staging_names_a_year(prefix: Path, home: Path) -> None:
    """S2: such a name, and a number that was placed: a directory of Ann's has that number."""
    generations = prefix / "software" / "Tiny" / ".generations"
    name = f"Tiny@{os.path.relpath(home / 'work', generations)}".replace("/", "@")
    (prefix / ".staging" / f"{name}.1.ab").mkdir()
    (prefix / ".staging" / f"{name}.1.ab" / "2024.placed").write_text("")


def staging_notes(prefix: Path, home: Path) -> None:  # noqa: ARG001
    """S2: what was placed is no number."""
    (prefix / ".staging/Tiny@1.0.1.ab").mkdir()
    for note in ("work.placed", "1.placed", "x.placed", "..placed", "9" * 30 + ".placed"):
        (prefix / ".staging/Tiny@1.0.1.ab" / note).write_text("")


def placed_is_a_link(prefix: Path, home: Path) -> None:
    """S2: a generation that was placed is a link to a directory of Ann's."""
    (prefix / "software/Tiny/.generations/1.0/77").symlink_to(home / "work")
    (prefix / ".staging/Tiny@1.0.1.ab").mkdir()
    (prefix / ".staging/Tiny@1.0.1.ab/77.placed").write_text("")


def links_in_the_way(*places: str) -> Callable[[Path, Path], None]:
    def plant(prefix: Path, home: Path) -> None:
        """A directory of the prefix becomes a link to Ann's home."""
        for place in places:
            with suppress(OSError):
                (prefix / place).rename(prefix / f"away-{place.replace('/', '-')}")
            (prefix / place).parent.mkdir(parents=True, exist_ok=True)
            (prefix / place).symlink_to(home / "work")

    return plant


def staging_holds_links(prefix: Path, home: Path) -> None:
    """What a dead run has left is a link, or holds some."""
    (prefix / ".staging/Tiny@1.0.1.ab").symlink_to(home)
    (prefix / ".staging/Tiny@1.0.1.cd.fenced").mkdir()
    (prefix / ".staging/Tiny@1.0.1.cd.fenced/generation").symlink_to(home / "work")
    (prefix / ".staging/Tiny@1.0.1.cd.fenced/1.old").symlink_to(home / ".bashrc")


def beats(prefix: Path, home: Path) -> None:
    """S5: the beat that Ann's run will write is a link to a file of hers, and of every number to come."""
    for chain in (prefix / ".locks").iterdir():
        for number in range(1, 30):
            with suppress(FileExistsError):
                (chain / f"{number}.beat").symlink_to(home / ".profile")


def leases(text: str) -> Callable[[Path, Path], None]:
    def plant(prefix: Path, home: Path) -> None:  # noqa: ARG001
        """S6: a lease that says this."""
        chain = prefix / ".locks/Tiny@1.0"
        last = newest(chain_at(chain)).number
        (chain / f"{last + 1}.lease").symlink_to(text)

    return plant


def holder(**fields: object) -> str:
    return json.dumps(this_process(1.0)._asdict() | {"token": "f" * 16, "host": "elsewhere"} | fields)


def history(text: str) -> Callable[[Path, Path], None]:
    def plant(prefix: Path, home: Path) -> None:  # noqa: ARG001
        """S6: a history that says this."""
        path = prefix / "software/Tiny/.generations/1.0" / HISTORY
        path.unlink()
        path.write_text(text)

    return plant


def pipes(prefix: Path, home: Path) -> None:  # noqa: ARG001
    """What is read is a pipe that nobody writes into."""
    generations = prefix / "software/Tiny/.generations/1.0"
    (generations / HISTORY).unlink()
    os.mkfifo(generations / HISTORY)
    (generations / "1" / RECEIPT).unlink()
    os.mkfifo(generations / "1" / RECEIPT)
    for record in prefix.glob("images/sha256/*.json"):
        record.unlink()
        os.mkfifo(record)


def store_receipts(prefix: Path, home: Path) -> None:
    """The store's receipts tell of other places, and one is a link to what Ann has."""
    for number, record in enumerate(sorted(prefix.glob("images/sha256/*.json"))):
        record.unlink()
        if number:
            record.symlink_to(home / ".profile")
        else:
            record.write_text(json.dumps({"sha256": "../../../home/ann/work", "size": "x", "given": [[[]]]}))


def odd_names(prefix: Path, home: Path) -> None:  # noqa: ARG001
    """Modules, versions and generations whose names steer a terminal or are none."""
    for name in (STEERING, "..x", "a b", "x\n", "Tiny@9"):
        (prefix / "software" / name / ".generations" / name / "1").mkdir(parents=True)
        (prefix / "software" / "Tiny" / ".generations" / name / "1").mkdir(parents=True)
    for number in ("0", "01", "²", "9" * 40):
        (prefix / "software/Tiny/.generations/1.0" / number).mkdir()


def partials(prefix: Path, home: Path) -> None:
    """A download to go on with is a link to Ann's work."""
    (prefix / "images" / "partial").mkdir(exist_ok=True)
    (prefix / "images" / "partial" / ("a" * 64)).symlink_to(home / "work")
    os.utime(prefix / "images" / "partial" / ("a" * 64), (1, 1), follow_symlinks=False)


ATTACKS = {
    "a stub in the home": stub_out(".bashrc"),
    "another stub in the home": stub_out("work/results.csv"),
    "files and links in the home": file_out,
    "a stub's text is a link": stub_text_is_a_link,
    "names of staging": staging_names,
    "a name of staging and a year": staging_names_a_year,
    "notes of staging": staging_notes,
    "what was placed is a link": placed_is_a_link,
    "modules is a link": links_in_the_way("modules"),
    "the module's modules are a link": links_in_the_way("modules/Tiny"),
    "software is a link": links_in_the_way("software"),
    "the module's software is a link": links_in_the_way("software/Tiny"),
    "generations are a link": links_in_the_way("software/Tiny/.generations"),
    "the version's generations are a link": links_in_the_way("software/Tiny/.generations/1.0"),
    "images are a link": links_in_the_way("images"),
    "the store is a link": links_in_the_way("images/sha256"),
    "staging is a link": links_in_the_way(".staging"),
    "locks are a link": links_in_the_way(".locks"),
    "a lock is a link": links_in_the_way(".locks/Tiny@1.0"),
    "user-software is a link": links_in_the_way("user-software"),
    "links in staging": staging_holds_links,
    "beats are links": beats,
    "a lease for ever": leases(holder(seconds=1e9)),
    "a lease that is not a number": leases(holder(seconds=float("nan"))),
    "a lease that steers the terminal": leases(holder(host=STEERING)),
    "a lease of another type": leases(holder(pid="1", seconds=[])),
    "a lease in brackets": leases("[" * 4000),
    "a history in brackets": history("[" * 100_000),
    "a history of other types": history('[["1", "now", []], {}, 3]'),
    "a history of no numbers": history("[[1, NaN, []], [2, 1e999, []]]"),
    "a history to come": history("[[2, 1e17, []]]"),
    "pipes": pipes,
    "receipts of the store": store_receipts,
    "odd names": odd_names,
    "downloads": partials,
}


@pytest.mark.usefixtures("needs_root")  # else both members are one user
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_nothing_happens_outside_the_prefix(
    members: Members, attack: Callable[[Path, Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(members.home)
    members.by(members.bob, lambda: attack(members.prefix, members.home))
    said = members.by(members.ann, lambda: everything(Layout(members.prefix)))
    assert disk_state(members.home) == before
    assert "\x1b" not in "".join(said) + "".join(capfd.readouterr())
    for path in members.prefix.rglob("*"):  # nothing that only Ann can read has come into the tree
        if path.is_file() and not path.is_symlink():
            assert not path.read_bytes().startswith(b"Ann's "), path


def test_rollback_writes_nothing_outside_the_prefix(members: Members) -> None:
    before = disk_state(members.home)
    members.by(members.bob, lambda: new_stub_out(members.prefix, members.home))

    def back() -> None:
        with suppress(SifmodError):
            rollback(tree_of(Layout(members.prefix), LEASE, print), MODULE, 1, Reporter(print))

    members.by(members.ann, back)
    assert disk_state(members.home) == before


def test_what_others_have_written_does_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """S6: what receipts, names of directories and leases say, as each verb that shows the tree prints it."""
    layout = Layout(tmp_path)
    root = Path(install(layout, "a").root)
    rewritten(root, lambda fields: fields["image"].update(source=STEERING))  # type: ignore[attr-defined]
    rewritten(root, lambda fields: fields["provenance"].update(easyconfig=f"/x{STEERING}", site=STEERING))  # type: ignore[attr-defined]
    odd_names(tmp_path, tmp_path)
    leases(holder(host=STEERING, seconds=0.1))(tmp_path, tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path))
    for words in (["list"], ["show", "Tiny"], ["show", STEERING], ["verify"], ["rollback", "Tiny"], ["gc"], ["doctor"]):
        sifmod(words)
        said = "".join(capfd.readouterr())
        assert not {"\x1b", "\x07"} & set(said), words
        assert said


def test_names_of_staging_that_are_none_are_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    layout.staging.mkdir(exist_ok=True)
    for name in ("x", "Tiny@1.0", "Tiny@1.0.x.ab", "T@..@x.1.ab", "Tiny@1.0.1.", "Tiny@1.0.1.zz", ".1.ab"):
        (layout.staging / name).mkdir()
    assert left_over(layout) == ()
    (layout.staging / "Tiny@1.0.1.ab").mkdir()
    assert left_over(layout) == ("Tiny/1.0",)


def done_while_it_becomes_a_link(what: Callable[[], object], directory: Path, step: int) -> int:
    """Do it while a directory and the link beside it are exchanged at this step; how many steps it took."""
    library = ctypes.CDLL(None, use_errno=True)
    steps = 0

    def exchange(event: str, _: object) -> None:
        nonlocal steps
        if event != "open" and not event.startswith("os."):
            return
        steps += 1
        if steps == step:
            library.renameat2(-100, os.fsencode(directory), -100, os.fsencode(directory.with_name("link")), _EXCHANGE)

    library.renameat2  # noqa: B018 (looked up before it is needed)
    sys.addaudithook(exchange)
    with suppress(OSError, SifmodError):
        what()
    return steps


def made_with_a_lock(layers: Path) -> None:
    """A directory of layers where a dead run has left something."""
    for name in ("1.lease", "2.lease"):
        (layers / ".locks/A@1" / name).parent.mkdir(parents=True, exist_ok=True)
        (layers / ".locks/A@1" / name).symlink_to("another")
    (layers / ".locks/A@1/2.beat").write_text("free")
    (layers / ".staging/A@1.1.ab").mkdir(parents=True)


def locked_and_forgotten(prefix: Path) -> None:
    layers = Layers(prefix / "layers", prefix)
    with lock(layers, "A/1", 30, print):
        pass
    forget_locks(layers)


@pytest.mark.parametrize(
    ("make", "directory", "do"),
    [
        (lambda inner: inner.mkdir(parents=True), "tree/inner", lambda top: remove_tree(top / "tree", top)),
        (made_with_a_lock, "layers", locked_and_forgotten),
    ],
    ids=["removed", "locked"],
)
def test_a_directory_that_becomes_a_link_meanwhile(
    make: Callable[[Path], None], directory: str, do: Callable[[Path], None], tmp_path: Path
) -> None:
    """At whichever step renameat2 exchanges them: nothing changes where the link leads."""
    outside = tmp_path / "outside"
    make(outside)
    (outside / "file").write_text("mine")
    before = disk_state(outside)
    myself = User(os.geteuid(), os.getegid())
    for step in range(1, 1000):
        top = tmp_path / str(step)
        place = top / directory
        make(place)
        place.with_name("link").symlink_to(outside)
        steps = call_as(myself, lambda: done_while_it_becomes_a_link(lambda: do(top), place, step))  # noqa: B023
        assert disk_state(outside) == before, step
        if steps < step:
            break
    assert 5 < step < 1000


def test_a_link_in_the_place_of_a_directory_that_is_just_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour is faster between the look and mkdir: nothing is written where the link leads."""
    top, outside, mkdir = tmp_path / "a tree", tmp_path / "outside", os.mkdir
    top.mkdir()
    outside.mkdir()

    def late(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if name == "b":
            os.symlink(outside, name, dir_fd=dir_fd)
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", late)
    with pytest.raises(OSError, match="a/b is a symlink, which sifmod does not follow"):
        make_directory(top / "a/b/c", top)
    assert os.listdir(outside) == []


def test_a_tree_deeper_than_there_are_descriptors_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top / "d", top)
    assert list(top.iterdir()) == []


def test_a_lock_with_a_planted_lease_is_waited_for_as_long_as_this_site_says(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    leases(holder(seconds=1e9))(tmp_path, tmp_path)
    with lock(layout, "Tiny/1.0", LEASE, print) as held:
        held.check()


def test_what_damaged_receipts_tell_of_images_is_not_believed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    (image,) = entries(layout)
    record = image.path.with_suffix(".json")
    for text in ("[" * 100_000, '{"sha256": 3, "size": 1}', json.dumps({"sha256": image.sha256, "size": "1"})):
        record.unlink()
        record.write_text(text)
        assert entries(layout) == ()
    shutil.rmtree(layout.images)
    assert entries(layout) == ()


def test_nobody_waits_without_a_lock(members: Members) -> None:
    """The yardstick: with nothing planted every verb does what it is for."""
    said = members.by(members.ann, lambda: everything(Layout(members.prefix)))
    assert said == []
    members.by(members.ann, lambda: install(Layout(members.prefix), "e", on_wait=nobody))


def test_a_directory_that_is_a_link_is_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "prefix")
    install(layout, "a")
    layout.images.rename(tmp_path / "elsewhere")
    layout.images.symlink_to(tmp_path / "elsewhere")
    before = disk_state(tmp_path / "elsewhere")
    with pytest.raises(InstallError, match=f"{layout.images} is a symlink, which sifmod does not follow"):
        install(layout, "b")
    assert disk_state(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("place", ["modules", "life", "software", "images", "log"])
def test_a_link_that_a_member_has_planted_is_no_bug_of_ours(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`deprecate` ended with 70 where the modulefiles of a name lay behind a link."""
    layout = Layout(tmp_path / "prefix")
    install(layout, "a")
    (tmp_path / "elsewhere").mkdir()
    link = layout.prefix / place / (MODULE.name if place in ("modules", "software") else "")
    with suppress(FileNotFoundError):
        remove_tree(link, layout.prefix)
    link.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("SIFMOD_PREFIX", str(layout.prefix))
    name = str(MODULE)
    for words in (["list"], ["verify"], ["deprecate", name], ["hide", name], ["default", name], ["uninstall", name]):
        code, said = sifmod(words), "".join(capfd.readouterr())
        assert code in (0, 1, 2, 4, 18, 24), said
        assert code != 18 or f"{link} is a symlink, which sifmod does not follow" in said
    assert list((tmp_path / "elsewhere").iterdir()) == []
