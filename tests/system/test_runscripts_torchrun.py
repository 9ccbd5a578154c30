"""The runscript torchrun-distributed: what torchrun is told. Real jobs are in test_slurm_torchrun.py."""

import json
from pathlib import Path

import pytest

from plans import plan
from support.generation import SHELLS
from support.runscripts import CACHES, Runscripts, step

NO_TORCH = "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:]], sys.stdout)\n"


class Launcher:
    """The runscript with a torchrun that only says what it was told."""

    def __init__(self, directory: Path) -> None:
        module = directory / "lib" / "torch" / "distributed"
        module.mkdir(parents=True)
        for package in (module, module.parent):
            (package / "__init__.py").touch()
        (module / "run.py").write_text(NO_TORCH)
        self.env = {"PYTHONPATH": str(directory / "lib")}
        self._runscripts = Runscripts(directory, plan(accelerator="rocm", runscript_env=(("NCCL_NET", "OFI"),)))

    def told(
        self, *words: str, env: dict[str, str], shell: tuple[str, ...] = ("dash",), errors: str = ""
    ) -> tuple[dict[str, str], list[str]]:
        """Its options, and the words behind them."""
        result = self._runscripts.run("torchrun-distributed", *words, env={**self.env, **env}, shell=shell).ok()
        assert result.stderr == errors
        environment, given = json.loads(result.stdout)
        assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "ROCR_VISIBLE_DEVICES"} & (set(environment) - set(env))
        assert set(environment) >= {*CACHES[:5], "NCCL_NET"}
        own = given[: len(given) - len(words)] if words[:1] != ("-n",) else given[: len(given) - len(words) + 2]
        return dict(option.removeprefix("--").split("=", 1) for option in own), given[len(own) :]


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


def alone(node: int, **more: str) -> dict[str, str]:
    """The environment of one task of a step with one task on each of two nodes."""
    own = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(node), "SLURM_LOCALID": "0", "SLURM_NODEID": str(node)}
    return {**step(0, "1(x2)"), **own, "SLURMD_NODENAME": f"nid00000{7 + 2 * node}", **more}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_one_launcher_on_each_node(launcher: Launcher, shell: tuple[str, ...]) -> None:
    ports = set()
    for node in (0, 1):
        options, words = launcher.told("-n", "8", "train.py", "--lr", "a b", env=alone(node), shell=shell)
        address, _, port = options.pop("rdzv_endpoint").partition(":")
        ports.add(port)
        assert (address, words) == ("nid000007", ["train.py", "--lr", "a b"])
        assert options == {
            "nnodes": "2",
            "nproc_per_node": "8",
            "rdzv_backend": "c10d",
            "rdzv_id": "4711.0",
            "rdzv_conf": f"is_host={1 - node}",
            "local_addr": f"nid00000{7 + 2 * node}",
        }
    assert len(ports) == 1


def test_what_a_launcher_says_of_its_step(launcher: Launcher) -> None:
    """In a step of five tasks on three nodes, each number of which is another one."""
    five = {**step(4, "3,1(x2)", step=7), "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_NUM_NODES": "3"}
    options, _ = launcher.told("-n", "6", "train.py", env={**five, "SLURM_NODEID": "2", "SLURM_LOCALID": "0"})
    assert options.pop("rdzv_endpoint").startswith("nid000007:")
    assert options == {
        "nnodes": "3", "nproc_per_node": "6", "rdzv_backend": "c10d", "rdzv_id": "4711.7", "rdzv_conf": "is_host=0",
    }  # fmt: skip
    static = {**five, "SLURM_NODEID": "2", "SLURM_LOCALID": "0", "PET_RDZV_BACKEND": "static"}
    assert launcher.told("train.py", env=static)[0]["node_rank"] == "2"


def test_the_other_tasks_of_a_node_end_at_once(launcher: Launcher) -> None:
    result = launcher._runscripts.run("torchrun-distributed", "train.py", env={**launcher.env, **step(1)})
    assert (result.code, result.stdout, result.stderr) == (0, "", "")
    assert launcher.told("train.py", env=step(2))[0]["nproc_per_node"] == "2"
    uneven = {**step(2, "3,1"), "SLURM_LOCALID": "0"}
    assert launcher.told("train.py", env=uneven)[0]["nproc_per_node"] == "1"


@pytest.mark.parametrize(
    ("slurm", "processes"),
    [
        ({}, "1"),
        ({"SLURM_GPUS_ON_NODE": "8"}, "8"),
        ({"SLURM_GPUS_PER_NODE": "4"}, "4"),
        ({"SLURM_GPUS_PER_NODE": "a100:2,a40:1"}, "3"),
        ({"SLURM_GPUS_PER_NODE": "a100"}, "1"),
        ({"SLURM_GPUS_ON_NODE": "8", "ROCR_VISIBLE_DEVICES": "0,1"}, "2"),
        ({"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}, "3"),
        ({"SLURM_GPUS_ON_NODE": "8", "HIP_VISIBLE_DEVICES": ""}, "8"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "1"),
        ({"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "-1", "GPU_DEVICE_ORDINAL": "3,1,2"}, "3"),
        ({"SLURM_GPUS_ON_NODE": "8", "ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "1,0"}, "2"),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2,3,4", "CUDA_VISIBLE_DEVICES": "0,1"}, "5"),
        ({"SLURM_GPUS_ON_NODE": "8", "PET_NPROC_PER_NODE": "5"}, None),  # torchrun reads that itself
    ],
)
def test_how_many_processes(launcher: Launcher, slurm: dict[str, str], processes: str | None) -> None:
    assert launcher.told("train.py", env=alone(0, **slurm))[0].get("nproc_per_node") == processes
    assert launcher.told("-n", "6", "train.py", env=alone(0, **slurm))[0]["nproc_per_node"] == "6"
    outside = {name: value for name, value in slurm.items() if not name.startswith("SLURM_")}
    assert "nnodes" in launcher.told("train.py", env=outside)[0]


def test_a_launcher_that_sees_the_gpu_of_its_task_only(launcher: Launcher) -> None:
    said = "torchrun-distributed: this launcher sees 1 GPU(s) for 2 processes; use srun --ntasks-per-node=1\n"
    one = {**step(0), "ROCR_VISIBLE_DEVICES": "0"}
    launcher.told("train.py", env=one, errors=said)
    launcher.told("-n", "gpu", "train.py", env=one)  # torchrun's own words
    launcher.told("-n", "1", "train.py", env=one)
    launcher.told("train.py", env={**step(0), "ROCR_VISIBLE_DEVICES": "0,1"})  # as many as tasks
    launcher.told("-n", "3", "train.py", env=step(0))  # nobody says how many GPUs there are


def test_what_the_user_has_set_stays(launcher: Launcher) -> None:
    mine = {"MASTER_ADDR": "mine", "MASTER_PORT": "1234"}
    options, _ = launcher.told("train.py", env=alone(1, **mine))
    assert options["rdzv_endpoint"] == "mine:1234"
    assert "rdzv_conf" not in options  # torchrun finds out itself where that is
    for name in ("NNODES", "RDZV_ID", "RDZV_BACKEND", "RDZV_ENDPOINT", "LOCAL_ADDR", "RDZV_CONF"):
        options, _ = launcher.told("train.py", env=alone(0, **{f"PET_{name}": "mine"}))
        assert name.lower() not in options


@pytest.mark.parametrize("words", [("--rdzv_backend=static", "train.py"), ("--rdzv-backend", "static", "train.py")])
def test_the_static_rendezvous_needs_the_nodes_number(launcher: Launcher, words: tuple[str, ...]) -> None:
    assert launcher.told(*words, env=alone(1))[0]["node_rank"] == "1"
    assert "node_rank" not in launcher.told("train.py", env=alone(1))[0]


def test_outside_a_step(launcher: Launcher) -> None:
    batch = {name: value for name, value in step(0).items() if not name.startswith("SLURM_STEP_")}
    for environment in ({}, batch):
        options, _ = launcher.told("train.py", env=environment)
        assert options.pop("rdzv_id")
        endpoint = {"rdzv_endpoint": "localhost:0"}
        assert options == {"nnodes": "1", "nproc_per_node": "1", "rdzv_backend": "c10d", **endpoint}
    assert launcher.told("train.py", env={"MASTER_PORT": "1234"})[0]["rdzv_endpoint"] == "localhost:1234"


@pytest.mark.parametrize("words", [("-n",), ("-n", ""), ("-n", "-1"), ("-n", "two words", "x")])
def test_a_number_that_is_none(launcher: Launcher, words: tuple[str, ...]) -> None:
    result = launcher._runscripts.run("torchrun-distributed", *words, env=launcher.env)
    assert (result.code, result.stderr[:26]) == (2, "torchrun-distributed: -n n")
