"""gpu-check: what NVIDIA's half says beside AMD's, and what to type after each failure."""

from pathlib import Path

import pytest

from support.gpus import Machine

MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def check(machine: Machine, **env: str) -> tuple[int, list[str]]:
    result = machine.check(("dash",), **env)
    return result.code, result.stderr.splitlines()


@pytest.mark.parametrize(("accelerator", "heeded"), [("cuda", MASKS[:1]), ("rocm", MASKS), ("none", MASKS)])
@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_each_mask_that_counts_for_an_image(
    accelerator: str, heeded: tuple[str, ...], value: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, accelerator)
    if accelerator == "cuda":
        machine.nvidia("550.54.15")
        machine.torch(cuda="12.4", count=1)
    else:
        machine.amd()
        machine.torch(hip="6.2", count=1)
    for name in MASKS:
        hides = [f"gpu-check: {name} hides every GPU", "", f"hint: unset {name}, or say which: {name}=0"]
        assert check(machine, **{name: value}) == ((1, hides) if name in heeded else (0, []))
        assert check(machine, **{name: "0"}) == (0, [])


@pytest.mark.parametrize(
    ("accelerator", "there", "code", "message"),
    [
        ("cuda", "amd", 1, "no NVIDIA GPU is visible; this image is built for CUDA, and the GPUs here are from AMD"),
        ("rocm", "nvidia", 1, "no AMD GPU is visible; this image is built for ROCm, and the GPUs here are from NVIDIA"),
        ("none", "amd", 0, ""),
        ("none", "nvidia", 0, ""),
        ("none", "", 1, "no GPU is visible"),
    ],
)
def test_gpus_of_the_other_maker(accelerator: str, there: str, code: int, message: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, accelerator)
    if there == "amd":
        machine.amd(devices=3)
    elif there:
        machine.nvidia("550.54.15", devices=2)
    found = machine.check()
    assert found.code == code, found
    assert found.stderr.splitlines()[:1] == ([f"gpu-check: {message}"] if message else [])
    shown = {"amd": "AMD GPUs         3 visible", "nvidia": "NVIDIA GPUs      2 visible"}
    assert [word for word, line in shown.items() if line in found.stdout] == ([there] if there else [])


@pytest.mark.parametrize(
    ("target", "name"), [(90010, "gfx90a"), (90402, "gfx942"), (110001, "gfx1101"), (101300, "gfx10130")]
)
def test_the_names_of_amds_gpus(target: int, name: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rocm")
    machine.amd()
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties"
    node.write_text(node.read_text().replace("90010", str(target)))
    expected = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"
    assert f"  on this node   {expected}\n" in machine.check().stdout
    assert name == expected or target == 101300


@pytest.mark.parametrize("accelerator", ["cuda", "rocm"])
def test_a_driver_without_a_device(accelerator: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, accelerator)
    if accelerator == "cuda":
        machine.nvidia("550.54.15", devices=0)
    else:
        machine.amd(devices=0)
    hint = "hint: start the container with the devices: --nv or --rocm"
    assert check(machine) == (1, ["gpu-check: the driver is there, but no device file of a GPU", "", hint])


@pytest.mark.parametrize(("code", "fails"), [(126, False), (127, False), (125, True), (1, True)])
def test_a_python_that_does_not_start(code: int, fails: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "cuda")
    machine.nvidia("550.54.15")
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    for name in ("python3",):
        (tmp_path / "bin" / name).symlink_to(program)
    found = check(machine, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    said = [f"gpu-check: PyTorch cannot use the GPU: Python ended with {code}"]
    assert found == ((3, said) if fails else (0, []))
