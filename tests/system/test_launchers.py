"""Who starts the processes of a distributed run: mpirun of Debian's Open MPI and MPICH really; others as recorded.

The recorded environments hold the names in the documents and sources of each launcher, which docs/runscripts.md names.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from plans import plan
from support.command import run
from support.generation import SHELLS
from support.runscripts import Runscripts, step

OMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "1853947905",
    "PMIX_RANK": "5",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
MVAPICH = {f"MV2_COMM_WORLD_{name.removeprefix('OMPI_COMM_WORLD_')}": value for name, value in list(OMPI.items())[:4]}
JSM = {
    "JSM_NAMESPACE_RANK": "5",
    "JSM_NAMESPACE_SIZE": "8",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "LSB_JOBID": "77",
}
FLUX = {
    "FLUX_TASK_RANK": "5",
    "FLUX_JOB_SIZE": "8",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_JOB_NNODES": "2",
    "FLUX_JOB_ID": "ƒD2e73NP",
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
}
PALS = {
    "PALS_RANKID": "5",
    "PALS_NODEID": "1",
    "PALS_APID": "3d0d2b8c-52d8",
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "4",
}
LAUNCHERS = {"Open MPI": OMPI, "Hydra": HYDRA, "MVAPICH": MVAPICH, "jsrun": JSM, "Flux": FLUX, "PALS": PALS}
PLACE = {"MASTER_ADDR": "first", "MASTER_PORT": "1234"}
DAEMONS = {  # the step in which mpirun starts its daemons on the other nodes of a Slurm job
    **step(0, "1(x3)"),
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}
CRAY = {"PALS_RANKID": "3", "PALS_NODEID": "1", "PALS_APID": "4711.0"}  # what srun sets with cray_shasta


@pytest.fixture
def runscripts(tmp_path: Path) -> Runscripts:
    return Runscripts(tmp_path / "a b", plan(accelerator="none"))


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_each_process_of_a_launcher_is_one_rank(
    runscripts: Runscripts, launcher: dict[str, str], shell: tuple[str, ...]
) -> None:
    found = runscripts.environment({**launcher, **PLACE}, shell)
    expected = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1"}
    if launcher is not PALS:
        del expected["NODE_RANK"]
    if launcher is FLUX:
        del expected["LOCAL_WORLD_SIZE"]
    assert found == expected


@pytest.mark.parametrize(
    ("environment", "rank", "size", "local"),
    [
        ({**DAEMONS, **HYDRA, "PMI_FD": "0"}, "5", "8", "1"),  # mpirun in a Slurm job; 0 is a socket
        ({**step(3), **CRAY}, "3", "4", "1"),  # srun on Cray
        ({**step(3), "PMI_RANK": "3", "PMI_SIZE": "4"}, "3", "4", "1"),  # srun --mpi=pmi2
        ({**step(3), **OMPI, "PMIX_NAMESPACE": "slurm.pmix.4711.0"}, "3", "4", "1"),  # a job that mpirun submitted
        ({**step(3), **OMPI, "PMIX_SERVER_TMPDIR": "/gone"}, "3", "4", "1"),
        ({**step(3), **HYDRA, "PMI_FD": "99"}, "3", "4", "1"),
        ({**step(3), "RANK": "3", "WORLD_SIZE": "4"}, "3", "4", "1"),
        ({"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "1"}, "2", "3", "1"),  # a launcher of the user's own
        ({**step(1), "RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "TORCHELASTIC_RUN_ID": "x"}, "6", "8", "2"),
        ({"OMPI_COMM_WORLD_SIZE": "1", "WORLD_SIZE": "1"}, "0", "1", "0"),
        ({"RANK": "", "WORLD_SIZE": ""}, "0", "1", "0"),
    ],
)
def test_what_is_live_counts(
    runscripts: Runscripts, environment: dict[str, str], rank: str, size: str, local: str
) -> None:
    seen = {**environment, **PLACE, **_told(runscripts, {**environment, **PLACE})}
    assert (seen["RANK"], seen["WORLD_SIZE"], seen["LOCAL_RANK"]) == (rank, size, local)


def test_mpirun_in_a_slurm_job_where_its_directory_is_there(runscripts: Runscripts, tmp_path: Path) -> None:
    seen = _told(runscripts, {**DAEMONS, **OMPI, **PLACE, "PMIX_SERVER_TMPDIR": str(tmp_path)})
    assert (seen["RANK"], seen["WORLD_SIZE"], seen["LOCAL_RANK"]) == ("5", "8", "1")


def _told(runscripts: Runscripts, environment: dict[str, str]) -> dict[str, str]:
    """All that Python is given; standard input is a socket, as what PMI_FD names."""
    words = ("-c", "import json, os; print(json.dumps(dict(os.environ)))")
    script = runscripts.directory / "conda-python-distributed"
    env = {**runscripts._base, **environment}
    ours, theirs = __import__("socket").socketpair()
    with ours, theirs:
        result = subprocess.run(("dash", script, *words), env=env, stdin=theirs, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, str] = json.loads(result.stdout)
    return found


UNCLEAR = "unset the variables of the one that did not start it"
UNSET = "unset WORLD_SIZE, RANK and LOCAL_RANK"
REFUSED = [
    ({**DAEMONS, **OMPI}, f"Open MPI says that this is process 5 of 8, and srun that it is 1 of 3: {UNCLEAR}"),
    ({**DAEMONS, **MVAPICH}, f"MVAPICH says that this is process 5 of 8, and srun that it is 1 of 3: {UNCLEAR}"),
    ({**step(3), "RANK": "0", "WORLD_SIZE": "1"}, f"WORLD_SIZE is 1, and srun says 4: {UNSET}"),
    ({**step(3), "RANK": "0"}, f"RANK is 0, and srun says 3: {UNSET}"),
    ({**OMPI, "RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, f"RANK is 0, and Open MPI says 5: {UNSET}"),
    ({"RANK": "3"}, f"RANK is 3, and a start without a launcher says 0: {UNSET}"),
    *(
        (
            {name: value for name, value in environment.items() if name not in lost},
            f"{name} says that there are {size} processes, and not which one this is: export RANK, WORLD_SIZE and"
            " LOCAL_RANK, or start it with srun or mpirun",
        )
        for name, size, environment, lost in (
            ("Open MPI", 8, OMPI, ("OMPI_COMM_WORLD_LOCAL_RANK",)),
            ("Open MPI", 8, OMPI, ("OMPI_COMM_WORLD_RANK",)),
            ("MPICH (Hydra)", 8, HYDRA, ("MPI_LOCALRANKID",)),
            ("Flux", 8, {**FLUX, "PMI_SIZE": ""}, ("FLUX_TASK_RANK",)),
            ("srun", 4, step(3), ("SLURM_LOCALID",)),
            ("RANK and WORLD_SIZE", 2, {"RANK": "1", "WORLD_SIZE": "2"}, ()),
        )
    ),
]


@pytest.mark.parametrize(("environment", "why"), REFUSED)
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_what_contradicts_itself_or_lacks_a_part_is_refused(
    runscripts: Runscripts, environment: dict[str, str], why: str, shell: tuple[str, ...]
) -> None:
    result = runscripts.run("conda-python-distributed", "-c", "print('ran')", env={**environment, **PLACE}, shell=shell)
    assert (result.code, result.stdout, result.stderr) == (2, "", f"conda-python-distributed: {why}\n")


def test_the_master_of_a_run_on_several_nodes(runscripts: Runscripts) -> None:
    own = {name: value for name, value in step(0).items() if not name.startswith("SLURM_STEP")}
    in_slurm = {name: value for name, value in {**own, **OMPI}.items() if name not in ("SLURM_PROCID", "SLURM_LOCALID")}
    found = runscripts.environment(in_slurm)
    assert found["MASTER_ADDR"] == "nid000001"
    other = runscripts.environment({**in_slurm, "PMIX_NAMESPACE": "1853947906"})
    assert other["MASTER_PORT"] != found["MASTER_PORT"] == runscripts.environment(in_slurm)["MASTER_PORT"]
    for launcher, hint in (
        (
            {**OMPI, "PBS_NODEFILE": "/x"},
            "MASTER_ADDR=$(head -n1 $PBS_NODEFILE), and start it with mpirun -x MASTER_ADDR",
        ),
        (FLUX, "MASTER_ADDR=$(flux hostlist -n 0 local)"),
        (PALS, "MASTER_ADDR=$(hostname)"),
    ):
        result = runscripts.run("conda-python-distributed", "-c", "print('ran')", env=launcher)
        assert (result.code, result.stdout) == (2, "")
        assert result.stderr.endswith(f"export MASTER_ADDR in the job script, for instance {hint}\n")
    first = {**in_slurm, "OMPI_COMM_WORLD_RANK": "0", "SLURMD_NODENAME": "nid000002"}
    result = runscripts.run("conda-python-distributed", "-c", "print('ran')", env=first)
    assert (result.code, result.stdout) == (2, "")
    assert "export MASTER_ADDR=nid000002" in result.stderr


def test_a_run_without_a_name_needs_a_port(runscripts: Runscripts) -> None:
    result = runscripts.run("conda-python-distributed", "-c", "", env={**MVAPICH, "MASTER_ADDR": "first"})
    assert result.code == 2
    assert result.stderr.endswith("could be computed: export one MASTER_PORT for all processes\n")
    with_job = {**MVAPICH, "MASTER_ADDR": "first"}
    ports = [runscripts.environment({**with_job, "PBS_JOBID": job})["MASTER_PORT"] for job in ("12.a", "13.a", "12.a")]
    assert ports[0] == ports[2] != ports[1]


MPIRUN = {
    "Open MPI": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"),
    "MPICH": ("mpirun.mpich", "-n", "3"),
}


@pytest.mark.parametrize("command", MPIRUN.values(), ids=MPIRUN.keys())
def test_mpirun_on_one_node(runscripts: Runscripts, command: Sequence[str]) -> None:
    """Really started, twice: one job of three processes, and another port each time."""
    show = "import os; e = os.environ; os.write(1, (' '.join(e[n] for n in (" + "'RANK', 'WORLD_SIZE', 'LOCAL_RANK',"
    show += "'LOCAL_WORLD_SIZE', 'NODE_RANK', 'MASTER_ADDR', 'MASTER_PORT')) + '\\n').encode())"
    env = {**runscripts._base, "HOME": os.environ["HOME"]}
    ports = []
    for _ in range(2):
        script = runscripts.directory / "conda-python-distributed"
        lines = sorted(run((*command, script, "-c", show), env=env).ok().stdout.splitlines())
        said = {line.rpartition(" ")[2] for line in lines}
        assert len(said) == 1
        assert [line.rpartition(" ")[0] for line in lines] == [f"{rank} 3 {rank} 3 0 127.0.0.1" for rank in range(3)]
        ports.append(said.pop())
    assert ports[0] != ports[1]


def test_torchrun_has_one_launcher_on_each_node(runscripts: Runscripts) -> None:
    other = runscripts.run("torchrun-distributed", "x.py", env={**OMPI, **PLACE})
    assert (other.code, other.stdout, other.stderr) == (0, "", "")
    both = {**DAEMONS, **OMPI, **PLACE}
    assert runscripts.run("torchrun-distributed", "x.py", env=both).code == 2
