"""A Job: the data of one generation of a module for its job scripts; and the text of a job script."""

import json
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from sifmod.module.plan import RUNSCRIPTS_TARGET, Help, Plan
from sifmod.module.scripts import TEMPLATES
from sifmod.module.variables import image_variables, state_key
from sifmod.system import one_line

JOB = "share/job.json"
Style = Literal["srun", "torchrun", "lightning", "nccl-tests"]
DISTRIBUTED, TORCHRUN = "conda-python-distributed", "torchrun-distributed"


@dataclass(frozen=True)
class Job:
    """The data of one generation, and of its site, for every job script."""

    module: str
    name: str  # of the job
    key: str  # the module's name within names of variables: variables.state_key
    images: tuple[str, ...]  # the variables with the image's path
    start: str  # the words before "$SIF"
    command: str  # the command of a job, as shell words
    inside: bool  # whether `command` runs with "$SIF" and is not a wrapper
    distributed: bool  # whether each task starts it; else it is started once
    runscripts: tuple[str, ...]
    gpus: int  # per node; 0 for an image without GPUs
    cpus: int  # per GPU; 0 if the site does not set it
    cpu_bind: str
    directory: str  # a node-local directory, for copies


@dataclass(frozen=True)
class JobOptions:
    """The user's options for one job script; `words`: the command, unless the style is `srun`; `mpi`: srun's --mpi."""

    style: Style = "srun"
    nodes: int = 0  # 0: two for a distributed job, else one
    time: str = "00:30:00"
    account: str = "PROJECT"
    partition: str = "PARTITION"
    bcast: bool = False
    words: str = ""
    mpi: str = ""
    launchers: bool = False  # one task per node, which starts the others


def job_of(plan: Plan) -> Job:
    command, inside, distributed = _command(plan)
    gpus = plan.gpus_per_node if plan.accelerator != "none" else 0
    return Job(
        module=str(plan.module),
        name=plan.module.name,
        key=state_key(plan.module),
        images=image_variables(plan.module),
        start=f"{plan.runtime.kind} {plan.verb}",
        command=command,
        inside=inside,
        distributed=distributed,
        runscripts=plan.runscripts,
        gpus=gpus,
        cpus=plan.cpus_per_gpu if gpus else 0,
        cpu_bind=plan.cpu_bind if gpus else "",
        directory=plan.cache_directory or "/tmp",  # noqa: S108 (a directory in it, which only this user can enter)
    )


def _command(plan: Plan) -> tuple[str, bool, bool]:
    """The command, with Python if the image has a usable one; whether it runs inside; whether each task starts it."""
    names = [wrapper.name for wrapper in plan.wrappers if wrapper.command != (f"{RUNSCRIPTS_TARGET}/{wrapper.name}",)]
    has_python = bool({"python", "python3", "torchrun"} & set(names))
    if DISTRIBUTED in plan.runscripts and (has_python or plan.activation.with_conda != "true"):
        return f"{DISTRIBUTED} -u train.py", True, True
    if has_python:
        return "python train.py", False, False
    return (names[0], False, False) if names else ("COMMAND", True, False)


def to_json(job: Job | None, about: Help) -> str:
    """The text of the file `JOB` of a generation; `job`: None for a view. `about` is the module's own data."""
    return json.dumps((vars(job) if job else {}) | {"about": vars(about)}, indent=1, sort_keys=True) + "\n"


def from_json(text: bytes) -> Job:
    """Parse the text of `to_json`. Raises ValueError for invalid data: other users may have written it."""
    job: Job = _adapter(Job).validate_json(text, strict=True)
    texts = [str(value) for kept in astuple(job) for value in (kept if isinstance(kept, tuple) else (kept,))]
    if any(text != one_line(text) for text in texts):
        raise ValueError("a text with control characters")
    return job


def about_from_json(text: bytes) -> Help:
    """The module's own data, as passed to `to_json`. Raises ValueError, KeyError or TypeError for invalid data."""
    about: Help = _adapter(Help).validate_python(json.loads(text)["about"])
    return about


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def job_script(job: Job, options: JobOptions, modules: str) -> str:
    """A job script for Slurm; `modules` is the directory for `module use`, as a shell word."""
    distributed = job.distributed or bool(options.words)
    once = options.launchers or not distributed
    return TEMPLATES.get_template("job.sh.j2").render(
        job=job,
        options=options,
        nodes=options.nodes or (2 if distributed else 1),
        tasks=1 if once else job.gpus or 1,
        whole=distributed or job.gpus > 0,
        cpus=job.cpus * (job.gpus if once else 1),
        modules=modules,
        srun=" ".join(
            [
                "srun",
                *([f"--mpi={options.mpi}"] if options.mpi else []),
                *([f"--cpu-bind={job.cpu_bind}"] if job.cpu_bind and not once else []),
                *([f'{job.start} "$SIF"'] if job.inside or options.words else []),
                options.words or job.command,
            ]
        ),
    )
