"""A member of the group plants things in the prefix: what another one then runs does nothing outside of it."""

import ctypes
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sifmod.actions.gc import apply_gc, plan_gc
from sifmod.actions.list import list_modules
from sifmod.actions.listener import Listener
from sifmod.actions.rollback import rollback
from sifmod.actions.uninstall import uninstall
from sifmod.errors import InstallError, SifmodError
from sifmod.tree.disk import remove_tree
from sifmod.tree.generation import tidy
from sifmod.tree.layout import HISTORY, RECEIPT, Layout
from sifmod.tree.lease import newest, this_process
from sifmod.tree.lock import left_over, lock
from sifmod.tree.store import entries
from support.disk_state import disk_state
from support.members import Members, make_members
from support.tree import MODULE, install, nobody
from support.user import OrdinaryUser

LEASE = 0.3  # seconds: what is planted never beats
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
        lambda: tidy(layout, LEASE, print),
        lambda: install(layout, "c", lease=LEASE, on_wait=print),
        lambda: rollback(layout, MODULE, None, LEASE, Listener(print)),
        lambda: rollback(layout, MODULE, 1, LEASE, Listener(print)),
        lambda: uninstall(layout, MODULE, LEASE, Listener(print)),
        lambda: apply_gc(layout, plan_gc(layout, 0.0, ask_jobs=False), LEASE, Listener(print)),
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
        for note in ("work.placed", "1.placed", "x.placed", "..placed", "9" * 30 + ".placed"):
            (prefix / ".staging" / name / note).write_text("")


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


def lock_files(prefix: Path, home: Path) -> None:
    """The file that flock is taken on is a link."""
    for chain in (prefix / ".locks").iterdir():
        with suppress(FileNotFoundError):
            (chain / f"{os.uname().nodename}.lock").unlink()
        (chain / f"{os.uname().nodename}.lock").symlink_to(home / ".bashrc")


def leases(text: str) -> Callable[[Path, Path], None]:
    def plant(prefix: Path, home: Path) -> None:  # noqa: ARG001
        """S6: a lease that says this."""
        chain = prefix / ".locks/Tiny@1.0"
        last = newest(chain).number
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
    for name in ("\x1b]0;x\x07", "..x", "a b", "x\n", "Tiny@9"):
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
    "lock files are links": lock_files,
    "a lease for ever": leases(holder(seconds=1e9)),
    "a lease that is not a number": leases(holder(seconds=float("nan"))),
    "a lease that steers the terminal": leases(holder(host="\x1b]0;x\x07")),
    "a lease of another type": leases(holder(pid="1", seconds=[])),
    "a lease in brackets": leases("[" * 4000),
    "a history in brackets": history("[" * 100_000),
    "a history of other types": history('[["1", "now"], {}, 3]'),
    "a history of no numbers": history("[[1, NaN], [2, 1e999]]"),
    "a history to come": history("[[2, 1e17]]"),
    "pipes": pipes,
    "receipts of the store": store_receipts,
    "odd names": odd_names,
    "downloads": partials,
}


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


def test_names_of_staging_that_are_none_are_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    layout.staging.mkdir(exist_ok=True)
    for name in ("x", "Tiny@1.0", "Tiny@1.0.x.ab", "T@..@x.1.ab", "Tiny@1.0.1.", "Tiny@1.0.1.zz", ".1.ab"):
        (layout.staging / name).mkdir()
    assert left_over(layout) == ()
    (layout.staging / "Tiny@1.0.1.ab").mkdir()
    assert left_over(layout) == ("Tiny/1.0",)


def test_a_directory_that_becomes_a_link_while_it_is_removed(tmp_path: Path) -> None:
    """As renameat2 exchanges them: what the link leads to is never entered."""
    outside, links = tmp_path / "outside", tmp_path / "tree" / "links"
    outside.mkdir()
    links.mkdir(parents=True)
    for number in range(20):
        (outside / str(number)).write_text("mine")
    before = disk_state(outside)
    place = tmp_path / "tree" / "removed" / "inner"
    library = ctypes.CDLL(None, use_errno=True)
    (links / "inner").symlink_to(outside)
    names = os.fsencode(place), os.fsencode(links / "inner")
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            library.renameat2(-100, names[0], -100, names[1], _EXCHANGE)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(300):
            place.mkdir(parents=True, exist_ok=True) if not os.path.lexists(place) else None
            for number in range(5):
                with suppress(OSError):
                    (tmp_path / "tree" / "removed" / f"{number}").mkdir(exist_ok=True)
            with suppress(OSError):
                remove_tree(tmp_path / "tree" / "removed", tmp_path)
            if not os.path.lexists(links / "inner"):
                (links / "inner").symlink_to(outside)
    finally:
        stop.set()
        thread.join()
    assert disk_state(outside) == before


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
    with pytest.raises(InstallError, match=f"{layout.images} is a symlink, and inside a prefix none is followed"):
        install(layout, "b")
    assert disk_state(tmp_path / "elsewhere") == before
