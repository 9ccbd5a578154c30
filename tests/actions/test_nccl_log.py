"""Which network NCCL and RCCL chose, by the logs of real clusters."""

import pytest

from sifmod.actions.test.nccl_log import Network, read_log
from support.nccl_logs import (
    ASKED,
    CXI,
    EFA,
    IB,
    IB_228,
    IBEXT,
    IPV6,
    NO_PROVIDER,
    NOT_FOUND,
    OVER_TCP,
    RCCL_CXI,
    RCCL_SOCKET,
    ROCE,
    SOCKET,
)

VERBS = "libfabric over verbs (OFI); NCCL 2.28.3+cuda12.9; plugin OFI (v6), aws-ofi-nccl 1.6.0; with GPU Direct RDMA"


def network(text: str) -> Network:
    return read_log(text.splitlines())


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (IB, "InfiniBand (IB); mlx5_0, mlx5_1; NCCL 2.19.3+cuda12.3; with GPU Direct RDMA"),
        (IBEXT, "InfiniBand (IBext); mlx5_0, mlx5_1; plugin NCCL RDMA Plugin v6 (v6)"),
        (IB_228, "InfiniBand (IB); mlx5_0; NCCL 2.28.9+cuda13.0"),
        (ROCE, "RoCE (IB); mlx5_0, mlx5_1; NCCL 2.22.3+cuda12.6; without GPU Direct RDMA"),
        (SOCKET, "TCP (Socket); ens7; NCCL 2.19.3+cuda12.3"),
        (
            EFA,
            "EFA (AWS Libfabric); NCCL 2.23.4+cuda12.4; plugin aws-ofi-nccl 1.13.2-aws; with GPU Direct RDMA",
        ),
        (
            CXI,
            "Slingshot (AWS Libfabric); NCCL 2.28.3+cuda12.9; plugin AWS Libfabric (v6), aws-ofi-nccl 1.6.0;"
            " with GPU Direct RDMA",
        ),
        (OVER_TCP, "TCP (AWS Libfabric); plugin aws-ofi-nccl 1.9.1"),
        (RCCL_SOCKET, "TCP (Socket); eno2np1; RCCL 2.21.5"),
        (RCCL_CXI, "Slingshot (AWS Libfabric); RCCL 2.26.6; plugin aws-ofi-rccl 1.4.0"),
        (CXI.replace("AWS Libfabric", "OFI").replace("is cxi (", "is verbs, fabric is x ("), VERBS),
        (IPV6 + SOCKET, "TCP (Socket); eth0, eth1, ens7; NCCL 2.19.3+cuda12.3"),
    ],
)
def test_the_network(log: str, text: str) -> None:
    assert network(log).text == text


@pytest.mark.parametrize("log", ["", "no line of it\n", NO_PROVIDER, NOT_FOUND])
def test_no_network(log: str) -> None:
    found = network(log)
    assert (found.name, found.transport, found.gpu_direct, found.devices) == ("", "", None, ())


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (IB, ["no network plugin"]),
        (SOCKET, ["no InfiniBand or RoCE device"]),
        (ASKED, ["NCCL_NET=Socket", "NCCL_IB_DISABLE"]),
        (NO_PROVIDER, ["libfabric finds no provider", "the network that NCCL_NET names"]),
        (NOT_FOUND, ["the network that NCCL_NET names", "no network plugin"]),
        (OVER_TCP, ["libfabric chose TCP"]),
        (RCCL_SOCKET, ["no libibverbs", "no network plugin"]),
        (ROCE, []),
        ("a:1:2 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.\n", []),
    ],
)
def test_reasons(log: str, words: list[str]) -> None:
    reasons = network(log).reasons
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


def test_one_host_of_several_that_took_tcp() -> None:
    found = network(IB + SOCKET)
    assert (found.transport, found.name, found.tcp_hosts, found.gpu_direct) == ("TCP", "Socket", ("g3",), None)
    assert found.devices == ("ens7",)


def test_gpu_direct_is_that_of_the_connections() -> None:
    assert network(IB.replace("/GDRDMA", "")).gpu_direct is False
    assert network(CXI.replace("GDR 1", "GDR 0")).gpu_direct is False
    assert network(CXI.replace("nNodes 4", "nNodes 1")).gpu_direct is None
