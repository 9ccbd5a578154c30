"""`sifmod jupyter`: a real kernel in a real container, started by jupyter_client as Jupyter does."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from support.command import run
from support.images import Images, ipykernel_wheels
from support.layered import NAME, Machine
from support.runtime import RUNTIME
from support.wheels import wheel

SHARED_TMP = "/tmp"  # of the host, which a container has, or has not


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    made = Machine(shared_tmp)
    shutil.copytree(ipykernel_wheels(), made.wheels)
    wheel(made.wheels, "demo", "1.0")
    made.install(images.pytorch_sif, "--link", "reference")
    return made


@contextmanager
def kernel(machine: Machine, name: str, runtime: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel that runs, as a Jupyter without the module starts it; /tmp of the host is not in its container."""
    specs = KernelSpecManager(kernel_dirs=[str(machine.top / "jupyter" / "kernels")], ensure_native_kernel=False)
    runtime.mkdir()
    manager = KernelManager(
        kernel_name=name,
        kernel_spec_manager=specs,
        connection_file=str(runtime / "kernel-1.json"),
        shutdown_wait_time=5,
    )
    unseen = {"SINGULARITY_NO_MOUNT": "tmp", "APPTAINER_NO_MOUNT": "tmp", "TMPDIR": "/dev/shm"}
    env = {key: value for key, value in machine.env().items() if not key.startswith("SIFMOD_")}
    manager.start_kernel(env=env | unseen, cwd="/")
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def answer(client: BlockingKernelClient, message: str) -> str:
    """What a cell printed, or the name of its error."""
    said = ""
    while True:
        got = client.get_iopub_msg(timeout=30)
        if got["parent_header"].get("msg_id") != message:
            continue
        content = got["content"]
        said += str(content.get("text", "")) + str(content.get("ename", ""))
        if content.get("execution_state") == "idle":
            return said


def test_a_kernel_has_the_image_and_the_layer(machine: Machine) -> None:
    data = {"JUPYTER_DATA_DIR": str(machine.top / "jupyter")}
    refused = machine.sifmod("jupyter", NAME, env=data)
    assert refused.code == 24
    assert refused.stderr == (
        "error: neither the image of Python/3.11 nor its layer has ipykernel\n\n"
        "hint: sifmod add Python/3.11 ipykernel\n"
    )
    lab = machine.sifmod("jupyter", NAME, "--lab", "--layer", "none", env=data)
    assert (lab.code, lab.stderr.startswith("error: Python/3.11 has no layer none\n")) == (24, True)
    assert not (machine.top / "jupyter").exists()

    machine.add("demo", "ipykernel", "--layer", "notes").ok()
    made = json.loads(machine.sifmod("jupyter", NAME, "--layer", "notes", "--json", env=data).ok().stdout)
    assert (made["kernel"], made["display_name"]) == ("python-3.11--notes", "Python 3.11, layer notes")
    start = Path(made["path"], "python").read_text()
    assert f"exec {machine.prefix}/software/{NAME}/bin/python " in start  # of the live generation, whichever it is
    (machine.top / "only").mkdir()
    (machine.top / "only/python3").symlink_to("/opt/miniconda3/envs/pytorch/bin/python")
    inside = (RUNTIME.path, "-q", "exec", "-B", str(machine.top), machine.commands.parent / "Python-3.11.sif")
    own = ("env", f"PATH={machine.top}/only", f"CONTAINERROOT={machine.commands.parent.resolve()}")
    started = run((*inside, *own, Path(made["path"], "python"), "-c", "print(7)")).ok()
    assert started.stdout == "7\n"  # of a Jupyter in the container, whose Python may only be called python3
    with kernel(machine, made["kernel"], machine.top / "runtime") as (manager, client):
        code = "import demo, torch, os; print(demo.__version__, int(torch.ones(2).sum()), os.environ['EBROOTPYTHON'])"
        assert answer(client, client.execute(code)) == f"1.0 2 {machine.commands.parent.resolve()}\n"
        for cell in ("import time\nwhile True: time.sleep(0.1)", "!sleep 60"):
            asked = client.execute(cell)
            time.sleep(0.5)
            manager.interrupt_kernel()
            assert "KeyboardInterrupt" in (said := answer(client, asked)) or "^C" in said
        assert answer(client, client.execute("print(7)")) == "7\n"
        pid = getattr(manager.provisioner, "pid", None)
        assert pid
    assert not os.path.exists(f"/proc/{pid}")

    other = machine.sifmod("jupyter", NAME, "--remove", env=data)
    assert (other.code, Path(made["path"], "kernel.json").exists()) == (24, True)
    machine.sifmod("uninstall", NAME).ok()
    machine.sifmod("jupyter", NAME, "--layer", "notes", "--remove", env=data).ok()
    assert list((machine.top / "jupyter" / "kernels").iterdir()) == []
