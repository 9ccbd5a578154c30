"""Fixtures: real tools, started once, and an environment in which no test can reach the real home."""

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support import module_tool as tools
from support.images import Images
from support.longest import LONGEST
from support.memory import MEMORY, temporary
from support.module_tool import ModuleTool
from support.registry import Registry
from support.runtime import NAMED, RUNTIME
from support.slurm import Slurm
from support.user import OrdinaryUser
from support.user import ordinary_user as make_ordinary_user

hypothesis.settings.register_profile("sifmod", deadline=None)
hypothesis.settings.load_profile("sifmod")

# Apptainer's alone: it holds conversions against `apptainer pull`; what is packed has to be bound (the refusal is in
# test_singularityce.py)
collect_ignore = [] if RUNTIME.kind == "apptainer" else ["test_equality.py"]
collect_ignore += [] if RUNTIME.binds_squashfs else ["test_make_squashfs.py"]

# what names begin with
OF_THE_TOOLS = (
    "SIF",
    "RUNSCRIPTS",
    "WITH_CONDA",
    "CONTAINERROOT",
    "EB",
    "XDG_",
    "SINGULARITY",
    "APPTAINER",
    "SLURM_",
    "SBATCH_",
    "LMOD_",
)
OF_THE_MODULES = (
    "MODULE",
    "LOADEDMODULES",
    "_",
    "PYTHONPATH",
    "LD_PRELOAD",
    "MASTER_",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_",
    "NODE_RANK",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have xdist begin files in the order of LONGEST, not in that of their numbers of tests.

    Temporary directories are in memory where there is room.
    """
    config.option.loadscopereorder = False
    if temporary() == MEMORY:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """The garbage collector need not look at the tests again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files first; the others stay as they are, and so do the tests of each file."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and none of the variables that sifmod, a runtime, a module tool or Slurm reads."""
    for name in os.environ:
        if name.startswith((*OF_THE_TOOLS, *OF_THE_MODULES)):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(tmp_path / "etc-sifmod.d"))
    if os.geteuid() == 0:
        for name, value in RUNTIME.userns.items():  # root of a virtual machine may lack CAP_SYS_RESOURCE
            monkeypatch.setenv(name, value)
    if NAMED:
        monkeypatch.setenv("SIFMOD_RUNTIME", RUNTIME.path)
        monkeypatch.setenv("PATH", RUNTIME.search_path, prepend=":")
    return home


@pytest.fixture(scope="session")
def needs_root() -> None:
    """Skip for an ordinary user, who can be nobody else, make no device and give no file away."""
    if os.geteuid() != 0:
        pytest.skip("only root can run commands as other users, make devices and give files to others")


@pytest.fixture
def shared_tmp(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A temporary directory that every user can reach, which tmp_path is not.

    In memory, but for tests of what a runtime binds: SHARED_TMP of their module says where.
    """
    top = getattr(request.module, "SHARED_TMP", temporary())
    directory = Path(tempfile.mkdtemp(dir=top, prefix="sifmod-test-"))
    directory.chmod(0o755)
    yield directory
    _remove(directory)


@pytest.fixture(scope="session")
def images() -> Images:
    """Real SIFs and OCI layouts, built when first asked for."""
    return Images()


@pytest.fixture
def lmod(shared_tmp: Path) -> ModuleTool:
    """Shells with the machine's Lmod."""
    return tools.lmod(_open_directory(shared_tmp / "home"))


@pytest.fixture
def environment_modules(shared_tmp: Path) -> ModuleTool:
    """Shells with the machine's Environment Modules."""
    return tools.environment_modules(_open_directory(shared_tmp / "home"))


@pytest.fixture(params=["lmod", "environment-modules"])
def module_tool(request: pytest.FixtureRequest, shared_tmp: Path) -> ModuleTool:
    """Each module system in turn."""
    home = _open_directory(shared_tmp / "home")
    return tools.lmod(home) if request.param == "lmod" else tools.environment_modules(home)


@pytest.fixture
def ordinary_user(shared_tmp: Path) -> OrdinaryUser:
    """Somebody who is not root."""
    return make_ordinary_user(_open_directory(shared_tmp / "user"))


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A running cluster of two nodes, n1 and n2."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-slurm-"))
    directory.chmod(0o755)
    cluster = Slurm(directory / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        _remove(directory)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A running registry without TLS or credentials."""
    server = Registry(tmp_path_factory.mktemp("registry") / "registry")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _open_directory(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    return path


def _remove(directory: Path) -> None:
    """Remove it, read-only directories included."""
    subprocess.run(("chmod", "-R", "u+rwX", directory), check=False)
    shutil.rmtree(directory, ignore_errors=True)
