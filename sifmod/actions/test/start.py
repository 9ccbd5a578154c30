"""How a test starts a command: as the module's wrappers do, on this node or on several of an allocation."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from sifmod.errors import OptionError, SanityCheckError
from sifmod.image.child import LATE, Ended, run_child

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
        launch = (*self._srun(tasks), "/bin/sh", "-c", _LAUNCH, "sh", f"{self.root}/bin", *words)
        return run_child(launch, cwd=Path("/"), env={**environment, **(env or {})}, limit=self.limit, kept=_KEPT)

    def _srun(self, tasks: int) -> tuple[str, ...]:
        if self.nodes is None:
            return ()
        count = (f"--nodes={self.nodes}", f"--ntasks={self.nodes * tasks}", f"--ntasks-per-node={tasks}")
        return (which("srun") or "srun", "--quiet", "--overlap", "--overcommit", "--kill-on-bad-exit=1", *count)


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
