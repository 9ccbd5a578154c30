"""make-squashfs and unmake-squashfs: the user's additions as one file and back, all or nothing, in real containers."""

import os
import shutil
import signal
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.module.plan import Wrapper
from sifmod.module.scripts import scripts
from support.command import Result, run
from support.config import write
from support.disk_state import disk_state
from support.generation import SHELLS, make_generation
from support.user import OrdinaryUser
from support.user_software import Place
from support.wrappers import WRAPPERS, Somebody, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

LOOK = "cat '/user-software/a file' 2>/dev/null || echo nothing"
FOREVER = 1 << 40  # bytes of a file with nothing in it, which takes a pack of hours


@pytest.fixture
def module(shared_tmp: Path, tiny: Path) -> Path:
    return make_generation(tiny_plan(shared_tmp / "pre fix", user_software=True), tiny)


@pytest.fixture
def place(module: Path, shared_tmp: Path) -> Iterator[Place]:
    """As an install leaves it: the directory is there and empty."""
    found = Place(module, shared_tmp / "the user's own $HOME")
    found.directory.mkdir()
    yield found
    assert not [path for path in found.directory.parent.iterdir() if ".part-" in path.name]


@pytest.fixture
def packer(module: Path, place: Place, somebody: Somebody) -> "Packer":
    if somebody.ordinary is not None:
        somebody.ordinary.own(place.directory.parent)
    return Packer(module, place, somebody)


class Packer:
    """Somebody who packs, and looks at what a wrapper sees."""

    def __init__(self, module: Path, place: Place, somebody: Somebody) -> None:
        self.module, self.place, self.somebody = module, place, somebody

    def fill(self) -> None:
        (self.place.directory / "a file").write_text("directory\n")
        (self.place.directory / "bin").mkdir()
        (self.place.directory / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
        (self.place.directory / "bin" / "tool").chmod(0o755)
        (self.place.directory / "link").symlink_to("bin/tool")
        if self.somebody.ordinary is not None:
            self.somebody.ordinary.own(self.place.directory)

    def run(self, name: str) -> Result:
        return self.somebody.run((self.module / "bin" / name,))

    def look(self, command: str = LOOK) -> str:
        return self.somebody.run((self.module / "bin" / "in-sh", "-c", command)).ok().stdout

    def refused(self, name: str, code: int, message: str) -> None:
        """With this code and message, and the disk as it was."""
        before = disk_state(self.place.directory.parent)
        result = self.run(name)
        assert (result.code, result.stdout.count("packed into")) == (code, 0)
        assert message in result.stderr
        assert "\n\nhint: " in result.stderr
        assert disk_state(self.place.directory.parent) == before


def test_packed_and_unpacked(packer: Packer) -> None:
    """A wrapper takes the squashfs at once and the directory once that is gone; both ways nothing is deleted."""
    place = packer.place
    packer.fill()
    before = disk_state(place.directory)
    made = packer.run("make-squashfs").ok()
    assert made.stderr == ""
    assert made.stdout.splitlines()[:2] == [f"packing {place.directory}", f"packed into {place.squashfs}"]
    assert disk_state(place.directory) == before
    (place.directory / "a file").write_text("later\n")
    assert packer.look() == "directory\n"
    assert packer.look("/user-software/link; touch /user-software/new 2>/dev/null || echo read-only") == (
        "tool\nread-only\n"
    )
    back = made.stdout.splitlines()[-1].strip()  # what it says to type
    assert back.startswith("rm ")
    for path in sorted(place.directory.rglob("*"), reverse=True):
        (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
    unmade = packer.run("unmake-squashfs").ok()
    assert unmade.stderr == ""
    assert unmade.stdout.splitlines()[:2] == [f"unpacking {place.squashfs}", f"unpacked into {place.directory}"]
    assert unmade.stdout.splitlines()[-1].strip() == back
    assert place.squashfs.is_file()
    assert (place.directory / "a file").read_text() == "directory\n"
    assert os.readlink(place.directory / "link") == "bin/tool"
    (place.directory / "a file").write_text("changed\n")
    assert packer.look() == "directory\n"
    run(("sh", "-c", back)).ok()
    assert packer.look() == "changed\n"
    assert (packer.module / "user-software.squashfs").is_symlink()
    packer.run("make-squashfs").ok()
    assert packer.look() == "changed\n"


@pytest.mark.parametrize("mode", [0o755, 0o2775, 0o700])
def test_what_is_made_is_as_open_as_its_place_whatever_the_umask(packer: Packer, mode: int) -> None:
    packer.fill()
    above, directory = packer.place.directory.parent, packer.place.directory
    above.chmod(mode)
    (directory / "a file").chmod(0o664)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.rglob("*") if not path.is_symlink()}
    strict = ("/bin/sh", "-c", 'umask 077; exec "$@"', "sh")
    assert packer.somebody.run((*strict, packer.module / "bin/make-squashfs")).code == 0
    assert packer.place.squashfs.stat().st_mode & 0o7777 == mode & 0o666
    shutil.rmtree(directory)
    assert packer.somebody.run((*strict, packer.module / "bin/unmake-squashfs")).code == 0
    assert directory.stat().st_mode & 0o7777 == mode
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.rglob("*") if not path.is_symlink()} == modes
    packer.place.squashfs.unlink()


@pytest.mark.parametrize(
    ("above", "path", "mode", "refused"),
    [
        (0o755, "a file", 0o640, True),
        (0o755, "bin", 0o750, True),
        (0o2750, "a file", 0o600, True),
        (0o2750, "bin", 0o710, True),
        (0o2750, "a file", 0o640, False),
        (0o700, "a file", 0o600, False),
    ],
)
def test_what_is_closed_to_those_who_read_the_squashfs_is_not_packed(
    above: int, path: str, mode: int, refused: bool, packer: Packer
) -> None:
    """They could read it there, whatever its mode."""
    packer.fill()
    place = packer.place.directory
    place.parent.chmod(above)
    (place / path).chmod(mode)
    if refused:
        packer.refused("make-squashfs", 4, f"{place / path} is closed to users who could read it in the squashfs")
        hint = packer.run("make-squashfs").stderr.splitlines()[-1].partition("open all: ")[2]
        run(("sh", "-c", hint)).ok()
    packer.run("make-squashfs").ok()
    packer.place.squashfs.unlink()


def test_what_a_list_closes_to_some_is_not_packed(packer: Packer) -> None:
    """The mode says that all may read it."""
    packer.fill()
    closed = packer.place.directory / "a file"
    packer.place.directory.parent.chmod(0o755)
    entries = ((0x01, 7), (0x02, 0), (0x04, 5), (0x10, 5), (0x20, 5))
    packed = b"".join(struct.pack("<HHI", tag, may, 71_300 if tag == 2 else 0xFFFFFFFF) for tag, may in entries)
    os.setxattr(closed, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    packer.refused("make-squashfs", 4, f"{closed} is closed to users who could read it in the squashfs")
    hint = packer.run("make-squashfs").stderr.splitlines()[-1].partition("open all: ")[2]
    run(("sh", "-c", hint)).ok()
    packer.run("make-squashfs").ok()


def test_what_a_smaller_group_reads_is_not_packed(module: Path, place: Place, ordinary_user: OrdinaryUser) -> None:
    """Only root can give a file to a group without being in it."""
    packer = Packer(module, place, Somebody(ordinary_user, ordinary_user.home))
    packer.fill()
    ordinary_user.own(place.directory.parent)
    place.directory.parent.chmod(0o2750)
    os.chown(place.directory / "a file", -1, 71_300)
    (place.directory / "a file").chmod(0o640)
    packer.refused("make-squashfs", 4, f"{place.directory / 'a file'} is closed to users who could read it")
    hint = packer.run("make-squashfs").stderr.splitlines()[-1].partition("open all: ")[2]
    packer.somebody.run(("sh", "-c", hint)).ok()
    packer.run("make-squashfs").ok()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the place to any group")
def test_what_is_made_is_of_the_group_of_its_place(module: Path, place: Place, tmp_path: Path) -> None:
    """Without setgid too: colleagues could not read the squashfs, and every command binds it."""
    packer = Packer(module, place, Somebody(None, tmp_path))
    packer.fill()
    os.chown(place.directory.parent, -1, 71_300)
    place.directory.parent.chmod(0o750)
    for path in (place.directory, *place.directory.rglob("*")):
        os.chown(path, -1, 71_300, follow_symlinks=False)
    packer.run("make-squashfs").ok()
    assert (place.squashfs.stat().st_gid, place.squashfs.stat().st_mode & 0o777) == (71_300, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unpacks owners, setuid bits and devices")
def test_root_unpacks_nothing_with_rights_of_its_own(module: Path, place: Place, ordinary_user: OrdinaryUser) -> None:
    """Every member of a group can write the squashfs, and choose owners and modes in it."""
    content = place.directory.with_name("content")
    (content / "below").mkdir(parents=True)
    for name, mode in (("setuid", 0o4755), ("below/setgid", 0o2755)):
        (content / name).write_text("#!/bin/sh\n")
        (content / name).chmod(mode)
    os.mknod(content / "device", 0o666 | stat.S_IFBLK, os.makedev(7, 0))
    os.chown(content / "below", ordinary_user.user.uid, -1)
    run(("mksquashfs", content, place.squashfs, "-no-progress", "-quiet")).ok()
    shutil.rmtree(content)
    place.directory.parent.chmod(0o2775)
    run((module / "bin/unmake-squashfs",)).ok()
    modes = {path.name: path.stat().st_mode & 0o7777 for path in place.directory.rglob("*")}
    assert modes == {"setuid": 0o755, "below": 0o2755, "setgid": 0o755}


def test_what_is_refused(packer: Packer) -> None:
    place = packer.place
    packer.refused("make-squashfs", 2, "there is nothing to pack in ")
    packer.refused("unmake-squashfs", 2, "there is nothing to unpack: no ")
    place.directory.rmdir()
    packer.refused("make-squashfs", 2, "there is nothing to pack in ")
    place.directory.mkdir()
    packer.fill()
    packer.run("make-squashfs").ok()
    packer.refused("make-squashfs", 3, f"{place.squashfs} is there already")
    packer.refused("unmake-squashfs", 3, f"{place.directory} is not empty")
    (packer.module / "user-software.squashfs").unlink()
    packer.refused("make-squashfs", 4, "user-software.squashfs is missing\n\nhint: sifmod install PyTorch-2.2.0 --pre")


def test_without_the_place(module: Path, place: Place) -> None:
    away = place.directory.parent.rename(place.directory.parent.with_name("away"))
    result = run((module / "bin" / "make-squashfs",))
    away.rename(place.directory.parent)
    assert (result.code, result.stdout) == (4, "")
    hint = f"hint: sifmod install PyTorch-2.2.0 --prefix {module.parents[2]} brings it back\n"
    assert f"/user-software leads to is missing\n\n{hint}" in result.stderr


def test_a_directory_that_was_removed_comes_back(packer: Packer) -> None:
    packer.fill()
    packer.run("make-squashfs").ok()
    packer.place.directory.rename(packer.place.directory.with_name("elsewhere"))
    packer.run("unmake-squashfs").ok()
    assert (packer.place.directory / "a file").read_text() == "directory\n"


def test_inside_a_container_it_is_refused(packer: Packer) -> None:
    packer.fill()
    before = disk_state(packer.place.directory.parent)
    for name in ("make-squashfs", "unmake-squashfs"):
        path = packer.module.resolve() / "bin" / name
        asked = (packer.module / "bin" / "in-sh", "-c", f"'{path}'")
        result = packer.somebody.run(asked, {"APPTAINER_BIND": str(packer.module.parents[2])})
        assert (result.code, result.stdout) == (1, "")
        assert f"{name} does not work inside a container\n\nhint: " in result.stderr
    assert disk_state(packer.place.directory.parent) == before


PLANTED = 'ln -s "$1" "$2.part-$(uname -n)-$$"; exec "$3"'


@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
def test_a_link_that_a_colleague_has_planted_leads_nowhere(packer: Packer, shared_tmp: Path, name: str) -> None:
    """At the name that could be foreseen; what it leads to is the user's, who runs the script."""
    place, mine = packer.place, shared_tmp / "mine"
    mine.mkdir()
    (mine / "work").write_text("of years")
    (mine / "work").chmod(0)
    packer.fill()
    target, aim = (place.squashfs, mine / "work") if name == "make-squashfs" else (place.directory, mine)
    if name == "unmake-squashfs":
        packer.run("make-squashfs").ok()
        place.directory.rename(place.directory.with_name("elsewhere"))
    if packer.somebody.ordinary is not None:
        packer.somebody.ordinary.own(mine)
    before = disk_state(mine)
    ended = packer.somebody.run(("sh", "-c", PLANTED, "sh", aim, target, packer.module / "bin" / name))
    assert disk_state(mine) == before
    assert ended.code == 0, ended.stderr
    (planted,) = target.parent.glob("*.part-*")
    assert planted.is_symlink()
    planted.unlink()


PLACES = {"directory": "user-software", "squashfs": "user-software.squashfs", "above": ""}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of another user")
@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
@pytest.mark.parametrize("planted", PLACES)
@pytest.mark.parametrize("there", [True, False], ids=["to what is there", "to nothing"])
def test_a_link_of_another_user_in_the_place_itself_is_refused(
    packer: Packer, shared_tmp: Path, name: str, planted: str, there: bool
) -> None:
    """It packed a directory that only this user can read, or unpacked a colleague's files into ~/.ssh."""
    place, mine = packer.place, shared_tmp / "mine"
    packer.fill()
    if name == "unmake-squashfs":
        packer.run("make-squashfs").ok()
        shutil.rmtree(place.directory)
    link = place.directory.with_name(PLACES[planted]) if PLACES[planted] else place.directory.parent
    if link.exists():
        link.rename(mine)
    else:
        mine.mkdir()
    if not there:
        mine.rename(shared_tmp / "away")
    link.symlink_to(mine)
    os.lchown(link, 71_301, -1)
    before = disk_state(shared_tmp)
    refused = packer.run(name)
    assert (refused.code, refused.stdout) == (4, "")
    assert f": {link} is a link of user 71301\n\nhint: remove it; " in refused.stderr
    assert disk_state(shared_tmp) == before
    link.unlink()
    if planted == "above":
        link.mkdir()


def test_a_link_of_ones_own_in_the_place_leads_to_its_target(packer: Packer, shared_tmp: Path) -> None:
    """A file system with more room, say; what a squashfs would open is not opened there by a hint."""
    place, mine = packer.place, shared_tmp / "roomy" / "mine"
    place.directory.rmdir()
    mine.mkdir(parents=True)
    place.directory.symlink_to(mine)
    packer.fill()
    if packer.somebody.ordinary is not None:
        packer.somebody.ordinary.own(mine.parent)
        packer.somebody.ordinary.own(place.directory.parent)
    mine.chmod(0o700)
    place.directory.parent.chmod(0o755)
    closed = packer.run("make-squashfs")
    assert (closed.code, closed.stderr.splitlines()[-1]) == (4, "hint: keep it elsewhere")
    mine.chmod(0o755)
    packer.run("make-squashfs").ok()
    shutil.rmtree(mine)
    packer.run("unmake-squashfs").ok()
    assert (mine / "a file").read_text() == "directory\n"
    assert place.directory.is_symlink()


# a mkdir after which a colleague, who may write beside the user's place, is quicker than the script
SWAPPED = """#!/bin/sh
/bin/mkdir "$@" || exit
for made; do :; done
mv -T "$made" "$made-gone" && ln -s "$AIM" "$made"
"""


@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
def test_a_link_in_the_place_of_the_directory_just_made_leads_nowhere(
    packer: Packer, shared_tmp: Path, name: str
) -> None:
    """To another directory of the user's: what is called `new` there is not what the script has made."""
    place, mine, programs = packer.place, shared_tmp / "mine", shared_tmp / "programs"
    write(mine / "new" / "work", "of years")
    write(programs / "mkdir", SWAPPED).chmod(0o755)
    packer.fill()
    if name == "unmake-squashfs":
        packer.run("make-squashfs").ok()
        place.directory.rename(place.directory.with_name("elsewhere"))
    if packer.somebody.ordinary is not None:
        packer.somebody.ordinary.own(mine)
    before, names = disk_state(mine), {path.name for path in place.directory.parent.iterdir()}
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "AIM": str(mine)}
    ended = packer.somebody.run((packer.module / "bin" / name,), env)
    assert disk_state(mine) == before
    assert ended.code == 4
    assert "no directory could be made beside" in ended.stderr
    (gone,) = place.directory.parent.glob("*.part-*-gone")
    gone.rmdir()
    gone.with_name(gone.name.removesuffix("-gone")).unlink()
    assert {path.name for path in place.directory.parent.iterdir()} == names


@pytest.mark.usefixtures("place")
def test_a_host_without_the_programs(module: Path, tmp_path: Path) -> None:
    for name in ("readlink", "sed", "ls"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    for name, program in (("make-squashfs", "mksquashfs"), ("unmake-squashfs", "unsquashfs")):
        result = run(("/bin/sh", module / "bin" / name), env={"PATH": str(tmp_path)})
        assert (result.code, result.stdout) == (127, "")
        assert f"{program} is not installed here\n\nhint: " in result.stderr


def test_a_file_that_cannot_be_read_fails(module: Path, place: Place, ordinary_user: OrdinaryUser) -> None:
    """Left to itself mksquashfs puts an empty file there, and says that all is well."""
    packer = Packer(module, place, Somebody(ordinary_user, ordinary_user.home))
    packer.fill()
    (place.directory / "secret").write_text("mine\n")
    (place.directory / "secret").chmod(0)
    place.directory.parent.chmod(0o700)
    ordinary_user.own(place.directory.parent)
    packer.refused("make-squashfs", 4, "mksquashfs failed with exit code 1; nothing has changed")


def test_a_damaged_squashfs_fails(packer: Packer) -> None:
    packer.fill()
    (packer.place.directory / "large").write_text("".join(f"{number}\n" for number in range(300_000)))
    packer.run("make-squashfs").ok()
    whole = packer.place.squashfs.read_bytes()
    half = len(whole) // 2
    packer.place.squashfs.write_bytes(whole[:half] + bytes(16) + whole[half + 16 :])
    packer.place.directory.rename(packer.place.directory.with_name("elsewhere"))
    packer.refused("unmake-squashfs", 4, "unsquashfs failed with exit code ")


def started(script: Path, part: str, place: Path) -> subprocess.Popen[str]:
    """The script in a session of its own, when it has begun to write. It hears what this process may be deaf to."""
    process = subprocess.Popen(
        ["env", "--default-signal=HUP,INT,TERM", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(place.glob(part)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("everybody", [False, True], ids=["the script", "the whole group"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_interrupted_nothing_has_changed(module: Path, place: Place, number: signal.Signals, everybody: bool) -> None:
    with (place.directory / "endless").open("wb") as file:
        file.truncate(FOREVER)
    process = started(module / "bin" / "make-squashfs", "*.part-*/new", place.directory.parent)
    (os.killpg if everybody else os.kill)(process.pid, number)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -number
    with pytest.raises(ProcessLookupError):  # mksquashfs is gone too
        os.killpg(process.pid, 0)
    assert list(place.directory.parent.rglob("*")) == [place.directory, place.directory / "endless"]


def test_an_interrupted_unpacking_leaves_nothing(module: Path, place: Place) -> None:
    for number in range(30_000):
        (place.directory / str(number)).touch()
    run((module / "bin" / "make-squashfs",)).ok()
    place.directory.rename(place.directory.with_name("elsewhere"))
    process = started(module / "bin" / "unmake-squashfs", "*.part-*/new", place.directory.parent)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert {path.name for path in place.directory.parent.iterdir()} == {"elsewhere", "user-software.squashfs"}


def test_killed_outright_the_next_run_removes_what_is_left(module: Path, place: Place) -> None:
    """But not what a run is writing, nor what one on another machine has left."""
    endless = place.directory / "endless"
    with endless.open("wb") as file:
        file.truncate(FOREVER)
    process = started(module / "bin" / "make-squashfs", "*.part-*/new", place.directory.parent)
    os.killpg(process.pid, signal.SIGSTOP)
    (left,) = place.directory.parent.glob("*.part-*")
    note = f"note: {left} is not finished; remove it unless another run is writing it\n"
    endless.rename(place.directory.with_name("endless"))
    (place.directory / "short").write_text("short\n")
    beside_it = run((module / "bin" / "make-squashfs",)).ok()
    assert (beside_it.stderr, left.is_dir()) == (note, True)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    place.squashfs.unlink()
    writer = (left / "writer").read_text()
    (left / "writer").write_text(writer.replace(os.uname().nodename, "another-node"))
    assert run((module / "bin" / "make-squashfs",)).ok().stderr == note
    place.squashfs.unlink()
    (left / "writer").write_text(writer)
    assert run((module / "bin" / "make-squashfs",)).ok().stderr == ""
    assert not left.exists()
    assert place.squashfs.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_sh_runs_them(module: Path, place: Place, shell: tuple[str, ...]) -> None:
    (place.directory / "a file").write_text("it\n")
    run((*shell, module / "bin" / "make-squashfs")).ok()
    assert run((module / "bin" / "in-sh", "-c", LOOK)).ok().stdout == "it\n"
    (place.directory / "a file").unlink()
    run((*shell, module / "bin" / "unmake-squashfs")).ok()
    assert (place.directory / "a file").read_text() == "it\n"


def test_which_modules_have_them(shared_tmp: Path) -> None:
    def of(**changes: object) -> dict[str, str]:
        return {file.path: file.text for file in scripts(tiny_plan(shared_tmp, **changes), 1)}

    assert "bin/make-squashfs" not in of()
    assert {"bin/make-squashfs", "bin/unmake-squashfs"} <= of(user_software=True).keys()
    own = of(user_software=True, wrappers=(*WRAPPERS, Wrapper("make-squashfs", ("mine",))))
    assert own["bin/make-squashfs"].endswith('launch mine "$@"\n')
    assert "bin/unmake-squashfs" in own
