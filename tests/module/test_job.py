"""Job scripts: what a plan and the user's options become."""

import json
from typing import Any

import pytest

from plans import HELP, plan
from sifmod.module.jobscript import JOB, Job, JobOptions, from_json, job_script, to_json
from sifmod.module.plan import Activation, Wrapper
from sifmod.module.render import render
from support.command import run

LUMI = {"gpus_per_node": 8, "cpus_per_gpu": 7, "cpu_bind": "mask_cpu:0xfe,0xfe00"}


def job(**changes: Any) -> Job:
    """As the generation of this plan keeps it."""
    return from_json({file.path: file.text for file in render(plan(**changes), 3)}[JOB].encode())


def directives(text: str) -> dict[str, str]:
    lines = (line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH"))
    return dict(line.partition("=")[::2] for line in lines)


def test_a_task_for_each_gpu_bound_to_the_processors_beside_it() -> None:
    text = job_script(job(**LUMI), JobOptions(nodes=3, account="project_1", partition="standard-g"), "/m")
    assert directives(text) == {
        "job-name": "PyTorch",
        "nodes": "3",
        "ntasks-per-node": "8",
        "gpus-per-node": "8",
        "cpus-per-task": "7",
        "time": "00:30:00",
        "account": "project_1",
        "partition": "standard-g",
    }
    assert text.splitlines()[-4:] == [
        "module use /m",
        "module load PyTorch/2.2.0-rocm-5.6.1 || exit",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        'srun --cpu-bind=mask_cpu:0xfe,0xfe00 apptainer exec "$SIF" conda-python-distributed -u train.py',
    ]


def test_a_launcher_has_the_processors_of_all_gpus_and_no_mask() -> None:
    text = job_script(job(**LUMI), JobOptions("torchrun", words="torchrun-distributed train.py", launchers=True), "/m")
    found = directives(text)
    assert (found["ntasks-per-node"], found["gpus-per-node"], found["cpus-per-task"]) == ("1", "8", "56")
    assert text.endswith('\nsrun apptainer exec "$SIF" torchrun-distributed train.py\n')


def test_a_site_that_says_nothing_gives_whole_nodes() -> None:
    found = directives(text := job_script(job(), JobOptions(), "/m"))
    assert ("exclusive" in found, found["ntasks-per-node"], "cpus-per-task" in found) == (True, "4", False)
    assert "SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))" in text
    assert "cpu-bind" not in text


def test_an_image_without_gpus_has_none_whatever_the_site_has() -> None:
    found = directives(text := job_script(job(accelerator="none", **LUMI), JobOptions(), "/m"))
    assert (found["ntasks-per-node"], found["nodes"], "gpus-per-node" in found) == ("1", "2", False)
    assert "cpus-per-task" not in found
    assert "mask_cpu" not in text


def test_a_command_that_is_not_distributed_has_one_node() -> None:
    made = job(accelerator="none", activation=Activation("true", ""), wrappers=(Wrapper("samtools", ("samtools",)),))
    found = directives(text := job_script(made, JobOptions(), "/m"))
    assert (found["nodes"], "exclusive" in found, "SRUN_CPUS" in text) == ("1", False, False)
    assert text.endswith("\nsrun samtools\n")


def test_python_that_is_not_distributed_is_started_once_with_all_of_a_node() -> None:
    found = directives(text := job_script(job(runscripts=(), **LUMI), JobOptions(), "/m"))
    assert [found[name] for name in ("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task")] == [*"118", "56"]
    assert text.endswith("\nsrun python train.py\n")


@pytest.mark.parametrize("syntax", ["lua", "tcl"])
def test_the_help_has_the_same_text(syntax: str) -> None:
    files = {file.path: file.text for file in render(plan(**LUMI), 3)}
    text = job_script(from_json(files[JOB].encode()), JobOptions(), "DIR").splitlines()
    shown = files[f"modulefile.{syntax}"]
    for line in text:
        quoted = line.replace('"', '\\"').replace("$", "\\$") if syntax == "tcl" else line
        assert f"\n  {line}\n" in shown or f"  {quoted}" in shown or line == "module use DIR", line


@pytest.mark.parametrize("bcast", [False, True])
def test_the_script_is_clean(bcast: bool) -> None:
    text = job_script(job(cache_directory="/a b"), JobOptions(bcast=bcast), "'/a b'")
    run(("shellcheck", "-e", "SC2016", "-"), stdin=text).ok()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", "8"),
        ("gpus", True),
        ("start", "a\nb"),
        ("runscripts", ["a\rb"]),
        ("name", "\x1b[2J"),
        ("runscripts", [1]),
        ("images", 3),
        ("inside", "yes"),
    ],
)
def test_what_others_have_written_into_a_generation(name: str, value: object) -> None:
    text = json.dumps({**json.loads(to_json(job(), HELP)), name: value})
    with pytest.raises((TypeError, ValueError)):
        from_json(text.encode())
    for damaged in (b"", b"[]", b"{}", b"{", b"\xff"):
        with pytest.raises((TypeError, ValueError, KeyError)):
            from_json(damaged)


def test_an_activated_image_without_python_runs_its_own_program() -> None:
    made = job(activation=Activation("source /x", "source /x"), wrappers=(Wrapper("fold", ("fold",)),), runscripts=())
    assert made.command == "fold"
