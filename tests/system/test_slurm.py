"""Distributed PyTorch in real containers on a real Slurm cluster of two nodes, started by the runscript."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.command import run
from support.images import Images
from support.jobs import STEP, lines, load, write_script
from support.slurm import Slurm

RUN = 'exec singularity -q exec "$SIF" conda-python-distributed ddp.py "$@"'


@pytest.fixture(scope="module")
def module(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return load(images, tmp_path_factory.mktemp("module"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where a job runs, with its script."""
    return write_script(tmp_path)


def test_two_jobs_at_once_on_the_same_nodes(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    command = ("srun", "--quiet", "-N2", "-n2", "sh", "-c", RUN, "sh")
    jobs = [
        subprocess.Popen(
            [*command, own, other],
            env={**module, **slurm.env},
            cwd=work,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for own, other in (("2", "3"), ("3", "2"))
    ]
    said = [job.communicate(timeout=300) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    assert [sorted(out.splitlines()) for out, _ in said] == [
        lines(2, ("n1", "n2")),
        lines(3, ("n1", "n2")),
    ]
    assert [err for _, err in said] == ["", ""]


def test_steps_of_one_batch_job(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    """Two steps at once, one of them uneven and one on the second node only; and without srun a single process."""
    (work / "job.sh").write_text(
        "#!/bin/bash\n"
        f"srun --overlap -N2 -n3 -m plane=2 sh -c '{RUN}' sh 4 5 >both &\n"
        f"srun --overlap -N1 -n2 -w n2 sh -c '{RUN}' sh 5 4 >second &\n"
        "wait\n"
        'singularity -q exec "$SIF" conda-python-distributed -c '
        '\'import os; print(os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"])\' >alone\n'
    )
    output = f"--output={work}/output"
    code = slurm.wait(slurm.sbatch(("-N2", "-n4", output, work / "job.sh"), module, work))
    assert (code, (work / "output").read_text()) == (0, "")
    assert sorted((work / "both").read_text().splitlines()) == lines(4, ("n1", "n1", "n2"))
    assert sorted((work / "second").read_text().splitlines()) == lines(5, ("n2", "n2"), "n2")
    assert (work / "alone").read_text() == "1 127.0.0.1\n"


def test_a_wrapper_under_srun(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    code = "import os, sys; print(sys.prefix, os.environ['SLURM_PROCID'], os.environ['SLURMD_NODENAME'])"
    result = slurm.srun(("--quiet", "-N2", "-n2", "python", "-c", code), module, work).ok()
    home = "/opt/miniconda3/envs/pytorch"
    assert (sorted(result.stdout.splitlines()), result.stderr) == ([f"{home} 0 n1", f"{home} 1 n2"], "")


OPEN_MPI = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2")
MPICH = ("mpirun.mpich", "-n", "2")
IN_STEP = ("srun", "--quiet", "-N2", "-n2")
IN_JOB = ("salloc", "--quiet", "-N2", "-n2", *OPEN_MPI, "--map-by", "node")
ALONE = ["no node of a job"] * 2


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [(OPEN_MPI, ALONE), (MPICH, ALONE), (IN_STEP, ["n1", "n2"]), (IN_JOB, ["n1", "n2"])],
    ids=["mpirun of Open MPI", "mpirun of MPICH", "srun", "mpirun in a job"],
)
def test_two_processes_train_one_model(
    slurm: Slurm, module: dict[str, str], tmp_path: Path, launcher: Sequence[str], nodes: Sequence[str]
) -> None:
    (tmp_path / "train.py").write_text(STEP)
    command = (*launcher, "sh", "-c", 'exec singularity -q exec "$SIF" conda-python-distributed train.py')
    result = run(command, env={**module, **slurm.env}, cwd=tmp_path).ok()
    assert [line.rpartition(",")[0] for line in sorted(result.stdout.splitlines())] == [
        f"trained: rank {rank} of 2 on {node}" for rank, node in enumerate(nodes)
    ]
