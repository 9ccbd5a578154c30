"""A collective: PyTorch sums over all ranks of a node or of several, checks the sum, and measures how fast that is.

Of the network NCCL's or RCCL's own log tells, by the lines of NCCL_DEBUG=INFO with the subsystems INIT, NET and ENV,
from NCCL 2.18 and RCCL 2.18 on.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from sifmod.errors import OptionError, SanityCheckError
from sifmod.image.child import LATE, Ended, run_child

_LINE = re.compile(r"(?:(?P<host>\S+):\d+:\d+ )?(?:\[\d+\] )?.*?NCCL (?:INFO|WARN) (?P<text>.*)")
_VERSION = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d+(?:\.\d+)+(?:\+[\w.]+)?)")  # RCCL prints it without a prefix too
_CHOSEN = re.compile(r"Using network (.+)")
_DEVICE = re.compile(r"\[\d+\]([^:\s]+):(?:\d+/(IB|RoCE)\b)?")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,(]+)")
_PLUGIN = re.compile(r"(?:NET/OFI (?:Using|Initializing) (?=aws-ofi)|NET/Plugin ?: Loaded net plugin )(.+)")
_OVER_IB = re.compile(r"IB|NET/IB", re.IGNORECASE)
_OVER_TCP = ("tcp", "sockets", "udp", "net")  # libfabric's providers, as the first part of `tcp;ofi_rxm`
_FABRICS = {"efa": "EFA", "cxi": "Slingshot"}
# what went wrong before TCP was taken, or nothing: how the log says it, and where to look
_REASONS = (
    (r"NCCL_NET set by environment to Socket", "NCCL_NET=Socket asks for TCP: unset it, or give the fabric's name"),
    (r"NCCL_IB_DISABLE set by environment to [1-9]", "NCCL_IB_DISABLE turns InfiniBand and RoCE off: unset it"),
    (r"Failed to open libibverbs", "the image has no libibverbs: take one with rdma-core in it"),
    (r"NET/IB ?: No device found", "no InfiniBand or RoCE device is in reach: look into /sys/class/infiniband"),
    (r"NET/OFI.*(No eligible providers|fi_getinfo\(\) call failed|Unable to find a protocol)",
     "libfabric finds no provider: look for /dev/cxi* or /dev/infiniband, and for the provider's library inside"),
    (r"NET/OFI Selected [Pp]rovider is (tcp|sockets|udp|net)\b",
     "libfabric chose TCP: FI_PROVIDER names another one, and the libfabric in use must have it"),
    (r"Error: network .* not found|Failed to initialize any NET plugin",
     "the network that NCCL_NET names is not there: its plugin is not in the image, or does not fit this NCCL"),
    (r"(?!PROFILER|TUNER|GIN).*(?:lib[nr]ccl-net\S*: cannot open|No plugin found|Could not find: .*lib[nr]ccl-net)",
     "no network plugin was found: it must be in the image or bound into it, in reach of LD_LIBRARY_PATH"),
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """What carries a collective between nodes."""

    library: str  # NCCL or RCCL; "" where the log does not say
    version: str
    name: str  # as the library calls it: IB, Socket, AWS Libfabric; "" where none was chosen
    transport: str  # InfiniBand, RoCE, EFA, Slingshot, TCP, …
    plugin: str  # that was loaded for it, with its version; ""
    devices: tuple[str, ...]
    gpu_direct: bool | None  # whether the network reads the GPUs' memory; None where the log does not say
    tcp_hosts: tuple[str, ...]  # that chose TCP
    reasons: tuple[str, ...]  # why it may be that, and where to look

    @property
    def text(self) -> str:
        said = [f"{self.transport} ({self.name})" if self.name != self.transport else self.name]
        said += [", ".join(self.devices[:8])] if self.devices else []
        said += [f"{self.library} {self.version}".strip()] if self.library else []
        said += [f"plugin {self.plugin}"] if self.plugin else []
        if self.gpu_direct is not None:
            said.append(f"{'with' if self.gpu_direct else 'without'} GPU Direct RDMA")
        return "; ".join(said)


def read_log(lines: Sequence[str]) -> Network:
    """The network of a log; where its hosts chose several, that of those with TCP."""
    found = [match for match in map(_LINE.match, lines) if match]
    texts = tuple(dict.fromkeys(match["text"].strip() for match in found))
    chosen = [(match["host"] or "", said[1].strip()) for match in found if (said := _CHOSEN.match(match["text"]))]
    provider = next((said[1] for said in map(_PROVIDER.match, texts) if said), "")
    plugins = dict.fromkeys(said[1] for said in map(_PLUGIN.match, texts) if said)
    over_tcp = [(host, name) for host, name in chosen if name == "Socket" or _is_tcp(name, provider)]
    name = (over_tcp or chosen or [("", "")])[0][1]
    kind = "NET/Socket : Using" if name == "Socket" else "NET/IB : Using"
    found_devices = [device for text in texts if text.startswith(kind) for device in _DEVICE.finditer(text)]
    links = {device[2] for device in found_devices} - {None}
    version = next((match for match in map(_VERSION.search, lines) if match), None)
    return Network(
        library=version[1] if version else "",
        version=version[2] if version else "",
        name=name,
        transport=_transport(name, provider, "RoCE" if links == {"RoCE"} else "InfiniBand"),
        plugin="" if name in ("", "Socket", "IB") else ", ".join(plugins),
        devices=tuple(dict.fromkeys(device[1] for device in found_devices)) if _is_own(name) else (),
        gpu_direct=_gpu_direct(texts) if name and not over_tcp else None,
        tcp_hosts=tuple(dict.fromkeys(host for host, _ in over_tcp if host)),
        reasons=tuple(advice for said, advice in _REASONS if any(re.match(f".*?{said}", text) for text in texts)),
    )


def _is_own(name: str) -> bool:
    """Whether the devices are in the library's own words."""
    return name == "Socket" or _OVER_IB.match(name) is not None


def _is_tcp(name: str, provider: str) -> bool:
    return not _is_own(name) and provider.partition(";")[0] in _OVER_TCP


def _transport(name: str, provider: str, link: str) -> str:
    if name == "Socket" or _is_tcp(name, provider):
        return "TCP"
    if _is_own(name):
        return link
    return _FABRICS.get(provider, f"libfabric over {provider}" if provider else name)


def _gpu_direct(texts: Sequence[str]) -> bool | None:
    """As connections between nodes have it, else as the devices can, else as the rings do."""
    if nets := [text for text in texts if " via NET/" in text]:
        return all("/GDRDMA" in text for text in nets)
    if said := [text for text in texts if "GPU Direct RDMA" in text and re.search(r"\b(?i:enabled|disabled)\b", text)]:
        return all(re.search(r"\b(?i:enabled)\b", text) for text in said)
    if any(re.search(r"nNodes (?!1\b)\d+", text) for text in texts):
        rings = [text for text in texts if text.startswith("Connected all rings") and " GDR " in text]
        return all(text.rstrip().endswith("GDR 1") for text in rings) if rings else None
    return None


_LAUNCH = 'sifmod_bin=$1; shift; . "${sifmod_bin%/bin}/share/launch.sh"; launch "$@"'
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?(?!.*ChildFailed)(?:[\w.]+Error\b|FATAL|gpu-check: |the sum over)")
_HINT = "hint: "  # as our own scripts give it
_KEPT = 1 << 24  # bytes: the log of NCCL has some hundred lines for each node
# of another job or launcher around this command, or of a step that is not the test's own
_LEFT_OUT = (
    *("MASTER_", "PET_", "TORCHELASTIC_", "NCCL_DEBUG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD", "NODE_RANK"),
    *("SLURM_STEP_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND"),
    *("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"),
)


@dataclass(frozen=True)
class Place:
    """Where the commands of a module are started."""

    root: Path  # of the generation
    nodes: int | None  # of the allocation; None: here, without srun
    limit: float  # seconds for each command

    def run(self, *words: str, tasks: int = 1, env: Mapping[str, str] | None = None) -> Ended:
        """Run a command inside, on each node as so many tasks; its exit code is LATE where the time was over.

        It runs in `/`, which each node has: Python would import what is in the user's directory.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        srun: tuple[str, ...] = ()
        if self.nodes is not None:
            count = (f"--nodes={self.nodes}", f"--ntasks={self.nodes * tasks}", f"--ntasks-per-node={tasks}")
            srun = (which("srun") or "srun", "--quiet", "--overlap", "--overcommit", "--kill-on-bad-exit=1", *count)
        launch = (*srun, "/bin/sh", "-c", _LAUNCH, "sh", f"{self.root}/bin", *words)
        return run_child(launch, cwd=Path("/"), env={**environment, **(env or {})}, limit=self.limit, kept=_KEPT)


def nodes_of(wanted: int | None) -> int | None:
    """The number of nodes for srun. Raises OptionError outside an allocation, and in one with fewer nodes."""
    if wanted is None:
        return None
    job, held = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if not job or which("srun") is None:
        raise OptionError(
            f"--nodes {wanted} needs an allocation of Slurm, and this is none",
            f"add --job, which submits the test as a job; or type it in one: salloc --nodes={wanted} …",
        )
    if held.isdigit() and int(held) < wanted:
        raise OptionError(f"job {job} has {held} node(s), and --nodes asks for {wanted}", "take a larger allocation")
    return wanted


def check_ended(ended: Ended, limit: float) -> None:
    """Raise SanityCheckError for a command that failed: why in the first line, what it said about it in the others."""
    if ended.code == 0:
        return
    hints = [line.removeprefix(_HINT) for line in ended.lines if line.startswith(_HINT)]
    why = f"exit code {ended.code}"
    if ended.code == LATE:
        why = f"not done after {limit:.0f} s"
        hints.append("`--timeout SECONDS` gives each command more time")
    hint = "".join(hints[:1])
    lines = [line for line in ended.lines if not line.startswith(_HINT)]
    if not lines:
        raise SanityCheckError(f"{why}, and it said nothing", hint)
    errors = [number for number, line in enumerate(lines) if _ERROR.match(line)]
    at = errors[-1] if errors else len(lines) - 1
    raise SanityCheckError("\n".join((f"{why}: {lines[at].strip()}", *lines[max(0, at - 9) : at + 1])), hint)


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
class Bandwidth:
    """Of an all-reduce, in GB/s (10⁹ bytes)."""

    tool: str  # all_reduce_perf or torch
    ranks: int
    size: int  # bytes that are reduced
    algorithm: float  # size by time
    bus: float  # what each link carries: algorithm · 2(n-1)/n


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
