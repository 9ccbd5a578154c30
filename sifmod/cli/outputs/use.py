"""What a module is used for: tested, in job scripts and in Jupyter, with layers, looked into."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Hint, ModuleName, Notes, Number, Path, Said, Sha256, Size


class OutgoingLayerData(TypedDict):
    """A layer of this user's, made for an image that is replaced."""

    module: ModuleName
    layer: Annotated[str, Said("its name")]
    path: Path
    command: Annotated[str, Said("makes it for the new image, after the install")]
    certain: Annotated[bool, Said("the new image is another one; false: it may be the same")]


class StepData(TypedDict):
    """One thing that was tried."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str
    seconds: float
    said: Annotated[list[str], Said("the last lines of what failed")]
    hint: Hint | None


class BandwidthData(TypedDict):
    """Of an all-reduce, in GB/s (10⁹ bytes)."""

    tool: Literal["all_reduce_perf", "torch"]
    ranks: int
    size: Annotated[Size, Said("bytes that are reduced")]
    algorithm: Annotated[float, Said("size by time")]
    bus: Annotated[float, Said("algorithm · 2(n-1)/n, for n ranks")]


class NetworkData(TypedDict):
    """What carries a collective between nodes, by the log of NCCL or RCCL."""

    library: Literal["NCCL", "RCCL", ""]
    version: str
    name: Annotated[str, Said("as the library calls it: IB, Socket, AWS Libfabric, …")]
    transport: Annotated[str, Said("InfiniBand, RoCE, EFA, Slingshot, TCP, …")]
    plugin: str
    devices: list[str]
    gpu_direct: Annotated[bool | None, Said("GPU Direct RDMA; null where the log does not say")]
    tcp_hosts: Annotated[list[str], Said("that chose TCP")]
    reasons: Annotated[list[str], Said("why it may be that, and where to look")]


class TestData(TypedDict):
    """A module that was tested; the exit code is 22 where it has not passed."""

    module: ModuleName
    path: Annotated[Path, Said("of the generation")]
    nodes: Annotated[list[str], Said("as they call themselves")]
    passed: bool
    steps: list[StepData]
    bandwidth: BandwidthData | None
    network: NetworkData | None


class JobScript(TypedDict):
    """A job script."""

    module: ModuleName
    style: Literal["srun", "torchrun", "lightning", "nccl-tests"]
    path: Annotated[Path | None, Said("null without -o")]
    text: str


LayerOrNone = Annotated[str | None, Said("null: the one that the module takes by itself")]


class KernelData(TypedDict):
    """A kernel."""

    module: ModuleName
    layer: LayerOrNone
    kernel: Annotated[str, Said("its name, as in `jupyter kernelspec list`")]
    display_name: Annotated[str, Said("as people choose it")]
    path: Path
    state: Literal["made", "unchanged", "removed"]


class LabData(TypedDict):
    """JupyterLab, which is about to start; its log goes to standard error."""

    module: ModuleName
    layer: LayerOrNone
    node: str
    port: int
    tunnel: Annotated[str, Said("to be typed on one's own computer")]
    url: Annotated[str, Said("to be opened there; with the token, which is a password")]


class LayerData(TypedDict):
    """A layer."""

    module: ModuleName
    layer: str
    state: Annotated[
        Literal["live", "stale", "unreadable", "removed"],
        Said(
            "stale: made for an image that is no longer installed; unreadable: it is used, but its own file"
            " about it cannot be read"
        ),
    ]
    ended: Annotated[str | None, Said("what is said of its module, where that is retired")]
    successor: Annotated[str | None, Said("the module to move it to with `add --onto`")]
    path: Path
    sha256: Annotated[Sha256 | None, Said("of the SIF that it was made for; null: unreadable")]
    python: Annotated[str, Said("of the image: 3.11")]
    requirements: Annotated[list[str], Said("as they were asked for")]
    editable: Annotated[list[str], Said("directories of projects")]
    added: Annotated[dict[str, str], Said("distribution: version")]
    kept: Annotated[dict[str, str], Said("distributions of the image that stay as they are")]
    file_count: int
    size: Annotated[Size, Said("bytes")]
    packed: Annotated[bool, Said("one file; false: a directory")]


class SbomData(TypedDict):
    """A software bill of materials."""

    module: Annotated[ModuleName | None, Said("null for an image by itself")]
    generation: Number | None
    sha256: Annotated[Sha256 | None, Said("of the image; null for a view")]
    format: Literal["json", "xml"]
    path: Annotated[Path | None, Said("null without -o")]
    package_count: Annotated[int, Said("of the image, or of all that a view loads", ge=0)]
    layers: Annotated[list[str], Said("names of the user's layers that are in it")]
    notes: Notes
    text: Annotated[str, Said("the document, CycloneDX 1.6")]


class Change(TypedDict):
    """One thing that is not the same in both; null where it is not there."""

    name: str
    old: str | None
    new: str | None


class PackageChange(TypedDict):
    """A package that has not the same versions in both."""

    kind: Literal["python", "conda", "deb", "rpm"]
    name: str
    old_versions: Annotated[list[str], Said("each that is somewhere in the image")]
    new_versions: list[str]


class DiffData(TypedDict):
    """What changed between two generations, modules or images."""

    old: Annotated[str, Said("a module with @ and its generation, a digest, or a path")]
    new: str
    origin_changes: Annotated[list[Change], Said("image, source, easyconfig and the like")]
    loaded_modules: Annotated[list[Change], Said("that views load, by name, with their versions")]
    packages: list[PackageChange]
    variables: Annotated[list[Change], Said("that a load sets on the host")]
    variables_inside: Annotated[list[Change], Said("of the container; PATH: what comes in front of it")]
    binds: Annotated[list[Change], Said("by their targets")]
    commands: Annotated[list[Change], Said("and what they start")]
    notes: Notes
