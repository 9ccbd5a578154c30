"""A survey of this machine for a new site file: what is found, and what could not be found out."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import NamedTuple

from sifmod.config.input import module_tools
from sifmod.config.kinds import Syntax
from sifmod.config.limits import matches

SLURM = ("/var/spool/slurmd", "/var/spool/slurm", "/run/munge")
FABRIC = ("/opt/cray", "/opt/amazon/efa")  # InfiniBand needs nothing from the host: the image has its own rdma-core
HOST_LIBRARIES = ("/usr/lib64/libcxi.so*", "/usr/lib/*-linux-gnu/libcxi.so*")
_NETWORKS = ("/sys/class/net/hsn*", "/sys/class/net/ib*")
_PARALLEL = ("lustre", "gpfs", "beegfs", "wekafs", "ceph", "nfs", "nfs4", "fhgfs", "panfs", "afs")
_MOUNTS = "/proc/self/mounts"
_SCRATCH = ("/scratch", "/work", "/lustre", "/gpfs", "/local", "/local/scratch", "/localscratch", "/lscratch", "/ssd")
_SCRATCH_VARIABLES = ("SCRATCH", "SCRATCHDIR", "WORK", "WORKDIR", "LOCAL_SCRATCH")
_GPU = re.compile(r"gpu:(?:([^:,(]*[^:,(\d][^:,(]*):)?(\d{1,9})")  # gpu:4, gpu:a100:4(S:0-1), gpu:1g.5gb:7
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]*")
_TIMEOUT = 20  # seconds


class Partition(NamedTuple):
    """A partition of Slurm. Its nodes may differ: then the counts are those of each kind of node, sorted."""

    name: str
    gpus: tuple[int, ...]  # per node
    types: tuple[str, ...]  # of the GPUs, as the administrators call them
    cpus: tuple[int, ...]
    default: bool


@dataclass(frozen=True)
class Survey:
    """What was found on this machine: paths, networks, partitions and module tools."""

    slurm: tuple[str, ...]
    fabric: tuple[str, ...]
    host_libraries: tuple[str, ...]  # patterns
    filesystems: tuple[str, ...]  # where machine-wide file systems are mounted, except home directories
    networks: tuple[str, ...]  # interfaces of fast networks
    scratch: tuple[str, ...] = ()  # directories of this user, with `$USER`
    partitions: tuple[Partition, ...] = ()
    no_partitions: str = "Slurm was not asked"  # why there are none
    tools: tuple[Syntax, ...] = ()  # module tools


def survey(mounts: str = _MOUNTS, environ: Mapping[str, str] = os.environ) -> Survey:
    """Inspect this machine; asks Slurm's `sinfo` for partitions."""
    filesystems = _filesystems(mounts)
    partitions, reason = _partitions()
    return Survey(
        slurm=tuple(path for path in SLURM if Path(path).exists()),
        fabric=tuple(path for path in FABRIC if Path(path).exists()),
        host_libraries=tuple(pattern for pattern in HOST_LIBRARIES if matches(pattern)),
        filesystems=filesystems,
        networks=tuple(Path(path).name for pattern in _NETWORKS for path in matches(pattern)),
        scratch=_scratch(filesystems, environ),
        partitions=partitions,
        no_partitions=reason,
        tools=module_tools(environ),
    )


def _filesystems(mounts: str) -> tuple[str, ...]:
    try:
        lines = [line.split() for line in Path(mounts).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ()
    shared = {fields[1] for fields in lines if len(fields) > 2 and fields[2] in _PARALLEL and "\\" not in fields[1]}
    return tuple(sorted(place for place in shared if place != "/" and not place.startswith(("/home", "/root"))))


def _scratch(filesystems: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The user's directories outside the home, named like the user: in usual places, and those of variables."""
    user = environ.get("USER", "")
    if not _NAME.fullmatch(user):
        return ()
    tops = dict.fromkeys((*filesystems, *_SCRATCH))
    places = [f"{top}{middle}/{user}" for top in tops for middle in ("", "/users", "/scratch")]
    places += [environ.get(name, "").rstrip("/") for name in _SCRATCH_VARIABLES]
    own = (place for place in dict.fromkeys(places) if place.startswith("/") and place.endswith(f"/{user}"))
    home = Path(os.path.realpath(environ.get("HOME", "/")))
    found: dict[str, str] = {}  # by their real paths
    for place in own:
        real = Path(os.path.realpath(place))
        if _is_own(place) and not real.is_relative_to(home):
            found.setdefault(str(real), f"{place.removesuffix(user)}$USER")
    return tuple(found.values())


def _is_own(place: str) -> bool:
    try:
        return os.path.isdir(place) and os.stat(place).st_uid == os.geteuid()  # noqa: PTH112, PTH116 (plain paths)
    except OSError:
        return False


def _partitions() -> tuple[tuple[Partition, ...], str]:
    """The partitions of Slurm in its order, or why they are unknown."""
    import subprocess

    if (sinfo := which("sinfo")) is None:
        return (), "there is no sinfo on PATH"
    try:
        done = subprocess.run(
            (sinfo, "--noheader", "--exact", "--format=%P|%G|%c"),
            capture_output=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (), f"sinfo did not answer within {_TIMEOUT} s"
    except OSError as error:
        return (), f"sinfo cannot be run: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return (), f"sinfo failed: {lines[-1]}"
    found = read_partitions(done.stdout)
    return found, "" if found else "sinfo names no partition"


def read_partitions(answer: str) -> tuple[Partition, ...]:
    """The partitions in what `sinfo --format=%P|%G|%c` prints: a line for each kind of node in each partition."""
    rows = [line.strip().split("|") for line in answer.splitlines() if line.count("|") == 2]
    kinds: dict[str, list[tuple[list[tuple[str, str]], str]]] = {}
    for name, gres, cpus in rows:
        kinds.setdefault(name, []).append((_GPU.findall(gres), cpus))
    return tuple(
        Partition(
            name.removesuffix("*"),
            tuple(sorted({sum(int(count) for _, count in gpus) for gpus, _ in nodes})),
            tuple(sorted({kind for gpus, _ in nodes for kind, _ in gpus if kind})),
            tuple(sorted({int(cpus) for _, cpus in nodes if re.fullmatch("[0-9]{1,9}", cpus)})),
            name.endswith("*"),
        )
        for name, nodes in kinds.items()
        if _NAME.fullmatch(name.removesuffix("*"))
    )
