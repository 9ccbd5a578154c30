"""What a test of a module has found."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Hint, ModuleName, Path, Size


class StepData(TypedDict):
    """One thing that was tried."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str
    seconds: float
    said: Annotated[list[str], Field(description="the last lines of what failed")]
    hint: Hint | None


class BandwidthData(TypedDict):
    """Of an all-reduce, in GB/s (10⁹ bytes)."""

    tool: Literal["all_reduce_perf", "torch"]
    ranks: int
    size: Annotated[Size, Field(description="bytes that are reduced")]
    algorithm: Annotated[float, Field(description="size by time")]
    bus: Annotated[float, Field(description="algorithm · 2(n-1)/n, for n ranks")]


class NetworkData(TypedDict):
    """What carries a collective between nodes, by the log of NCCL or RCCL."""

    library: Literal["NCCL", "RCCL", ""]
    version: str
    name: Annotated[str, Field(description="as the library calls it: IB, Socket, AWS Libfabric, …")]
    transport: Annotated[str, Field(description="InfiniBand, RoCE, EFA, Slingshot, TCP, …")]
    plugin: str
    devices: list[str]
    gpu_direct: Annotated[bool | None, Field(description="GPU Direct RDMA; null where the log does not say")]
    tcp_hosts: Annotated[list[str], Field(description="that chose TCP")]
    reasons: Annotated[list[str], Field(description="why it may be that, and where to look")]


class TestData(TypedDict):
    """A module that was tested; the exit code is 22 where it has not passed."""

    module: ModuleName
    path: Annotated[Path, Field(description="of the generation")]
    nodes: Annotated[list[str], Field(description="as they call themselves")]
    passed: bool
    steps: list[StepData]
    bandwidth: BandwidthData | None
    network: NetworkData | None
