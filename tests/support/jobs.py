"""Distributed jobs for the tests: a module in the environment, the script that they run, and what it prints."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from support import module_tool as tools
from support.command import ROOT
from support.identity import sifmod
from support.images import Images
from support.wheels import wheel

DDP = """
import os, sys, time, pathlib
import extra  # of a layer over the image
import torch, torch.distributed as dist

own, *others = sys.argv[1:]  # numbers: the one that this job sums, and jobs that must run at the same time
dist.init_process_group("gloo")
rank = dist.get_rank()
assert (rank, dist.get_world_size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
node = os.environ.get("NODE_RANK") or os.environ["GROUP_RANK"]  # torchrun's name for it
if "NODE_RANK" in os.environ:
    assert (rank, dist.get_world_size()) == (int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"]))
pathlib.Path(f"started-{own}").touch()
while not all(pathlib.Path(f"started-{other}").exists() for other in others):
    time.sleep(0.05)
for _ in range(20):
    total = torch.tensor([float(int(own) * 10**rank)])
    dist.all_reduce(total)
where = f"{os.environ['SLURMD_NODENAME']}, node {node}"
said = f"rank {rank}, {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']} on {where}: "
os.write(1, f"{said}{total.item():.0f}, {os.environ['MASTER_ADDR']}\\n".encode())  # all at once: others write here too
dist.destroy_process_group()
os._exit(0)  # torch's threads now and then abort an interpreter that ends in its own time
"""
STEP = """
import os, torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, size, where = dist.get_rank(), dist.get_world_size(), os.environ.get("SLURMD_NODENAME", "no node of a job")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
before = model.module.weight.detach().clone()
model(torch.full((2, 8), rank + 1.0)).mean().backward()
optimizer.step()
change = (before - model.module.weight.detach()) / 0.1  # the mean of all ranks' gradients
assert torch.allclose(change, torch.full((1, 8), (size + 1) / 2)), change
image = os.environ["SINGULARITY_CONTAINER"]
os.write(1, f"trained: rank {rank} of {size} on {where}, image {image}\\n".encode())
dist.destroy_process_group()
os._exit(0)
"""
"""A step of DDP; each rank says that it was trained, where, and in which image."""
SHIPPED = ROOT / "easyconfigs" / "PyTorch" / "PyTorch-2.13.0.yaml"


def load(images: Images, directory: Path, accelerator: str = "none") -> dict[str, str]:
    """The environment of a shell that has loaded, with Lmod, what `sifmod install` made of the shipped easyconfig.

    With every runscript, a layer with the package `extra`, and told that its image is for `accelerator`.
    """
    prefix, home = directory / "pre fix", directory / "home"
    home.mkdir()
    shell = tools.lmod(home)
    easyconfig = directory / "PyTorch-2.13.0.yaml"
    easyconfig.write_text(
        f"extends: {SHIPPED}\nrunscripts+: [torchrun-distributed, gpu-check]\n"
        f"variants: {{cpu: {{accelerator: {accelerator}}}}}\n"
    )
    own = ("--source", images.pytorch_sif, "--link", "reference", "--skip-sanity-check", "--prefix", prefix)
    sifmod(("install", "-q", easyconfig, "--variant", "cpu", *own), shell.clean_environment(), directory).ok()
    wheel(directory, "extra")
    where = ("--no-index", "--find-links", directory, "--prefix", prefix)
    sifmod(("add", "PyTorch/2.13.0-cpu", "extra", *where), shell.clean_environment(), directory).ok()
    loaded = shell.run("module load PyTorch/2.13.0-cpu", prefix / "modules")
    assert (loaded.code, loaded.stderr) == (0, "")
    return {**os.environ, **loaded.environment, "OMP_NUM_THREADS": "1"}


def write_script(directory: Path) -> Path:
    """`directory`, with ddp.py in it: it sums over all ranks, and each says where it is."""
    (directory / "ddp.py").write_text(DDP)
    return directory


def lines(number: int, nodes: Sequence[str], master: str = "n1") -> list[str]:
    """What the processes of ddp.py print that run on these nodes, sorted: the sum of number * 10**rank, and where."""
    total = sum(number * 10**rank for rank in range(len(nodes)))
    number_of = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
    return [
        f"rank {rank}, {nodes[:rank].count(node)} of {nodes.count(node)} on {node}, node {number_of[node]}: "
        f"{total}, {master}"
        for rank, node in enumerate(nodes)
    ]


def before_parting(stderr: str) -> str:
    """What the launchers say but torch's own warnings of one that ends a moment after the launcher with the store."""
    records = re.split(r"^(?=\[?W\d{4} )", stderr, flags=re.MULTILINE)
    return "".join(
        record for record in records if not re.search("TCPStore.cpp|dynamic_rendezvous.py", record.split("\n")[0])
    )
