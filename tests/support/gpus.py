"""A machine with faked GPUs, for the runscript gpu-check.

The fakes stand for what is not here: what a driver tells in /proc and /sys, device files, the driver's library, and a
PyTorch that says it computes. Everything else is the script as it is installed.
"""

from pathlib import Path

from plans import plan
from support.command import Result, run
from support.runscripts import PYTHON, Runscripts

KERNEL = "proc=/proc dev=/dev sys=/sys\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {}  Release Build  (dvs-builder@U22-I3)\n"
# a PyTorch that says what the test wants of it
TORCH = """
class version:
    cuda, hip = {cuda!r}, {hip!r}
__version__ = "2.7.1"
class cuda:
    class nccl:
        version = staticmethod(lambda: (2, 26, 2))
    @staticmethod
    def init():
        if {error!r}:
            raise RuntimeError({error!r})
    device_count = staticmethod(lambda: {count})
    get_device_name = staticmethod(lambda number: f"Fake {{number}}")
class ones:
    def __init__(self, size, device): pass
    def sum(self): return self
    def item(self): return 2
"""


class Machine:
    """A machine with faked GPUs, below `root`; without anything in it, one without GPUs."""

    def __init__(self, root: Path, accelerator: str) -> None:
        self.root = root
        for name in ("proc/driver/nvidia", "proc/sys/kernel", "dev/dri", "sys/module", "lib", "python"):
            (root / name).mkdir(parents=True)
        script = Runscripts(root / "prefix", plan(accelerator=accelerator)).directory / "gpu-check"
        text = script.read_text()
        assert KERNEL in text
        self.script = root / "gpu-check"
        self.script.write_text(text.replace(KERNEL, f"proc={root}/proc dev={root}/dev sys={root}/sys\n"))
        self.env = {"PATH": f"{PYTHON}:/usr/bin:/bin", "LD_LIBRARY_PATH": f"{root}/lib", "PYTHONPATH": f"{root}/python"}

    def nvidia(self, driver: str, devices: int = 1, said: str = CLOSED) -> None:
        (self.root / "proc/driver/nvidia/version").write_text(said.format(driver))
        for number in range(devices):
            (self.root / f"dev/nvidia{number}").touch()
            information = self.root / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"
            information.parent.mkdir(parents=True)
            information.write_text("Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 1\n")
        (self.root / "dev/nvidiactl").touch()
        (self.root / "lib/libcuda.so.1").touch()

    def amd(self, devices: int = 1, version: str | None = "6.3.6") -> None:
        (self.root / "dev/kfd").touch()
        (self.root / "proc/sys/kernel/osrelease").write_text("5.14.21-cray\n")
        if version:
            (self.root / "sys/module/amdgpu").mkdir()
            (self.root / "sys/module/amdgpu/version").write_text(f"{version}\n")
        for number in range(devices):
            (self.root / f"dev/dri/renderD{128 + number}").touch()
            node = self.root / f"sys/class/kfd/kfd/topology/nodes/{number + 1}"
            node.mkdir(parents=True)
            (node / "properties").write_text("cpu_cores_count 0\nsimd_count 440\ngfx_target_version 90010\n")
        processor = self.root / "sys/class/kfd/kfd/topology/nodes/0"
        processor.mkdir(parents=True)
        (processor / "properties").write_text("cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n")

    def torch(self, cuda: str | None = None, hip: str | None = None, count: int = 0, error: str = "") -> None:
        text = TORCH.format(cuda=cuda, hip=hip, count=count, error=error)
        (self.root / "python/torch.py").write_text(text)

    def check(self, shell: tuple[str, ...] = ("dash",), **env: str) -> Result:
        return run((*shell, self.script), env={**self.env, **env})
