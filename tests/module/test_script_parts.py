"""The functions of the runscripts by themselves, and what gpu-check finds in corners of a machine."""

import os
import subprocess
from pathlib import Path

import pytest

import sifmod.module
from sifmod.actions.script_output import said
from sifmod.image.child import Ended
from support.gpus import Machine

PARTS = Path(sifmod.module.__file__).parent / "templates" / "runscripts" / "parts"


def sourced(part: str, *commands: str) -> list[str]:
    """What commands say after a part has been read."""
    text = "\n".join(((PARTS / part).read_text(), *commands))
    return subprocess.run(("dash", "-c", text), capture_output=True, text=True, check=True).stdout.splitlines()


LEAST = {
    "13.0": "580.65.06", "13.3.1": "580.65.06", "12.0": "525.60.13", "12.9.1": "525.60.13", "11.0": "450.36.06",
    "11.0.3": "450.36.06", "11.1": "450.80.02", "11.8.0": "450.80.02", "10.2": "440.33", "10.2.89": "440.33",
    "10.1.243": "418.39", "10.0.130": "410.48", "9.2.88": "396.26", "9.1": "390.46", "9.0": "384.81",
    "8.0.61": "367.48", "14.0": "616", "20.1": "616", "7.5": "", "": "", "11": "", "11.01": "450.80.02",
}  # fmt: skip


def test_the_least_driver_for_each_version() -> None:
    assert sourced("versions.sh", *(f'echo "$(least_driver "{cuda}")"' for cuda in LEAST)) == list(LEAST.values())


KNOWN = {
    610: "13.3", 595: "13.2", 590: "13.1", 580: "13.0", 575: "12.9", 570: "12.8", 565: "12.7", 560: "12.6", 555: "12.5",
    550: "12.4", 545: "12.3", 535: "12.2", 530: "12.1", 525: "12.0", 520: "11.8", 515: "11.7", 510: "11.6", 495: "11.5",
    470: "11.4", 465: "11.3", 460: "11.2", 455: "11.1", 450: "11.0", 440: "10.2", 418: "10.1", 410: "10.0",
}  # fmt: skip


def test_the_version_that_came_with_each_driver() -> None:
    drivers = list(KNOWN)
    before = [KNOWN[drivers[i + 1]] if i + 1 < len(drivers) else "" for i in range(len(drivers))]
    asked = [f"{driver}.65.06" for driver in drivers] + [f"{driver - 1}.99" for driver in drivers] + ["999.1"]
    assert sourced("versions.sh", *(f'echo "$(cuda_of {driver})"' for driver in asked)) == [
        *KNOWN.values(),
        *before,
        "13.3",
    ]


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [
        *(("1.2", "1.10", True), ("1.10", "1.2", False), ("1.2", "1.2", False), ("1.2", "1.2.1", True)),
        *(("1.2.1", "1.2", False), ("1.2", "1.2.0", False), ("2", "10", True), ("525.60.13", "525.60.9", False)),
    ],
)
def test_which_version_is_older(one: str, other: str, older: bool) -> None:
    assert sourced("versions.sh", f"if older {one} {other}; then echo yes; else echo no; fi") == [
        "yes" if older else "no"
    ]


def test_the_first_number_of_a_text() -> None:
    said = sourced(
        "versions.sh",
        'first_number x 550 550.54.15-rc2 1.2; echo "$number"',
        'first_number Kernel Module; echo "$number."',
        'first_number 12.4; echo "$number"',
    )
    assert said == ["550.54.15", ".", "12.4"]


@pytest.mark.parametrize(
    ("nodes", "tasks"),
    [
        ("4", (4,)),
        ("2(x3),1", (2, 2, 2, 1)),
        ("1,2,3", (1, 2, 3)),
        ("8(x2),4(x1),2", (8, 8, 4, 2)),
        ("128(x10)", (128,) * 10),
    ],
)
def test_the_tasks_of_each_node(nodes: str, tasks: tuple[int, ...]) -> None:
    said = sourced("step.sh", *(f"tasks_on {number} '{nodes}'" for number in range(len(tasks))))
    assert said == [str(number) for number in tasks]


def test_what_is_set_stays_even_where_it_is_empty() -> None:
    said = sourced(
        "default.sh",
        "A=mine; B=; default A theirs; default B theirs; default C 'a $(b) c'",
        'echo "$A,$B,$C"',
        "sh -c 'echo \"$C\"'",
    )
    assert said == ["mine,,a $(b) c", "a $(b) c"]


@pytest.mark.parametrize(
    ("kind", "local"),
    [
        *((kind, False) for kind in ("lustre", "nfs", "nfs4", "gpfs", "beegfs", "beegfs_nodev", "ceph", "panfs")),
        *((kind, False) for kind in ("wekafs", "pvfs2", "cifs", "smb3", "afs", "fuse", "fuse.sshfs", "fuseblk")),
        *((kind, True) for kind in ("ext4", "xfs", "tmpfs", "overlay", "btrfs", "zfs", "lustrex", "xnfs", "cephx")),
    ],
)
def test_which_file_systems_are_of_this_node(tmp_path: Path, kind: str, local: bool) -> None:
    root = os.access("/", os.W_OK)  # only a place that this user may write in is a cache
    text = (PARTS / "caches.sh").read_text()
    function = text[text.index("is_local() (") : text.index("# own_directory")]
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"a / ext4 rw 0 0\nb {tmp_path} {kind} rw 0 0\nc {tmp_path}-x lustre rw 0 0\nd /proc proc rw 0 0\n"
    )
    script = tmp_path / "script"
    script.write_text(function.replace("/proc/self/mounts", str(mounts)) + 'is_local "$1"; echo $?\n')
    for place, expected in ((tmp_path, local), ("relative", False), (tmp_path / "absent", False), ("/", root)):
        said = subprocess.run(("dash", script, place), capture_output=True, text=True, check=True, cwd="/")
        assert (said.stdout, said.stderr) == (f"{int(not expected)}\n", "")
    (tmp_path / "link").symlink_to("/")
    said = subprocess.run(("dash", script, tmp_path / "link"), capture_output=True, text=True, check=True)
    assert said.stdout == f"{int(not root)}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "cuda")


def test_gpu_check_takes_no_arguments(machine: Machine) -> None:
    done = subprocess.run(("dash", machine.script, "a", "b"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", "gpu-check: it takes no arguments, got: a b\n")


def test_an_image_for_nvidia_on_a_machine_without_any(machine: Machine) -> None:
    found = machine.check()
    assert (found.code, found.stdout, found.stderr) == (
        1,
        "",
        "gpu-check: no GPU is visible: there is no NVIDIA driver\n\n"
        "hint: run it on a node with GPUs: srun --gpus=1 ... gpu-check\n",
    )


def test_a_program_reads_a_failure_as_fields(machine: Machine) -> None:
    found = machine.check(_SIFMOD_FIELDS="1")
    why, hint = (
        "gpu-check: no GPU is visible: there is no NVIDIA driver",
        "run it on a node with GPUs: srun --gpus=1 ... gpu-check",
    )
    assert said(Ended(found.code, f"one\n{found.stderr}two\n".encode())) == (("one", None), (why, hint), ("two", None))


def test_an_image_for_amd_on_a_machine_without_any(tmp_path: Path) -> None:
    found = Machine(tmp_path, "rocm").check()
    assert (found.code, found.stderr.splitlines()[0]) == (1, "gpu-check: no GPU is visible: there is no AMD driver")


def test_an_image_for_any_vendor(tmp_path: Path) -> None:
    nothing = Machine(tmp_path / "nothing", "none").check()
    assert (nothing.code, nothing.stderr) == (
        1,
        "gpu-check: no GPU is visible\n\nhint: run it on a node with GPUs: srun --gpus=1 ... gpu-check\n",
    )
    amd = Machine(tmp_path / "amd", "none")
    amd.amd()
    found = amd.check(
        HIP_VISIBLE_DEVICES="0", GPU_DEVICE_ORDINAL="0", ROCR_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="0"
    )
    assert found.ok().stdout.splitlines()[-5:] == [
        "CUDA_VISIBLE_DEVICES 0",
        "ROCR_VISIBLE_DEVICES 0",
        "HIP_VISIBLE_DEVICES 0",
        "GPU_DEVICE_ORDINAL 0",
        "result           usable",
    ]


@pytest.mark.parametrize(
    "mask", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"]
)
def test_every_mask_of_amd_can_hide_the_gpus(tmp_path: Path, mask: str) -> None:
    machine = Machine(tmp_path, "rocm")
    machine.amd()
    found = machine.check(("dash",), **{mask: "-1"})
    assert (found.code, found.stderr) == (
        1,
        f"gpu-check: {mask} hides every GPU\n\nhint: unset {mask}, or say which: {mask}=0\n",
    )


def test_a_mask_of_the_other_vendor_hides_nothing(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    assert "ROCR" not in machine.check(ROCR_VISIBLE_DEVICES="-1", HIP_VISIBLE_DEVICES="").ok().stdout


def test_a_driver_that_says_its_version_in_sys_only(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    (machine.root / "proc/driver/nvidia/version").unlink()
    assert machine.check().ok().stdout.startswith("NVIDIA driver    not known\nNVIDIA GPUs      1 visible\n")
    version = machine.root / "sys/module/nvidia/version"
    version.parent.mkdir()
    version.write_text("535.54.03\n")
    found = machine.check(CUDA_VERSION="13.0")
    assert found.stdout.startswith("NVIDIA driver    535.54.03, which runs CUDA up to 12.2 in full\n")
    assert (found.code, found.stderr) == (
        2,
        "gpu-check: the image has CUDA 13.0, which needs driver 580.65.06 or newer; this node has 535.54.03\n\n"
        "hint: take an image with CUDA 12.2 or older, or one with NVIDIA's compatibility package\n",
    )


def test_the_drivers_library_is_looked_for_in_order(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    other = machine.root / "other"
    other.mkdir()
    (other / "libcuda.so.1").touch()
    found = machine.check(LD_LIBRARY_PATH=f"/none:{other}:{machine.root}/lib").ok()
    assert f"  libcuda        {other}/libcuda.so.1\n" in found.stdout
    missing = machine.check(LD_LIBRARY_PATH="/none")
    assert "  libcuda        not found\n" in missing.stdout
    assert (missing.code, missing.stderr) == (
        3,
        "gpu-check: the driver's library libcuda.so.1 is not in reach\n\nhint: start the container with --nv\n",
    )


def test_an_older_library_beside_the_driver_changes_nothing(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    for version in ("550.54.15", "535.104.05"):
        (machine.root / "lib" / f"libcuda.so.{version}").touch()
    found = machine.check(CUDA_VERSION="12.4").ok()
    assert "compatibility" not in found.stdout
    assert "newer" not in found.stdout


def test_the_images_library_is_looked_for_in_conda_too(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    conda = machine.root / "conda" / "lib"
    conda.mkdir(parents=True)
    (conda / "libcudart.so.11.8.89").touch()
    found = machine.check(CONDA_PREFIX=f"{machine.root}/conda").ok()
    assert f"CUDA             11.8.89 in the image ({conda}/libcudart.so.11.8.89)\n" in found.stdout
    assert "CUDA  " not in machine.check().ok().stdout


def test_generations_of_amds_processors(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rocm")
    machine.amd(devices=4)
    for number, version in enumerate(("90402", "110001", "100300"), 1):
        properties = machine.root / f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
        properties.write_text(f"simd_count 1\ngfx_target_version {version}\nother 1\n")
    (machine.root / "sys/class/kfd/kfd/topology/nodes/4/properties").unlink()
    found = machine.check().ok()
    assert [line for line in found.stdout.splitlines() if "on this node" in line] == [
        f"  on this node   {name}" for name in ("gfx942", "gfx1101", "gfx1030")
    ]
    assert found.stderr == ""


def test_the_tool_of_amd_is_asked_where_it_is_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rocm")
    machine.amd()
    tool = machine.root / "bin" / "rocm-smi"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "fake smi $#"\n')
    tool.chmod(0o755)
    assert "fake smi 0\n" in machine.check(PATH=f"{tool.parent}:/usr/bin:/bin").ok().stdout


def test_pytorch_for_the_other_vendor(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rocm")
    machine.amd()
    machine.torch(cuda="12.4")
    found = machine.check()
    assert (found.code, found.stderr) == (
        3,
        "gpu-check: PyTorch 2.7.1 is built for CUDA 12.4, and the GPU here needs ROCm\n",
    )


def test_a_python_that_crashes_is_told_with_its_code(machine: Machine) -> None:
    machine.nvidia("550.54.15")
    (machine.root / "python/torch.py").write_text("import os; print('built=CUDA 1.0'); os._exit(7)")
    found = machine.check()
    assert (found.code, found.stderr) == (3, "gpu-check: PyTorch cannot use the GPU: Python ended with 7\n")
    for code in (126, 127):
        (machine.root / "python/torch.py").write_text(f"import os; os._exit({code})")
        assert machine.check().code == 0
