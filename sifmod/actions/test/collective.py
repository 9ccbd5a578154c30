"""A collective: PyTorch sums over all ranks of one or more nodes, checks the sum, and measures the bandwidth."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal

from sifmod.actions.script_output import AS_FIELDS, FIELDS, said
from sifmod.errors import OptionError, SanityCheckError
from sifmod.image.child import LATE, Ended, run_child
from sifmod.result import Described, Size

_LAUNCH = 'sifmod_bin=$1; shift; . "${sifmod_bin%/bin}/share/launch.sh"; launch "$@"'
# the errors of Python and of the runtime
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?(?!.*ChildFailed)(?:[\w.]+Error\b|FATAL)")
_KEPT = 1 << 24  # bytes: NCCL logs some hundred lines per node
# variables of an outer job or launcher, or of another job step
_LEFT_OUT = (
    *("MASTER_", "PET_", "TORCHELASTIC_", "NCCL_DEBUG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD", "NODE_RANK"),
    *("SLURM_STEP_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND"),
    *("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"),
)


@dataclass(frozen=True)
class Place:
    root: Path  # of the generation
    nodes: int | None  # nodes of the allocation; None: this node, without srun
    limit: float  # seconds for each command

    def run(self, *words: str, tasks: int = 1, env: Mapping[str, str] | None = None) -> Ended:
        """Run a command in the container, by srun with `tasks` tasks per node or once; a timeout gives the code LATE.

        It runs in `/`, which each node has and where Python imports no user files.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        srun: tuple[str, ...] = ()
        if self.nodes is not None:
            count = (f"--nodes={self.nodes}", f"--ntasks={self.nodes * tasks}", f"--ntasks-per-node={tasks}")
            srun = (which("srun") or "srun", "--quiet", "--overlap", "--overcommit", "--kill-on-bad-exit=1", *count)
        launch = (*srun, "/bin/sh", "-c", _LAUNCH, "sh", f"{self.root}/bin", *words)
        own = {**environment, **AS_FIELDS, **(env or {})}
        return run_child(launch, cwd=Path("/"), env=own, limit=self.limit, kept=_KEPT, whole=True)


def nodes_of(wanted: int | None) -> int | None:
    """Return `wanted`, the nodes for srun. Unless None, raises OptionError without an allocation of so many nodes."""
    if wanted is None:
        return None
    job, held = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if not job or which("srun") is None:
        if job:
            raise OptionError(f"--nodes {wanted} needs srun, which is not on PATH", "put Slurm's commands on PATH")
        raise OptionError(
            f"--nodes {wanted} needs an allocation of Slurm, and this is not one",
            f"add --job to submit the test as a job, or run it in an allocation: salloc --nodes={wanted} …",
        )
    if held.isdigit() and int(held) < wanted:
        raise OptionError(f"job {job} has {held} node(s), and --nodes asks for {wanted}", "use a larger allocation")
    return wanted


def check_ended(ended: Ended, limit: float) -> None:
    """Raise SanityCheckError for a failed command: the reason in the first line, its output in the others."""
    if ended.code == 0:
        return
    lines = said(ended)
    hints = [line.hint for line in lines if line.hint]
    why = f"exit code {ended.code}"
    if ended.code == LATE:
        why = f"not finished within {limit:.0f} s"
        hints.append("`--timeout SECONDS` gives each command more time")
    hint = "".join(hints[:1])
    if not lines:
        raise SanityCheckError(f"{why}, without output", hint)
    errors = [number for number, line in enumerate(lines) if line.hint is not None or _ERROR.match(line.text)]
    at = errors[-1] if errors else len(lines) - 1
    output = (line.text for line in lines[max(0, at - 9) : at + 1])
    raise SanityCheckError(f"{why}: {lines[at].text.strip()}", hint, output)


_MARK = "sifmod: "  # marks the output of sifmod's own programs
_TELL = f"""
import json, os, socket
def tell(**found):
    found["node"] = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    os.write(1, ("\\n{_MARK}" + json.dumps(found) + "\\n").encode())  # at once: others write there too
def fail(why):
    os.write(2, {FIELDS!r}.format(why, "").encode())
    raise SystemExit(1)
"""
_LOOK = f"""{_TELL}
import importlib.util, shutil, sys
found = {{"torch": importlib.util.find_spec("torch") is not None, "gpus": 0}}
found["all_reduce_perf"] = shutil.which("all_reduce_perf") is not None
if found["torch"] and sys.argv[1] != "none":
    import torch
    found["gpus"] = torch.cuda.device_count()
tell(**found)
"""
# images without Python and modules without this runscript are fine too
_START = f"""conda-python-simple -c "$1" "$2" || {{
  [ $? = 127 ] && printf '{_MARK}{{"node": "%s", "torch": false, "gpus": 0, "all_reduce_perf": false}}\\n' \\
    "${{SLURMD_NODENAME:-$(uname -n)}}"
}}"""
# only one process per node logs in detail; each rank has one GPU
_COLLECTIVE = f"""{_TELL}
import sys, time
backend, size, times = sys.argv[1], int(sys.argv[2]), 10
rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
if local:
    os.environ.pop("NCCL_DEBUG", None)
import torch, torch.distributed as dist
device = torch.device("cpu")
if backend == "nccl":
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group(backend)
ranks = torch.full((1024,), rank + 1.0, device=device)
dist.all_reduce(ranks)
wanted = world * (world + 1) / 2
if not bool((ranks == wanted).all()):
    fail(f"the sum over {{world}} ranks is {{ranks[0].item()}} and not {{wanted}}")
data = torch.ones(size // 4, device=device)
for number in range(times + 3):  # the first three warm up
    if number == 3:
        dist.barrier()
        if backend == "nccl":
            torch.cuda.synchronize()
        began = time.perf_counter()
    dist.all_reduce(data)
if backend == "nccl":
    torch.cuda.synchronize()
tell(rank=rank, world=world, seconds=(time.perf_counter() - began) / times, torch=torch.__version__)
dist.destroy_process_group()
"""
_SIZES = {"nccl": 1 << 28, "gloo": 1 << 24}  # bytes
_PERF_ROW = re.compile(r"\s*(\d+)(?:\s+\S+){4}\s+[\d.]+\s+([\d.]+)\s+([\d.]+)\s")  # size, …, time, algbw, busbw


@dataclass(frozen=True)
class Bandwidth:
    """The bandwidth of an all-reduce, in GB/s (10⁹ bytes)."""

    tool: Literal["all_reduce_perf", "torch"]
    ranks: int
    size: Annotated[Size, Described("bytes that are reduced")]
    algorithm: Annotated[float, Described("algorithm bandwidth: size by time")]
    bus: Annotated[float, Described("bus bandwidth: algorithm · 2(n-1)/n, for n ranks: the load of each link")]


@dataclass(frozen=True)
class Found:
    nodes: tuple[str, ...]
    torch: bool
    gpus: int  # the fewest GPUs of any node
    all_reduce_perf: bool


def look(place: Place, accelerator: str) -> Found:
    """What the image has, found by a start on every node. Raises SanityCheckError if the start or its Python fails."""
    ended = place.run("/bin/sh", "-c", _START, "sh", _LOOK, accelerator)
    check_ended(ended, place.limit)
    answers = _answers(ended, place.nodes or 1)
    return Found(
        tuple(sorted(str(one["node"]) for one in answers)),
        all(one["torch"] for one in answers),
        min(one["gpus"] for one in answers),
        all(one["all_reduce_perf"] for one in answers),
    )


def run_collective(place: Place, backend: str, tasks: int, launcher: str, env: dict[str, str]) -> Ended:
    """Run the collective with `tasks` ranks per node; `launcher` is a runscript."""
    words = ("-c", _COLLECTIVE, backend, str(_SIZES[backend]))
    if launcher == "torchrun-distributed":
        return place.run(launcher, "-n", str(tasks), "--no-python", "conda-python-simple", *words, env=env)
    return place.run(launcher, *words, tasks=tasks, env=env)


def measured(ended: Ended, backend: str, ranks: int) -> Bandwidth:
    """The result of a successful collective. Raises SanityCheckError if ranks are missing."""
    seconds = max(float(one["seconds"]) for one in _answers(ended, ranks))
    rate = _SIZES[backend] / seconds / 1e9
    return Bandwidth("torch", ranks, _SIZES[backend], rate, rate * 2 * (ranks - 1) / ranks)


def perf(place: Place, gpus: int) -> Bandwidth:
    """The result of NVIDIA's or AMD's all_reduce_perf on this node. Raises SanityCheckError."""
    size = _SIZES["nccl"]
    ended = place.run("all_reduce_perf", "-b", str(size), "-e", str(size), "-g", str(gpus))
    check_ended(ended, place.limit)
    return read_perf(ended.lines, gpus)


def read_perf(lines: Sequence[str], ranks: int) -> Bandwidth:
    """The out-of-place bandwidth of the largest size in the table of all_reduce_perf. Raises SanityCheckError."""
    rows = [match for match in map(_PERF_ROW.match, lines) if match]
    if not rows:
        raise SanityCheckError("all_reduce_perf printed no table", output=lines[-20:])
    return Bandwidth("all_reduce_perf", ranks, int(rows[-1][1]), float(rows[-1][2]), float(rows[-1][3]))


def _answers(ended: Ended, number: int) -> list[dict[str, Any]]:
    answers = []
    for line in ended.lines:
        _, mark, text = line.partition(_MARK)
        with suppress(ValueError):  # a line garbled by another process
            answers += [json.loads(text)] if mark else []
    if len(answers) != number:
        raise SanityCheckError(f"{len(answers)} of {number} processes answered", output=ended.lines[-20:])
    return answers
