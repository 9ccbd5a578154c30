"""An outcome: what each step of a test came to."""

from dataclasses import dataclass
from typing import Literal

from sifmod.actions.test.nccl_log import Network
from sifmod.config.name import ModuleName


@dataclass(frozen=True)
class Step:
    """One thing that was tried."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str  # one line
    seconds: float
    said: tuple[str, ...] = ()  # the last that a program said that failed
    hint: str | None = None


@dataclass(frozen=True)
class Bandwidth:
    """Of an all-reduce, in GB/s (10⁹ bytes)."""

    tool: str  # all_reduce_perf or torch
    ranks: int
    size: int  # bytes that are reduced
    algorithm: float  # size by time
    bus: float  # what each link carries: algorithm · 2(n-1)/n


@dataclass(frozen=True)
class Tested:
    """A module, and what became of it here."""

    module: ModuleName
    root: str  # of the generation
    nodes: tuple[str, ...]  # as they call themselves
    steps: tuple[Step, ...]
    bandwidth: Bandwidth | None
    network: Network | None

    @property
    def passed(self) -> bool:
        """Whether nothing failed; what was skipped says why."""
        return all(step.outcome != "failed" for step in self.steps)
