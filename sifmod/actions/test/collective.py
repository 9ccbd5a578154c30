"""A collective: PyTorch sums over all ranks, checks the sum, and measures how fast that goes."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sifmod.actions.test.outcome import Bandwidth
from sifmod.actions.test.start import Place, check_ended
from sifmod.errors import SanityCheckError
from sifmod.image.child import Ended

_MARK = "sifmod: "  # before what a program of ours prints
_TELL = f"""
import json, os, socket
def tell(**found):
    found["node"] = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    os.write(1, ("\\n{_MARK}" + json.dumps(found) + "\\n").encode())  # at once: others write there too
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
# an image without Python, or a module without this runscript, is none the worse for it
_START = f"""conda-python-simple -c "$1" "$2" || {{
  [ $? = 127 ] && printf '{_MARK}{{"node": "%s", "torch": false, "gpus": 0, "all_reduce_perf": false}}\\n' \\
    "${{SLURMD_NODENAME:-$(uname -n)}}"
}}"""
# only one process of a node logs at length; each GPU is one rank's
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
    raise SystemExit(f"the sum over {{world}} ranks is {{ranks[0].item()}} and not {{wanted}}")
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
class Found:
    """What there is on the nodes."""

    nodes: tuple[str, ...]
    torch: bool
    gpus: int  # on each node, the fewest
    all_reduce_perf: bool


def look(place: Place, accelerator: str) -> Found:
    """Start the image on each node. Raises SanityCheckError where it does not start, or its Python fails."""
    ended = place.run("/bin/sh", "-c", _START, "sh", _LOOK, accelerator)
    check_ended(ended, place.limit)
    told = _told(ended, place.nodes or 1)
    return Found(
        tuple(sorted(str(one["node"]) for one in told)),
        all(one["torch"] for one in told),
        min(one["gpus"] for one in told),
        all(one["all_reduce_perf"] for one in told),
    )


def run_collective(place: Place, backend: str, tasks: int, launcher: str, env: dict[str, str]) -> Ended:
    """Run it with so many ranks on each node; `launcher` is a runscript."""
    words = ("-c", _COLLECTIVE, backend, str(_SIZES[backend]))
    if launcher == "torchrun-distributed":
        return place.run(launcher, "-n", str(tasks), "--no-python", "python", *words, env=env)
    return place.run(launcher, *words, tasks=tasks, env=env)


def measured(ended: Ended, backend: str, ranks: int) -> Bandwidth:
    """What a collective that ended well has measured. Raises SanityCheckError where not all of its ranks were there."""
    seconds = max(float(one["seconds"]) for one in _told(ended, ranks))
    rate = _SIZES[backend] / seconds / 1e9
    return Bandwidth("torch", ranks, _SIZES[backend], rate, rate * 2 * (ranks - 1) / ranks)


def run_perf(place: Place, gpus: int) -> Bandwidth:
    """What NVIDIA's or AMD's own all_reduce_perf measures on this node. Raises SanityCheckError."""
    size = _SIZES["nccl"]
    ended = place.run("all_reduce_perf", "-b", str(size), "-e", str(size), "-g", str(gpus))
    check_ended(ended, place.limit)
    return read_perf(ended.lines, gpus)


def read_perf(lines: Sequence[str], ranks: int) -> Bandwidth:
    """The bandwidth of the largest size in the table of all_reduce_perf, out of place. Raises SanityCheckError."""
    rows = [match for match in map(_PERF_ROW.match, lines) if match]
    if not rows:
        raise SanityCheckError("\n".join(("all_reduce_perf printed no table", *lines[-20:])))
    return Bandwidth("all_reduce_perf", ranks, int(rows[-1][1]), float(rows[-1][2]), float(rows[-1][3]))


def _told(ended: Ended, number: int) -> list[dict[str, Any]]:
    told = []
    for line in ended.lines:
        _, mark, text = line.partition(_MARK)
        with suppress(ValueError):  # a line that another process has written into
            told += [json.loads(text)] if mark else []
    if len(told) != number:
        raise SanityCheckError("\n".join((f"{len(told)} of {number} processes answered", *ended.lines[-20:])))
    return told
