"""A real Slurm cluster of a few nodes on this machine, with all of its state in one directory."""

import fcntl
import os
import pwd
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from support.command import Result, run
from support.daemon import Daemon, free_ports

NODES = ("n1", "n2")
CONFIGURATION = """
ClusterName=sifmod
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
FirstJobId={first_job}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
TmpFS={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmctldTimeout=30
SlurmdTimeout=30
MinJobAge=60
KillWait=2
ReturnToService=2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""
NODE = "NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 State=UNKNOWN"


def _free_slot() -> tuple[int, int]:
    """The lowest number that no other test cluster on this machine has, and the descriptor that holds its lock."""
    for slot in range(16):
        path = f"{tempfile.gettempdir()}/sifmod-test-slurm-{os.geteuid()}-{slot}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, slot
    raise RuntimeError("16 test clusters of Slurm are running on this machine")


class Slurm:
    """Start with `start`, end with `stop`; in between jobs are the real thing.

    `more` lines end its configuration. Each node may have `gpus`, which are fake: other device files, which Slurm hands
    out, and names in masks, alike.
    """

    def __init__(self, directory: Path, nodes: Sequence[str] = NODES, gpus: int = 0, more: Sequence[str] = ()) -> None:
        directory.mkdir(mode=0o755)
        for name in ("state", *nodes):
            (directory / name).mkdir(mode=0o755)
        controller, *ports = free_ports(1 + len(nodes))
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.directory = directory
        self.configuration = directory / "slurm.conf"
        # a port is a job's own on its node, and here the nodes of all clusters are one machine
        self._slot, slot = _free_slot()
        first_job = 1 + 1000 * slot
        names = {"host": socket.gethostname(), "user": user, "directory": directory, "first_job": first_job}
        lines = [CONFIGURATION.format(controller=controller, **names)]
        lines += [NODE.format(node=node, port=port) for node, port in zip(nodes, ports, strict=True)]
        lines += more
        if gpus:
            lines = [
                "GresTypes=gpu",
                *lines[:1],
                *(f"{line} Gres=gpu:{gpus}" if line.startswith("NodeName=") else line for line in lines[1:]),
            ]
            fake = [directory / f"fake-gpu{number}" for number in range(gpus)]
            for path in fake:
                path.symlink_to("/dev/null")  # a device file it must be
            (directory / "gres.conf").write_text("".join(f"Name=gpu File={path}\n" for path in fake))
        self.configuration.write_text("\n".join((*lines, "")))
        self._nodes = nodes
        self._daemons: list[Daemon] = []
        self._slurmds: dict[str, Daemon] = {}

    @property
    def env(self) -> dict[str, str]:
        """The variable that makes Slurm's commands talk to this cluster."""
        return {"SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        """Returns when both nodes are idle."""
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{option}={self.directory}/munge.{suffix}" for option, suffix in names.items()]
        munged = self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *files)
        munged.wait_until((self.directory / "munge.socket").exists)
        controller = self._daemon("slurmctld", "-D", "-f", str(self.configuration))
        controller.wait_until(lambda: self.run(("scontrol", "ping")).code == 0)
        self._slurmds = {
            node: self._daemon("slurmd", "-D", "-N", node, "-f", str(self.configuration)) for node in self._nodes
        }
        for slurmd in self._slurmds.values():
            slurmd.wait_until(lambda: self._states() == ("idle",) * len(self._nodes))

    def kill(self, node: str) -> None:
        """What a node that loses its power does: its slurmd and all that it has started are gone; Slurm is told so."""
        self._slurmds.pop(node).kill()
        mine = {f"SLURM_CONF={self.configuration}".encode(), f"SLURMD_NODENAME={node}".encode()}
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is somebody else's
                if mine <= set((directory / "environ").read_bytes().split(b"\0")):
                    step = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                    for pid in (int(directory.name), step):
                        if pid != 1:
                            os.kill(pid, signal.SIGKILL)
        self.run(("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=died")).ok()

    def stop(self) -> None:
        """End the jobs, then the daemons, in the opposite order of their start."""
        if len(self._daemons) > 1:
            self.run(("scancel", "--full", f"--user={pwd.getpwuid(os.geteuid()).pw_name}"))
        for daemon in reversed(self._daemons):
            daemon.stop()
        self._daemons.clear()
        os.close(self._slot)

    def run(
        self,
        args: Sequence[str | PathLike[str]],
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> Result:
        """Run one of Slurm's commands, or any that uses it, with `env` (the test's own when absent)."""
        return run(args, env={**(os.environ if env is None else env), **self.env}, cwd=cwd or self.directory)

    def srun(
        self,
        args: Sequence[str | PathLike[str]],
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> Result:
        """`srun` with these arguments: options, then the command."""
        return self.run(("srun", *args), env, cwd)

    def sbatch(
        self,
        args: Sequence[str | PathLike[str]],
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> int:
        """`sbatch` with these arguments; returns the job's number at once."""
        return int(self.run(("sbatch", "--parsable", *args), env, cwd).ok().stdout)

    def wait(self, job: int) -> int:
        """The exit code of the job's script, when the job has ended (`sbatch --wait` looks every ten seconds only)."""
        while True:
            shown = self.run(("scontrol", "--oneliner", "show", "job", str(job))).ok().stdout
            fields = dict(field.split("=", 1) for field in shown.split() if "=" in field)
            if fields["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return int(fields["ExitCode"].split(":")[0])
            time.sleep(0.1)

    def _daemon(self, *args: str) -> Daemon:
        log = self.directory / f"{'-'.join(args[:1] + args[3:4] if args[0] == 'slurmd' else args[:1])}.log"
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        daemon = Daemon(args, log, {"PATH": path, "HOME": str(self.directory), **self.env})
        self._daemons.append(daemon)
        return daemon

    def _states(self) -> tuple[str, ...]:
        told = self.run(("sinfo", "--noheader", "--Node", "--format=%N %t")).stdout
        return tuple(line.split()[1] for line in sorted(set(told.splitlines())))  # of each partition there is a line
