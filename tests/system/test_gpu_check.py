"""The runscript gpu-check: what it says and how it ends, without a GPU and on faked ones (support/gpus.py)."""

from pathlib import Path

import pytest

from plans import plan
from support.command import Result, run
from support.generation import SHELLS
from support.gpus import OPEN, Machine
from support.images import Images
from support.runscripts import Runscripts
from support.runtime import RUNTIME


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "cuda")


@pytest.fixture
def rocm(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "rocm")


def said(result: Result) -> dict[str, str]:
    return {line[:16].strip(): line[17:] for line in result.stdout.splitlines()}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("accelerator", ["cuda", "rocm", "none"])
def test_this_machine_has_no_gpu(tmp_path: Path, accelerator: str, shell: tuple[str, ...]) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator=accelerator))
    result = runscripts.run("gpu-check", shell=shell)
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("gpu-check: no GPU is visible")
    assert runscripts.run("gpu-check", "--help", shell=shell).code == 64


def test_in_a_container_with_the_real_pytorch(images: Images, tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="none", path=("/opt/miniconda3/envs/pytorch/bin",)))
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{runscripts.directory}:/runscripts", images.pytorch_sif)
    path = "env", "PATH=/opt/miniconda3/envs/pytorch/bin:/usr/bin:/bin"
    result = run((*inside, *path, "/runscripts/gpu-check"))
    assert (result.code, said(result)) == (1, {"PyTorch": "2.13.0+cpu"})


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_usable_nvidia_gpu(machine: Machine, shell: tuple[str, ...]) -> None:
    machine.nvidia("550.54.15", devices=2)
    machine.torch(cuda="12.4", count=2)
    result = machine.check(shell).ok()
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "NVIDIA driver    550.54.15, which runs CUDA up to 12.4 in full",
        "NVIDIA GPUs      2 visible",
        "  on this node   NVIDIA A100-SXM4-80GB",
        "  on this node   NVIDIA A100-SXM4-80GB",
        f"  libcuda        {machine.root}/lib/libcuda.so.1",
        "PyTorch          2.7.1",
        "  built for      CUDA 12.4",
        "  NCCL           2.26.2",
        "  computes on    0: Fake 0",
        "  computes on    1: Fake 1",
        "CUDA             12.4 in the image (PyTorch is built for it)",
        "result           usable",
    ]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize(
    ("driver", "cuda", "code"),
    [
        ("580.65.06", "13.0.1", 0),
        ("580.65.05", "13.0.1", 2),
        ("575.57.08", "13.3", 2),
        ("525.60.13", "12.9.1", 0),
        ("525.60.11", "12.0.0", 2),
        ("525.9.99", "12.0.0", 2),
        ("515.65.01", "12.1", 2),
        ("450.80.02", "11.8.0", 0),
        ("450.51.06", "11.8.0", 2),
        ("450.51.06", "11.0.3", 0),
        ("440.33", "10.2.89", 0),
        ("440.32.99", "10.2.89", 2),
        ("384.81", "9.0.176", 0),
        ("610.43.02", "14.0", 2),
        ("990.1.1", "14.0", 0),
        ("535.104.05", "7.5", 0),
    ],
)
def test_cuda_against_the_driver(machine: Machine, driver: str, cuda: str, code: int, shell: tuple[str, ...]) -> None:
    machine.nvidia(driver)
    result = machine.check(shell, CUDA_VERSION=cuda)
    assert result.code == code, (result.stdout, result.stderr)
    assert ("needs driver" in result.stderr) == (code == 2)
    assert said(result)["CUDA"] == f"{cuda} in the image (CUDA_VERSION)"


def test_a_newer_minor_version_is_told(machine: Machine) -> None:
    machine.nvidia("535.104.05")
    assert "newer" in said(machine.check(CUDA_VERSION="12.4.1").ok())
    for cuda in ("12.2.140", "11.8", "13.0"):
        assert "newer" not in said(machine.check(CUDA_VERSION=cuda))


@pytest.mark.parametrize("driver", ["570.172.08", "580.65.06"])
def test_the_words_of_the_open_driver(machine: Machine, driver: str) -> None:
    machine.nvidia(driver, said=OPEN)
    assert said(machine.check().ok())["NVIDIA driver"].startswith(f"{driver}, ")


def test_the_version_of_the_library_and_of_pytorch_come_before_the_variable(machine: Machine) -> None:
    """CUDA_VERSION may be of a module on the host."""
    machine.nvidia("550.54.15")
    (machine.root / "lib/libcudart.so.12.4.127").touch()
    library = f"{machine.root}/lib/libcudart.so.12.4.127"
    assert said(machine.check(CUDA_VERSION="13.0.0").ok())["CUDA"] == f"12.4.127 in the image ({library})"
    machine.torch(cuda="11.8", count=1)
    assert said(machine.check(CUDA_VERSION="13.0.0").ok())["CUDA"] == "11.8 in the image (PyTorch is built for it)"


def test_a_compatibility_library_in_front(machine: Machine) -> None:
    machine.nvidia("535.104.05")
    assert machine.check(CUDA_VERSION="13.0.1").code == 2
    (machine.root / "lib/libcuda.so.580.65.06").touch()
    result = machine.check(CUDA_VERSION="13.0.1").ok()
    assert said(result)["compatibility"].startswith("libcuda 580.65.06 ")


def test_what_pytorch_can_do_counts_most(machine: Machine) -> None:
    machine.nvidia("515.65.01")
    machine.torch(cuda="12.4", count=1)
    assert machine.check().code == 0
    machine.torch(cuda="12.4", error="The NVIDIA driver on your system is too old")
    assert machine.check().code == 2
    machine.torch(cuda="11.7", error="out of memory")
    result = machine.check()
    assert (result.code, result.stderr) == (3, "gpu-check: PyTorch 2.7.1 cannot use the GPU: out of memory\n")
    machine.torch(cuda="11.7")
    assert machine.check().stderr == "gpu-check: PyTorch 2.7.1 sees no GPU\n"
    machine.torch(hip="6.2.4")
    assert "is built for ROCm 6.2.4, and the GPU here needs CUDA" in machine.check().stderr
    machine.torch()
    assert "is built for no GPU" in machine.check().stderr


def test_a_pytorch_that_cannot_be_imported(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    for broken in (
        "import nothing_of_this_name",
        "raise OSError('libcudart.so.12: cannot open')",
        "import os; os.abort()",
    ):
        (machine.root / "python/torch.py").write_text(broken)
        result = machine.check()
        assert (result.code, result.stderr[:32]) == (3, "gpu-check: PyTorch cannot use th"), result.stderr


def test_without_python(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    assert machine.check(PATH="/nonexistent", shell=("/bin/dash",)).code == 0


def test_the_drivers_library_is_not_bound(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    result = machine.check(LD_LIBRARY_PATH="/nonexistent")
    assert (result.code, result.stderr.splitlines()[-1]) == (3, "hint: start the container with --nv")


@pytest.mark.parametrize("mask", ["", "NoDevFiles", "-1"])
def test_a_mask_that_hides_every_gpu(machine: Machine, mask: str) -> None:
    machine.nvidia("550.54.15")
    result = machine.check(CUDA_VISIBLE_DEVICES=mask)
    assert (result.code, result.stderr.splitlines()[0]) == (1, "gpu-check: CUDA_VISIBLE_DEVICES hides every GPU")
    assert "\nCUDA_VISIBLE_DEVICES 0,1\n" in machine.check(CUDA_VISIBLE_DEVICES="0,1").ok().stdout


def test_a_driver_without_devices(machine: Machine) -> None:
    machine.nvidia("550.54.15", devices=0)
    result = machine.check()
    assert (result.code, result.stderr.splitlines()[0]) == (
        1,
        "gpu-check: the driver is there, but no device file of a GPU",
    )


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_usable_amd_gpu(rocm: Machine, shell: tuple[str, ...]) -> None:
    rocm.amd(devices=2)
    rocm.torch(hip="6.2.41134", count=2)
    (rocm.root / ".info").mkdir()
    (rocm.root / ".info/version").write_text("6.2.4-120\n")
    result = rocm.check(shell, ROCR_VISIBLE_DEVICES="0,1", ROCM_PATH=str(rocm.root)).ok()
    assert (result.stderr, result.stdout.splitlines()) == (
        "",
        [
            "AMD driver       amdgpu: 6.3.6",
            "AMD GPUs         2 visible",
            "  on this node   gfx90a",
            "  on this node   gfx90a",
            "ROCm             6.2.4-120 in the image",
            "PyTorch          2.7.1",
            "  built for      ROCm 6.2.41134",
            "  RCCL           2.26.2",
            "  computes on    0: Fake 0",
            "  computes on    1: Fake 1",
            "ROCR_VISIBLE_DEVICES 0,1",
            "result           usable",
        ],
    )


def test_amds_driver_of_the_kernel_says_no_version(rocm: Machine) -> None:
    rocm.amd(version=None)
    assert said(rocm.check().ok())["AMD driver"] == "amdgpu: the one of the kernel, 5.14.21-cray"


def test_amd_without_devices(rocm: Machine) -> None:
    rocm.amd(devices=0)
    assert rocm.check().code == 1
    (rocm.root / "dev/dri/renderD128").touch()
    vendor = rocm.root / "sys/class/drm/renderD128/device/vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x10de\n")  # NVIDIA's
    assert rocm.check().code == 1
    vendor.write_text("0x1002\n")
    assert rocm.check().code == 0
    (rocm.root / "dev/kfd").unlink()
    assert rocm.check().code == 1


def test_the_other_vendors_gpu(tmp_path: Path) -> None:
    for accelerator, other in (("cuda", "AMD"), ("rocm", "NVIDIA"), ("none", "")):
        machine = Machine(tmp_path / accelerator, accelerator)
        if accelerator == "cuda":
            machine.amd()
        else:
            machine.nvidia("550.54.15")
        result = machine.check()
        assert result.code == (1 if other else 0)
        if other:
            assert result.stderr.endswith(f"and the GPUs here are from {other}\n")


@pytest.mark.usefixtures("needs_root")
def test_devices_that_may_not_be_opened(machine: Machine) -> None:
    """As an ordinary user: root may open anything."""
    machine.nvidia("550.54.15", devices=2)
    (machine.root / "dev/nvidia0").chmod(0)
    for directory in (machine.root, *machine.root.parents):
        if directory.stat().st_uid == 0 and directory != Path("/") and not directory.stat().st_mode & 0o001:
            directory.chmod(directory.stat().st_mode | 0o011)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "dash", str(machine.script))
    (machine.root / "dev/nvidia1").chmod(0o666)
    assert said(run(nobody, env=machine.env).ok())["NVIDIA GPUs"] == "1 visible, 1 that may not be opened"
    (machine.root / "dev/nvidia1").chmod(0)
    result = run(nobody, env=machine.env)
    assert (result.code, result.stderr.splitlines()[0]) == (
        1,
        "gpu-check: none of the 2 GPUs of this node may be opened",
    )


def test_a_tool_is_asked_where_it_is_there(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    tool = machine.root / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "GPU 0: fake $*"\n')
    tool.chmod(0o755)
    assert "GPU 0: fake -L\n" in machine.check(PATH=f"{tool.parent}:/usr/bin:/bin").ok().stdout
