"""Slurm's account and partitions as a site says them, and the partition that a job goes to."""

from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field

from sifmod.config.text import Items, Line, expecting, whole_number
from sifmod.config.yaml.validate import Model, did_you_mean
from sifmod.errors import OptionError

CpuBind = Annotated[
    Line,
    expecting("([A-Za-z0-9_]+(:[A-Za-z0-9_,]+)?)?", "what srun takes after --cpu-bind=, such as mask_cpu:0xfe,0xfe00"),
]
CpusPerGpu = Annotated[int, Field(ge=0, le=1024), BeforeValidator(whole_number)]
SlurmName = Annotated[Line, expecting("[A-Za-z0-9][A-Za-z0-9._+@-]*", "a name that Slurm knows, such as project_1")]


class PartitionKeys(Model):
    """What the nodes of a partition have; a missing key is as the site says of its nodes.

    With `gpus_per_node` the site's `cpus_per_gpu` and `cpu_bind` do not hold for the partition.
    """

    gpus_per_node: Annotated[int | None, Field(ge=0, le=64), BeforeValidator(whole_number)] = None
    cpus_per_gpu: CpusPerGpu | None = None
    cpu_bind: CpuBind | None = None


class SlurmKeys(Model):
    """For job scripts, and for the jobs that sifmod submits."""

    account: SlurmName | None = None
    partition: SlurmName | None = None
    """The default partition."""
    partitions: Annotated[tuple[tuple[str, PartitionKeys], ...], Items(SlurmName, PartitionKeys)] = ()
    """The partitions that jobs may go to; none: any."""


class Nodes(NamedTuple):
    """The GPUs of a node that a job has (0: it needs none), processors for each (0: unknown), and how srun binds."""

    gpus: int
    cpus: int = 0
    cpu_bind: str = ""


def partition_for(slurm: SlurmKeys, given: str | None, nodes: Nodes) -> tuple[str | None, Nodes]:
    """The partition of a job, None if nothing says one, and its nodes; `nodes`: as the site has them.

    Without a `given` one it is the site's default; for a job with GPUs, if the default has none, the first partition
    with GPUs. Raises OptionError for one that the site does not name or that lacks GPUs, and for several that differ.
    """
    known = dict(slurm.partitions)
    with_gpus = [name for name, keys in slurm.partitions if keys.gpus_per_node != 0]
    name = given or slurm.partition
    if not given and nodes.gpus and known and name not in with_gpus:
        name = with_gpus[0] if with_gpus else name
    if name is None or not known:
        return name, nodes
    parts = name.split(",")  # sbatch takes several, of which the first free one is used
    for part in parts:
        if part not in known:
            raise OptionError(
                f"the site names no partition {part}{did_you_mean(part, known)}",
                f"known are {', '.join(known)}; `slurm.partitions` in the settings adds one",
            )
    if nodes.gpus == 0:
        return name, nodes
    found = [_on(known[part], nodes) for part in parts]
    if not all(one.gpus for one in found):
        hint = f"partitions with GPUs: {', '.join(with_gpus)}" if with_gpus else "the site has no partition with GPUs"
        raise OptionError(f"the partition {name} has no GPUs, which the module needs", hint)
    if len(set(found)) > 1:
        raise OptionError(f"nodes of {' and '.join(parts)} differ in GPUs or processors", "name one partition")
    return name, found[0]


def _on(keys: PartitionKeys, nodes: Nodes) -> Nodes:
    """The nodes of a partition; if it states its number of GPUs, the site's processors and binding do not hold."""
    other = Nodes(keys.gpus_per_node) if keys.gpus_per_node is not None else nodes
    cpus, bind = keys.cpus_per_gpu, keys.cpu_bind
    return other._replace(cpus=other.cpus if cpus is None else cpus, cpu_bind=other.cpu_bind if bind is None else bind)
