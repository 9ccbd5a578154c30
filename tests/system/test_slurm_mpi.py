"""MPI on two Slurm nodes: MPICH and Open MPI of Debian in images, their own and the host's in their place.

Each rank says which library it has from which file. Both nodes are one machine: MPICH's ranks share memory, as those of
one node do, which works in containers without setuid because of what the module sets. Open MPI's are kept from it, for
the ranks of two such nodes would take segments of one name.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from support import module_tool as tools
from support.images import Images
from support.module_tool import ModuleTool
from support.slurm import Slurm

Install = Callable[[str, str], tuple[int, str]]
KINDS = ("mpich", "openmpi")
PMI = {"mpich": "pmi2", "openmpi": "pmix"}
CALLED = {"mpich": "MPICH Version:\t4.0.2", "openmpi": "Open MPI v4.1.4"}
HOST = "/usr/lib/x86_64-linux-gnu"
PROFILES = {
    "mpich": f"version: '4.0.2'\nabi: mpich\nlibrary: {HOST}/libmpich.so.12\n"
    f"libraries: ['{HOST}/libuc?.so.0', {HOST}/libhwloc.so.15, {HOST}/libnuma.so.1, {HOST}/libudev.so.1]\n",
    "openmpi": f"version: '4.1.4'\nabi: openmpi\nlibrary: {HOST}/libmpi.so.40\n"
    f"libraries: ['{HOST}/libopen-*.so.40', '{HOST}/libevent*-2.1.so.7', {HOST}/libhwloc.so.15]\n",
}
FROM_PYTHON = (
    "from mpi4py import MPI; world = MPI.COMM_WORLD; "
    "maps = (line.split()[-1] for line in open('/proc/self/maps')); "
    "file = next(name for name in maps if '/libmpi.so' in name or '/libmpich.so' in name); "
    "print(f'rank {world.rank} of {world.size}, sum {world.allreduce(world.rank + 1)}, "
    "{MPI.Get_library_version().splitlines()[0].split(chr(44))[0]}, {file}', flush=True)"
)
# the second is of plugins for networks that are not here
OPEN_MPI = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_mca_base_component_show_load_errors": "0"}


def settings(directory: Path, mpi: str) -> None:
    """What the site says, for each kind of MPI by a settings directory of its own."""
    for kind in KINDS:
        etc = directory / f"etc-{kind}"
        (etc / "mpi").mkdir(parents=True, exist_ok=True)
        (etc / "site.yaml").write_text(f"mpi: {mpi}\nmpi_profile: host-{kind}\n")
        text = f"description: the host's\n{PROFILES[kind]}srun: {PMI[kind]}\n"
        (etc / "mpi" / f"host-{kind}.yaml").write_text(text)


@pytest.fixture
def install(
    directory: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Install:
    """Install the module of one kind with the settings of one kind: the exit code, and what was said."""

    def installed(kind: str, etc: str) -> tuple[int, str]:
        monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(directory / f"etc-{etc}"))
        monkeypatch.setenv("SIFMOD_PREFIX", str(directory / "prefix"))
        easyconfig = directory / f"{kind}-1.yaml"
        sources = f"image: {{sources: ['{images.mpi_sif(kind)}']}}"
        easyconfig.write_text(f"name: {kind}\nversion: '1'\n{sources}\nwrappers: [mpi-hello, python3]\n")
        code = sifmod(["install", str(easyconfig), "--link", "reference", "--rebuild"])
        return code, capfd.readouterr().err

    return installed


def loaded(shell: ModuleTool, directory: Path, kind: str) -> dict[str, str]:
    step = shell.run(f"module load {kind}", directory / "prefix" / "modules")
    assert (step.code, step.stderr) == (0, "")
    return {**os.environ, **step.environment, **OPEN_MPI}


def ranks(kind: str, file: str, size: int = 2) -> list[str]:
    total = sum(range(1, size + 1))
    return [f"rank {rank} of {size}, sum {total}, {CALLED[kind]}, {file}" for rank in range(size)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mpi")
    (made / "home").mkdir()
    return made


@pytest.fixture(scope="module")
def shell(directory: Path) -> ModuleTool:
    return tools.lmod(directory / "home")


@pytest.mark.parametrize("kind", KINDS)
def test_the_images_own(slurm: Slurm, directory: Path, shell: ModuleTool, install: Install, kind: str) -> None:
    """With what the module says that srun needs; by the wrapper, and by a bare `apptainer exec`."""
    settings(directory, "image")
    code, said = install(kind, kind)
    pmi = re.search(r"of the image; start its programs with srun --mpi=(\w+)", said)
    assert pmi is not None, said
    assert code == 0
    assert pmi[1] == PMI[kind]
    env = loaded(shell, directory, kind)
    assert "SLURM_MPI_TYPE" not in env, "what the site's Slurm has is the site's to say"
    options = ("--quiet", f"--mpi={pmi[1]}", "-N2")
    hello = slurm.srun((*options, "-n4", "mpi-hello"), env).ok()
    own = {"mpich": f"{HOST}/libmpich.so.12.2.2", "openmpi": f"{HOST}/libmpi.so.40.30.4"}[kind]
    assert (sorted(hello.stdout.splitlines()), hello.stderr) == (ranks(kind, own, 4), "")
    python = ("sh", "-c", 'exec singularity -q exec "$SIF" python3 -c "$0"', FROM_PYTHON)
    assert sorted(slurm.srun((*options, "-n2", *python), env).ok().stdout.splitlines()) == ranks(kind, own)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hosts_in_its_place(slurm: Slurm, directory: Path, shell: ModuleTool, install: Install, kind: str) -> None:
    """No `--mpi` is typed: the profile says it. The image is the same, and the files are the host's."""
    settings(directory, "host")
    code, said = install(kind, kind)
    assert code == 0
    assert f"the host's MPI of profile host-{kind} ({kind} " in said
    env = loaded(shell, directory, kind)
    assert env["SLURM_MPI_TYPE"] == PMI[kind]
    host = f"/host-mpi/{'libmpich.so.12' if kind == 'mpich' else 'libmpi.so.40'}"
    hello = slurm.srun(("--quiet", "-N2", "-n2", "mpi-hello"), env).ok()
    assert sorted(hello.stdout.splitlines()) == ranks(kind, host)
    python = slurm.srun(("--quiet", "-N2", "-n2", "python3", "-c", FROM_PYTHON), env).ok()
    found = host.replace("libmpich", "libmpi")  # the name by which mpi4py looks for it
    assert sorted(python.stdout.splitlines()) == ranks(kind, found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_is_refused(directory: Path, install: Install, kind: str) -> None:
    settings(directory, "host")
    other = KINDS[1 - KINDS.index(kind)]
    code, said = install(kind, other)
    assert code == 18
    assert "cannot serve it" in said
