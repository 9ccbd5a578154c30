"""A home and a place of scratch that are reached through links: the paths that they lead to are there inside, too."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from sifmod.module.plan import Wrapper
from support.generation import make_generation
from support.images import Images
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.user import OrdinaryUser
from support.wrappers import tiny_plan


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
    switch = make_generation(wanted, images.tiny_sif)
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
    closed = {**linked.environment, f"{RUNTIME.kind.upper()}_NO_HOME": "1"}
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
