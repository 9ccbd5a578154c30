"""torchrun in real containers on a real Slurm cluster: one launcher on each node, started by the runscript."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.images import Images
from support.jobs import before_parting, lines, load, write_script
from support.slurm import Slurm

TORCHRUN = 'exec singularity -q exec "$SIF" torchrun-distributed'


@pytest.fixture(scope="module")
def module(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return load(images, tmp_path_factory.mktemp("prefix"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return write_script(tmp_path)


def srun(*words: str, options: Sequence[str]) -> tuple[str, ...]:
    return ("srun", "--quiet", *options, "sh", "-c", f'{TORCHRUN} "$@"', "sh", *words)


def test_one_launcher_on_each_node(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    options = ("-N2", "--ntasks-per-node=1")
    result = slurm.run(srun("-n", "2", "ddp.py", "7", options=options), module, work).ok()
    assert sorted(result.stdout.splitlines()) == lines(7, ("n1", "n1", "n2", "n2"))
    assert before_parting(result.stderr) == ""


MEETS = """
import os, pathlib, sys, time
own, other = sys.argv[1:]
pathlib.Path(f"started-{own}").touch()
while not pathlib.Path(f"started-{other}").exists():
    time.sleep(0.05)
said = (own, os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["SLURMD_NODENAME"])
os.write(1, (" ".join(said) + "\\n").encode())  # all at once: others write here too
"""


def test_two_jobs_at_once_on_the_same_nodes(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    """The launchers of each find each other, and those alone; sums are in the other tests."""
    (work / "meets.py").write_text(MEETS)
    jobs = [
        subprocess.Popen(
            srun("meets.py", own, other, options=("-N2", "-n2")),
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
    assert [sorted(out.splitlines()) for out, _ in said] == [[f"{own} 0 2 n1", f"{own} 1 2 n2"] for own in ("2", "3")]
    assert [before_parting(err) for _, err in said] == ["", ""]


def test_the_users_master_and_port(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    mine = {**module, "MASTER_ADDR": "localhost", "MASTER_PORT": "23456"}
    (work / "holds.py").write_text(
        "import os, socket\n"
        "with socket.socket() as probe:\n"
        "    said = probe.connect_ex(('127.0.0.1', 23456)), os.environ['WORLD_SIZE']\n"  # 0: the launchers meet there
        "os.write(1, b'%d %s\\n' % (said[0], said[1].encode()))\n"
    )
    result = slurm.run(srun("-n", "2", "holds.py", options=("-N2", "-n2")), mine, work).ok()
    assert result.stdout.splitlines() == ["0 4"] * 4
    assert before_parting(result.stderr) == ""


def test_torchruns_own_options_win(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    (work / "ask.py").write_text(
        "import os, sys; os.write(1, f\"{os.environ['TORCHELASTIC_RUN_ID']} {sys.argv[1:]}\\n\".encode())"
    )
    words = ("--nproc_per_node=1", "--rdzv_id=mine", "ask.py", "--rdzv_id=theirs", "a b")
    result = slurm.run(srun(*words, options=("-N1", "-n2")), module, work).ok()
    assert result.stdout.splitlines() == ["mine ['--rdzv_id=theirs', 'a b']"]
    mine = {**module, "PET_NPROC_PER_NODE": "1", "PET_RDZV_ID": "mine"}
    result = slurm.run(srun("ask.py", options=("-N1", "-n2")), mine, work).ok()
    assert result.stdout.splitlines() == ["mine []"]


def test_the_static_rendezvous(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    words = ("--rdzv_backend=static", "ddp.py", "7")
    result = slurm.run(srun(*words, options=("-N2", "-n2")), module, work).ok()
    assert sorted(result.stdout.splitlines()) == lines(7, ("n1", "n2"))


def test_a_process_that_fails(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    (work / "fails.py").write_text("import os; raise SystemExit(3 * (os.environ['RANK'] == '1'))")
    result = slurm.run(srun("-n", "2", "fails.py", options=("-N1", "-n1")), module, work)
    assert result.code == 1
    assert "exitcode  : 3" in result.stderr


def test_outside_a_step(slurm: Slurm, module: dict[str, str], work: Path) -> None:
    """In a batch script without srun there is one launcher, although the job has two nodes."""
    (work / "job.sh").write_text(
        '#!/bin/bash\nsingularity -q exec "$SIF" torchrun-distributed -n 2 -m platform >one\n'
        'singularity -q exec "$SIF" torchrun-distributed ask.py >alone\n'
    )
    (work / "ask.py").write_text("import os; print(os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'])")
    output = f"--output={work}/output"
    code = slurm.wait(slurm.sbatch(("-N2", "-n4", output, work / "job.sh"), module, work))
    assert (code, (work / "output").read_text()) == (0, "")
    assert len((work / "one").read_text().splitlines()) == 2
    assert (work / "alone").read_text() == "1 0\n"
