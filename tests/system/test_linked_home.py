"""A home and a place of scratch that are reached through links: the paths that they lead to are there inside, too."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.image.program import probe_runtime
from sifmod.module.plan import Wrapper
from support.command import SIFMOD, run
from support.config import write
from support.generation import make_generation
from support.images import Images
from support.module_tool import ModuleTool
from support.oci import Entry
from support.runtime import RUNTIME
from support.user import OrdinaryUser
from support.wrappers import tiny_plan

SHARED_TMP = "/tmp"  # of the host, which a container has, or has not


@dataclass
class Linked:
    """`/TOP/home/me` is a link to `/TOP/file system/home/me`, `/TOP/scratch` to `/TOP/file system/scratch`."""

    top: Path
    environment: dict[str, str]
    switch: Path

    @property
    def real(self) -> Path:
        return self.top / "file system"


@pytest.fixture
def linked(shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser) -> Linked:
    real = shared_tmp / "file system"
    for path in (real / "home/me", real / "scratch/me", real / "scratch/other"):
        path.mkdir(parents=True)
        path.chmod(0o755)
        if path.name == "me":
            (path / "data").write_text(f"{path.parent.name}\n")
            ordinary_user.own(path)
    (shared_tmp / "home").symlink_to("file system/home")
    (shared_tmp / "scratch").symlink_to(real / "scratch")
    scratch = (f"{shared_tmp}/scratch/$USER", f"{shared_tmp}/scratch/other", f"{shared_tmp}/none/$USER")
    wanted = tiny_plan(shared_tmp / "prefix", scratch=scratch, wrappers=(Wrapper("cat", ("cat",)),))
    switch = make_generation(wanted, images.tiny("with-runscripts", entries=(Entry("runscripts/.keep"),)))
    unmounted = {f"{name}_NO_MOUNT": "tmp" for name in ("SINGULARITY", "APPTAINER")}  # where all of this lies
    return Linked(shared_tmp, {"HOME": f"{shared_tmp}/home/me", "USER": "me", **unmounted}, switch)


def test_a_wrapper_sees_them(linked: Linked, ordinary_user: OrdinaryUser) -> None:
    real, cat = linked.real, linked.switch / "bin/cat"
    files = (real / "home/me/data", linked.top / "scratch/me/data", real / "scratch/me/data")
    found = ordinary_user.run((cat, *files), env=linked.environment)
    assert (found.code, found.stdout, found.stderr) == (0, "home\nscratch\nscratch\n", "")
    for name in ("SINGULARITY_NO_HOME", "APPTAINER_CONTAIN", "APPTAINER_CONTAINALL"):
        closed = ordinary_user.run((cat, files[0]), env={**linked.environment, name: "1"})
        assert closed.code == 1


def test_a_command_that_was_installed_sees_the_physical_home(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser
) -> None:
    """R5: `realpath`ed arguments and a job's directory were not there inside."""
    real, home = shared_tmp / "gpfs/me", shared_tmp / "home"
    real.mkdir(parents=True)
    home.symlink_to(real)
    write(real / "data", "mine\n")
    ordinary_user.own(real)
    image = f"image: {{sources: ['{images.tiny_sif}']}}\nwrappers: [cat]\n"
    easyconfig = write(shared_tmp / "App-1.yaml", f"name: App\nversion: '1'\n{image}")
    assert sifmod(["install", "-q", "--skip-sanity-check", str(easyconfig), "--prefix", str(shared_tmp / "tree")]) == 0
    unmounted = {f"{name}_NO_MOUNT": "tmp" for name in ("SINGULARITY", "APPTAINER")}
    cat = shared_tmp / "tree/software/App/1/bin/cat"
    done = ordinary_user.run((cat, real / "data"), {"HOME": str(home), **unmounted}, cwd="/usr")
    assert (done.code, done.stdout, done.stderr) == (0, "mine\n", "")


@pytest.mark.usefixtures("needs_root")
def test_a_load_binds_them(linked: Linked, module_tool: ModuleTool, ordinary_user: OrdinaryUser) -> None:
    modules = linked.switch.parents[2] / "modules"
    name = f"{linked.switch.parent.name}/{linked.switch.name}"
    steps = ("true", f"module load {name}", f"module unload {name}")
    before, loaded, unloaded = module_tool.session(steps, modules, linked.environment, ordinary_user.user)
    top, real = linked.top, linked.real
    places = (f"{real}/home/me", f"{top}/scratch/me", f"{real}/scratch/me")
    assert tuple(loaded.environment["SINGULARITY_BINDPATH"].split(",")[1:]) == places
    assert unloaded.environment.get("SINGULARITY_BINDPATH") == before.environment.get("SINGULARITY_BINDPATH")
    for option in ("NO_HOME", "CONTAIN", "CONTAINALL"):
        closed = {**linked.environment, f"{RUNTIME.kind.upper()}_{option}": "1"}
        (loaded,) = module_tool.session(steps[1:2], modules, closed, ordinary_user.user)
        assert tuple(loaded.environment["SINGULARITY_BINDPATH"].split(",")[1:]) == places[1:2]


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("home", ["", "/", "/none", "relative", "/tmp/../usr", "/proc/self/cwd"])
def test_a_home_that_is_no_place_of_the_users_is_left(
    linked: Linked, module_tool: ModuleTool, home: str, ordinary_user: OrdinaryUser
) -> None:
    environment = {"HOME": home, "USER": ""}
    done = ordinary_user.run((linked.switch / "bin/cat", "/dev/null"), env=environment, cwd="/usr")
    assert (done.code, done.stderr) == (0, "")
    name = f"{linked.switch.parent.name}/{linked.switch.name}"
    modules = linked.switch.parents[2] / "modules"
    (loaded,) = module_tool.session((f"cd /usr; module load {name}",), modules, environment, ordinary_user.user)
    assert "," not in loaded.environment["SINGULARITY_BINDPATH"]


FORBIDDEN = {"enable overlay": "no", "enable underlay": "no"}


def configuration(path: Path, values: dict[str, str]) -> Path:
    """The runtime's own configuration with these values."""
    program = probe_runtime(RUNTIME.path)
    assert program
    text = Path(program.configuration).read_text()
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert count == 1
    return write(path, text)


@pytest.mark.usefixtures("needs_root")
def test_a_runtime_that_makes_no_mount_points_starts_without_them(linked: Linked, ordinary_user: OrdinaryUser) -> None:
    """R5: each command of a user whose home is a link ended with "destination … doesn't exist in container"."""
    program, off = probe_runtime(RUNTIME.path), configuration(linked.top / "off.conf", FORBIDDEN)
    assert program
    script = 'mount --bind "$1" "$2" && shift 2 && exec setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}"'
    user = (str(ordinary_user.user.uid), str(ordinary_user.user.gid))
    environment = {**ordinary_user.environment(), **linked.environment}
    for target, code in (("/dev/null", 0), (linked.real / "home/me/data", 1)):
        words = (off, program.configuration, *user, linked.switch / "bin/cat", target)
        done = run(("unshare", "-m", "bash", "-c", script, "bash", *map(str, words)), env=environment, cwd="/usr")
        assert (done.code, done.stdout) == (code, ""), done
    image = linked.switch / "tiny.sif"
    easyconfig = write(linked.top / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: ['{image}']}}\n")
    install = (
        *SIFMOD,
        "install",
        "--skip-sanity-check",
        easyconfig,
        "--prefix",
        linked.top / "own",
        "--runtime",
        RUNTIME.path,
    )
    as_root = (off, program.configuration, "0", "0", *install)
    told = run(("unshare", "-m", "bash", "-c", script, "bash", *map(str, as_root))).ok().stderr
    assert f"warning: {RUNTIME.path}: its configuration has `enable overlay = no` and `enable underlay = no`: " in told


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    ("values", "bound"), [(FORBIDDEN, 0), ({"enable overlay": "no"}, 3), ({"enable underlay": "no"}, 3), ({}, 3)]
)
def test_a_load_asks_the_configuration_beside_the_runtime(
    linked: Linked, module_tool: ModuleTool, ordinary_user: OrdinaryUser, values: dict[str, str], bound: int, link: bool
) -> None:
    """That of the program on PATH, which may be a link."""
    place = linked.top / "a runtime"
    configuration(place / f"etc/{RUNTIME.kind}/{RUNTIME.kind}.conf", values)
    (place / "bin").mkdir()
    shutil.copy(RUNTIME.path, place / "bin" / RUNTIME.kind)
    search = place / "bin"
    if link:
        search = linked.top / "links"
        search.mkdir()
        (search / "singularity").symlink_to(f"../a runtime/bin/{RUNTIME.kind}")
    name = f"{linked.switch.parent.name}/{linked.switch.name}"
    environment = {**linked.environment, "PATH": f"{search}:/usr/bin:/bin"}
    modules = linked.switch.parents[2] / "modules"
    (loaded,) = module_tool.session((f"module load {name}",), modules, environment, ordinary_user.user)
    assert loaded.environment["SINGULARITY_BINDPATH"].count(",") == bound
