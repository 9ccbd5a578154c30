"""The partition that a job goes to, and what the nodes there have: what it states, and else what the site says."""

from collections.abc import Mapping

import pytest

from sifmod.config.partition import Nodes, PartitionKeys, SlurmKeys, partition_for
from sifmod.errors import OptionError

SITE = Nodes(8, 7, "mask_cpu:0xfe,0xfe00")


def slurm(default: str | None, parts: Mapping[str, PartitionKeys]) -> SlurmKeys:
    return SlurmKeys.model_construct(account=None, partition=default, partitions=tuple(parts.items()))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (PartitionKeys(), SITE),
        (PartitionKeys(gpus_per_node=4), Nodes(4)),  # the site's masks are of nodes with other GPUs
        (PartitionKeys(gpus_per_node=8), Nodes(8)),
        (PartitionKeys(gpus_per_node=4, cpus_per_gpu=16), Nodes(4, 16)),
        (PartitionKeys(gpus_per_node=4, cpu_bind="cores"), Nodes(4, 0, "cores")),
        (PartitionKeys(gpus_per_node=4, cpus_per_gpu=16, cpu_bind="cores"), Nodes(4, 16, "cores")),
        (PartitionKeys(cpus_per_gpu=3), Nodes(8, 3, SITE.cpu_bind)),
        (PartitionKeys(cpus_per_gpu=0), Nodes(8, 0, SITE.cpu_bind)),
        (PartitionKeys(cpu_bind="cores"), Nodes(8, 7, "cores")),
        (PartitionKeys(cpu_bind=""), Nodes(8, 7, "")),
    ],
)
def test_what_a_partition_states_decides_and_takes_along_what_depends_on_it(
    keys: PartitionKeys, expected: Nodes
) -> None:
    """Each key alone and with the others, for the partition that is named and for the default."""
    assert partition_for(slurm(None, {"gpu": keys}), "gpu", SITE) == ("gpu", expected)
    assert partition_for(slurm("gpu", {"other": PartitionKeys(gpus_per_node=2), "gpu": keys}), None, SITE) == (
        "gpu",
        expected,
    )
    without = Nodes(0)
    assert partition_for(slurm(None, {"gpu": keys}), "gpu", without) == ("gpu", without)


def test_where_a_job_goes_that_says_nothing() -> None:
    """To the site's default, unless it needs GPUs that are elsewhere; then to the first with some, of any number."""
    parts = {"login": PartitionKeys(gpus_per_node=0), "small": PartitionKeys(gpus_per_node=2), "big": PartitionKeys()}
    assert partition_for(slurm("login", parts), None, SITE) == ("small", Nodes(2))
    assert partition_for(slurm("big", parts), None, SITE) == ("big", SITE)
    assert partition_for(slurm("login", parts), None, Nodes(0)) == ("login", Nodes(0))
    assert partition_for(slurm(None, parts), None, Nodes(0)) == (None, Nodes(0))
    assert partition_for(slurm("any", {}), None, SITE) == ("any", SITE)
    assert partition_for(slurm(None, {}), None, SITE) == (None, SITE)
    with pytest.raises(OptionError, match="the partition login has no GPUs"):
        partition_for(slurm("login", {"login": parts["login"]}), None, SITE)
    with pytest.raises(OptionError, match="names no partition other"):
        partition_for(slurm(None, parts), "small,other", SITE)


def test_of_several_partitions_all_have_what_the_job_is_told() -> None:
    parts = {"a": PartitionKeys(), "b": PartitionKeys(cpus_per_gpu=7), "c": PartitionKeys(cpus_per_gpu=6)}
    assert partition_for(slurm(None, parts), "a,b", SITE) == ("a,b", SITE)
    with pytest.raises(OptionError, match="nodes of a and c differ in GPUs or processors"):
        partition_for(slurm(None, parts), "a,c", SITE)
