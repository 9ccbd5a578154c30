"""Both distributed runscripts on a cluster of four nodes with fake GPUs: gaps, one task a node, ports and masks."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.images import Images
from support.jobs import before_parting, lines, load, write_script
from support.slurm import Slurm

NODES = ("n1", "n2", "n3", "n4")
CONDA, TORCHRUN = "conda-python-distributed", "torchrun-distributed"
MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# what a process has of these variables, as JSON
TELL = f"""
import json, os
names = {(*MASKS, "HIP_VISIBLE_DEVICES", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "SLURM_LOCALID")}
told = json.dumps({{name: os.environ[name] for name in names if name in os.environ}})
os.write(1, f"{{told}}\\n".encode())  # all at once: others write here too
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Four nodes, each with two GPUs that are none: what Slurm puts into masks is real."""
    with tempfile.TemporaryDirectory(prefix="sifmod-slurm-") as directory:
        Path(directory).chmod(0o755)
        made = Slurm(Path(directory) / "cluster", NODES, gpus=2)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def module(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return load(images, tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="module")
def rocm(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same image as if it were for AMD, whose runscripts choose GPUs. Without the flag: there is no such driver."""
    loaded = load(images, tmp_path_factory.mktemp("rocm"), "rocm")
    return {name: value for name, value in loaded.items() if name not in ("SINGULARITY_ROCM", "APPTAINER_ROCM")}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "tell.py").write_text(TELL)
    return write_script(tmp_path)


def srun(script: str, *words: str) -> tuple[str, ...]:
    """The end of srun's command line."""
    return ("sh", "-c", f'exec singularity -q exec "$SIF" {script} "$@"', "sh", *words)


@pytest.mark.parametrize("script", [CONDA, TORCHRUN])
def test_a_job_with_gaps_in_its_list_of_nodes(cluster: Slurm, module: dict[str, str], work: Path, script: str) -> None:
    """With two tasks on each node: torchrun then starts as many processes as there are tasks."""
    options = ("--quiet", "-w", "n[2,4]", "-N2", "-n4")
    result = cluster.srun((*options, *srun(script, "ddp.py", "7")), module, work).ok()
    assert sorted(result.stdout.splitlines()) == lines(7, ("n2", "n2", "n4", "n4"), "n2")
    assert before_parting(result.stderr) == ""


def test_the_users_own_port(cluster: Slurm, module: dict[str, str], work: Path) -> None:
    """The processes are told of it, where torch takes it from."""
    mine = {**module, "MASTER_PORT": "23457"}
    result = cluster.srun(("--quiet", "-w", "n[1-2]", "-N2", "-n2", *srun(CONDA, "tell.py")), mine, work).ok()
    assert [json.loads(line)["MASTER_PORT"] for line in result.stdout.splitlines()] == ["23457"] * 2


def told(
    cluster: Slurm, options: tuple[str, ...], module: dict[str, str], work: Path, script: str
) -> list[dict[str, str]]:
    result = cluster.srun(("--quiet", *options, *srun(script, "tell.py")), module, work).ok()
    return sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda one: one["LOCAL_RANK"])


def test_the_masks_of_slurm_are_left_alone(cluster: Slurm, rocm: dict[str, str], work: Path) -> None:
    """Slurm's own words, for fake GPUs: the same that a task sees without the runscript."""
    for options in (("--gres=gpu:2",), ("--gpus-per-task=1",)):
        given = ("-N2", "-n4", "--ntasks-per-node=2", *options)
        bare = cluster.srun(
            ("--quiet", *given, "sh", "-c", f"env | grep -E '^({'|'.join(MASKS)})=' | sort"), rocm, work
        )
        seen = [{name: one[name] for name in MASKS if name in one} for one in told(cluster, given, rocm, work, CONDA)]
        assert len(seen) == 4
        assert sorted(f"{name}={value}" for one in seen for name, value in one.items()) == sorted(
            bare.ok().stdout.splitlines()
        )
        assert all("ROCR_VISIBLE_DEVICES" in one for one in seen)


def test_each_rank_has_its_own_gpu_where_slurm_says_none(cluster: Slurm, rocm: dict[str, str], work: Path) -> None:
    seen = told(cluster, ("-N2", "-n4", "--ntasks-per-node=2"), rocm, work, CONDA)
    assert [(one["LOCAL_RANK"], one["SLURM_LOCALID"], one["ROCR_VISIBLE_DEVICES"]) for one in seen] == [
        ("0", "0", "0"),
        ("0", "0", "0"),
        ("1", "1", "1"),
        ("1", "1", "1"),
    ]
    assert not any("CUDA_VISIBLE_DEVICES" in one for one in seen)


def test_a_mask_that_the_job_sets_itself_is_left_alone(cluster: Slurm, rocm: dict[str, str], work: Path) -> None:
    """Here in the task: where a cluster has GPUs, Slurm takes away what was set before and not asked of it."""
    for name in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        own = ("sh", "-c", f'export {name}=7; exec singularity -q exec "$SIF" {CONDA} tell.py')
        result = cluster.srun(("--quiet", "-N1", "-n2", *own), {**rocm}, work).ok()
        seen = [json.loads(line) for line in result.stdout.splitlines()]
        assert [{mask: one[mask] for mask in MASKS if mask in one} for one in seen] == [{name: "7"}] * 2


def test_as_many_processes_as_gpus(cluster: Slurm, rocm: dict[str, str], work: Path) -> None:
    options = ("-N2", "--ntasks-per-node=1", "--gres=gpu:2")
    seen = told(cluster, options, rocm, work, TORCHRUN)
    assert [(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"], one["ROCR_VISIBLE_DEVICES"]) for one in seen] == [
        ("0", "2", "0,1"),
        ("0", "2", "0,1"),
        ("1", "2", "0,1"),
        ("1", "2", "0,1"),
    ]
