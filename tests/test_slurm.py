"""Distributed PyTorch in real containers on a real Slurm cluster of two nodes, started by the runscript."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import module_tool as tools
from support.command import run
from support.images import Images
from support.slurm import Slurm

DDP = """
import os, sys, time, pathlib
import torch, torch.distributed as dist

own, *others = sys.argv[1:]  # numbers: the one that this job sums, and jobs that must run at the same time
dist.init_process_group("gloo")
rank = dist.get_rank()
assert (rank, dist.get_world_size()) == (int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"]))
pathlib.Path(f"started-{own}").touch()
while not all(pathlib.Path(f"started-{other}").exists() for other in others):
    time.sleep(0.05)
for _ in range(20):
    total = torch.tensor([float(int(own) * 10**rank)])
    dist.all_reduce(total)
print(f"rank {rank}, {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']} on node {os.environ['NODE_RANK']}: "
      f"{total.item():.0f}, {os.environ['MASTER_ADDR']}")
dist.destroy_process_group()
"""
RUN = 'exec singularity exec "$SIF" conda-python-distributed ddp.py "$@"'


@pytest.fixture(scope="module")
def module(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell that has loaded, with Lmod, what `sifmod install` made of the shipped easyconfig."""
    prefix = tmp_path_factory.mktemp("pre fix")
    shell = tools.lmod(tmp_path_factory.mktemp("home"))
    install = (sys.executable, "-m", "sifmod", "install", "-q", "PyTorch-2.13.0.yaml", "--variant", "cpu")
    own = ("--source", images.pytorch_sif, "--link", "reference", "--prefix", prefix)
    run((*install, *own), env=shell.clean_environment()).ok()
    loaded = shell.run("module load PyTorch/2.13.0-cpu", prefix / "modules")
    assert (loaded.code, loaded.stderr) == (0, "")
    return {**os.environ, **loaded.environment, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where a job runs, with its script."""
    (tmp_path / "ddp.py").write_text(DDP)
    return tmp_path


def lines(number: int, nodes: Sequence[int], master: str = "n1") -> list[str]:
    """What the tasks print that run on these nodes, sorted: the sum of number times 1, 10, 100… over the ranks."""
    total = sum(number * 10**rank for rank in range(len(nodes)))
    return [
        f"rank {rank}, {nodes[:rank].count(node)} of {nodes.count(node)} on node {node}: {total}, {master}"
        for rank, node in enumerate(nodes)
    ]


def test_all_reduce_over_two_nodes(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    command = 'srun --quiet -N2 -n4 singularity exec "$SIF" conda-python-distributed ddp.py 7'
    result = slurm.run(("sh", "-c", command), module, work).ok()
    assert sorted(result.stdout.splitlines()) == lines(7, (0, 0, 1, 1))
    assert result.stderr == ""


def test_two_jobs_at_once_on_the_same_nodes(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    command = ("srun", "--quiet", "-N2", "-n4", "sh", "-c", RUN, "sh")
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
    assert [sorted(out.splitlines()) for out, _ in said] == [lines(2, (0, 0, 1, 1)), lines(3, (0, 0, 1, 1))]
    assert [err for _, err in said] == ["", ""]


def test_steps_of_one_batch_job(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    """Two steps at once, one of them uneven and one on the second node only; and without srun a single process."""
    (work / "job.sh").write_text(
        "#!/bin/bash\n"
        f"srun --overlap -N2 -n3 -m plane=2 sh -c '{RUN}' sh 4 5 >both &\n"
        f"srun --overlap -N1 -n2 -w n2 sh -c '{RUN}' sh 5 4 >second &\n"
        "wait\n"
        'singularity exec "$SIF" conda-python-distributed -c '
        '\'import os; print(os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"])\' >alone\n'
    )
    output = f"--output={work}/output"
    code = slurm.wait(slurm.sbatch(("-N2", "-n4", output, work / "job.sh"), module, work))
    assert (code, (work / "output").read_text()) == (0, "")
    assert sorted((work / "both").read_text().splitlines()) == lines(4, (0, 0, 1))
    assert sorted((work / "second").read_text().splitlines()) == lines(5, (0, 0), "n2")
    assert (work / "alone").read_text() == "1 127.0.0.1\n"


def test_a_wrapper_under_srun(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    code = "import os, sys; print(sys.prefix, os.environ['SLURM_PROCID'], os.environ['SLURMD_NODENAME'])"
    result = slurm.srun(("--quiet", "-N2", "-n2", "python", "-c", code), module, work).ok()
    home = "/opt/miniconda3/envs/pytorch"
    assert (sorted(result.stdout.splitlines()), result.stderr) == ([f"{home} 0 n1", f"{home} 1 n2"], "")
