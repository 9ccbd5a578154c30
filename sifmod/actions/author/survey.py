"""A Survey: what is on this machine that a site file would name, found by looking at files and never by a program."""

from dataclasses import dataclass
from pathlib import Path

from sifmod.config.place import matches

SLURM = ("/var/spool/slurmd", "/var/spool/slurm", "/run/munge")
FABRIC = ("/opt/cray", "/opt/amazon/efa")  # InfiniBand needs nothing of the host: the image has its own rdma-core
HOST_LIBRARIES = ("/usr/lib64/libcxi.so*", "/usr/lib/*-linux-gnu/libcxi.so*")
_NETWORKS = ("/sys/class/net/hsn*", "/sys/class/net/ib*")
_PARALLEL = ("lustre", "gpfs", "beegfs", "wekafs", "ceph", "nfs", "nfs4", "fhgfs", "panfs", "afs")
_MOUNTS = "/proc/self/mounts"


@dataclass(frozen=True)
class Survey:
    """Paths that are there, and what they tell."""

    slurm: tuple[str, ...]
    fabric: tuple[str, ...]
    host_libraries: tuple[str, ...]  # patterns
    filesystems: tuple[str, ...]  # where file systems of the whole machine are mounted, but not home directories
    networks: tuple[str, ...]  # interfaces of a fast network


def survey(mounts: str = _MOUNTS) -> Survey:
    """Look at this machine."""
    return Survey(
        slurm=tuple(path for path in SLURM if Path(path).exists()),
        fabric=tuple(path for path in FABRIC if Path(path).exists()),
        host_libraries=tuple(pattern for pattern in HOST_LIBRARIES if matches(pattern)),
        filesystems=_filesystems(mounts),
        networks=tuple(Path(path).name for pattern in _NETWORKS for path in matches(pattern)),
    )


def _filesystems(mounts: str) -> tuple[str, ...]:
    try:
        lines = [line.split() for line in Path(mounts).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ()
    shared = {fields[1] for fields in lines if len(fields) > 2 and fields[2] in _PARALLEL and "\\" not in fields[1]}
    return tuple(sorted(place for place in shared if place != "/" and not place.startswith(("/home", "/root"))))
