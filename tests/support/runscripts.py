"""The runscripts of one plan, run on the host, where they need no more than a Python."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sifmod.module.plan import Plan
from support.command import Result, run
from support.generation import make_generation

ALL = (
    "conda-python-simple", "conda-python-distributed", "torchrun-distributed", "get-master", "start-shell",
    "list-packages", "gpu-check", "init-conda-venv",
)  # fmt: skip
# a Python that says what it was given
SHOW = ("-c", "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:]], sys.stdout)")
CACHES = (
    "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "AITER_JIT_DIR",
    "CUDA_CACHE_PATH",
)  # fmt: skip
PYTHON = Path(sys.executable).parent


def step(task: int, tasks_per_node: str = "2(x2)", *, job: int = 4711, step: int = 0) -> dict[str, str]:
    """What srun gives to one task of a step with two tasks on each node but the last."""
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
        "SLURM_STEP_NODELIST": "nid[000007-000009]",
        "SLURM_JOB_NODELIST": "nid[000001-000099]",
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task % 2),
        "SLURM_NODEID": str(task // 2),
    }


class Runscripts:
    """Everything a plan renders, below `prefix`, where also TMPDIR is."""

    def __init__(self, prefix: Path, wanted: Plan) -> None:
        self.directory = make_generation(replace(wanted, prefix=str(prefix), runscripts=ALL), None) / "runscripts"
        self._base = {"PATH": f"{PYTHON}:/usr/bin:/bin", "TMPDIR": str(prefix)}

    def run(
        self, name: str, *args: str, env: Mapping[str, str] | None = None, shell: tuple[str, ...] = ("dash",)
    ) -> Result:
        return run((*shell, self.directory / name, *args), env={**self._base, **(env or {})})

    def environment(
        self, env: Mapping[str, str] | None = None, shell: tuple[str, ...] = ("dash",), *, caches: bool = False
    ) -> dict[str, str]:
        """What Python is given by conda-python-distributed beyond what was there, with or without its caches."""
        result = self.run("conda-python-distributed", *SHOW, env=env, shell=shell).ok()
        assert result.stderr == ""
        found = json.loads(result.stdout)[0]
        known = {**self._base, **(env or {})}
        own = ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", *(() if caches else CACHES))
        return {key: value for key, value in found.items() if key not in own and known.get(key) != value}
