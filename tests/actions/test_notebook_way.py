"""How JupyterLab on a node is reached."""

import getpass
import socket

import pytest

from sifmod.actions.jupyter import ssh_route

HERE, USER = socket.gethostname(), getpass.getuser()


@pytest.mark.parametrize(
    ("environ", "node", "way"),
    [
        ({}, HERE, (f"{USER}@{HERE}",)),
        (  # a job's own node
            {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_SUBMIT_HOST": "login2"},
            "n1",
            ("-J", f"{USER}@login2", f"{USER}@n1"),
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": HERE}, HERE, (f"{USER}@{HERE}",)),  # the shell of salloc
        ({"SLURMD_NODENAME": "n1", "SLURM_SUBMIT_HOST": HERE}, "n1", (f"{USER}@n1",)),
        ({"SLURMD_NODENAME": "n1", "SLURM_SUBMIT_HOST": "n1"}, "n1", (f"{USER}@n1",)),
        ({"SLURM_SUBMIT_HOST": "login2"}, HERE, ("-J", f"{USER}@login2", f"{USER}@{HERE}")),
    ],
)
def test_the_way_to_a_node(environ: dict[str, str], node: str, way: tuple[str, ...]) -> None:
    assert ssh_route(environ) == (node, way)
