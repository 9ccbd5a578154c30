"""The kind of GPU that an image is built for, from its packages, variables, labels and files."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sifmod.image.inspect.gpu import Gpu, find_gpu
from sifmod.image.inspect.python_environments import PythonEnvironment
from support.inside import Files, rootfs

LIBRARY = "/venv/lib/python3.12/site-packages"
NOTHING: dict[str, str] = {}
SILENT = Gpu("none", "", "nothing in the image indicates CUDA or ROCm")


def gpu(
    tmp_path: Path,
    files: Files | None = None,
    packages: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = NOTHING,
    labels: Mapping[str, str] = NOTHING,
) -> Gpu:
    python = PythonEnvironment("venv", "/venv", "3.12", packages or {}, libraries=("/nowhere", LIBRARY))
    with rootfs(tmp_path / "image", files or {}) as inside:
        return find_gpu(inside, None if packages is None else python, environment, labels)


def test_nothing_speaks_of_a_gpu(tmp_path: Path) -> None:
    assert gpu(tmp_path) == SILENT
    assert gpu(tmp_path, packages={"numpy": "2.0.0"}) == SILENT
    built = gpu(tmp_path, packages={"numpy": "2.0.0", "torch": "2.7.1+cpu", "torchvision": "0.22+cpu"})
    assert built == Gpu("none", "", "the package torch 2.7.1+cpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda: str | None = '12.6'\nhip: str | None = None\n", Gpu("cuda", "12.6", "cuda 12.6")),
        ('cuda = None\nhip = "6.2.41133-dd7f95766"\n', Gpu("rocm", "6.2", "hip 6.2.41133")),
        ("hip = '6.4.2'\n", Gpu("rocm", "6.4.2", "hip 6.4.2")),
        ("cuda: Optional[str] = '12.8.1'\n", Gpu("cuda", "12.8", "cuda 12.8.1")),
        ("cuda = None\nhip = None\n# cuda = '1.0'\nbarracuda = '3.0'\n", None),
    ],
)
def test_the_word_of_pytorch(tmp_path: Path, text: str, expected: Gpu | None) -> None:
    found = gpu(tmp_path, {f"{LIBRARY}/torch/version.py": text}, {})
    assert found == (expected._replace(why=f"torch/version.py has {expected.why}") if expected else SILENT)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"torch": "2.7.1+cu126"}, Gpu("cuda", "12.6", "the package torch 2.7.1+cu126")),
        ({"torch": "1.9+cu92"}, Gpu("cuda", "92", "the package torch 1.9+cu92")),
        ({"torch": "2.8+cu129.1"}, Gpu("cuda", "129.1", "the package torch 2.8+cu129.1")),
        ({"torch": "2.5+rocm6.2.4"}, Gpu("rocm", "6.2.4", "the package torch 2.5+rocm6.2.4")),
        ({"torch": "2.5+rocm624"}, Gpu("rocm", "624", "the package torch 2.5+rocm624")),
        ({"vllm": "0.1", "x": "1+cu118", "y": "2+cu121"}, Gpu("cuda", "11.8", "the package x 1+cu118")),
        ({"jax-cuda12-plugin": "0.5.0"}, Gpu("cuda", "", "the package jax-cuda12-plugin 0.5.0")),
        ({"jax-rocm60-plugin": "0.5.0"}, Gpu("rocm", "", "the package jax-rocm60-plugin 0.5.0")),
        ({"jax-cuda12-plugin-tools": "0.5.0"}, SILENT),
        ({"tensorflow-rocm": "2.14.0"}, Gpu("rocm", "", "the package tensorflow-rocm")),
    ],
)
def test_the_word_of_packages(tmp_path: Path, packages: dict[str, str], expected: Gpu) -> None:
    assert gpu(tmp_path, packages=packages) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ROCM_VERSION": "6.2.1"}, Gpu("rocm", "6.2.1", "the variable ROCM_VERSION=6.2.1")),
        ({"ROCM_PATH": "/opt/rocm-6.3.2"}, Gpu("rocm", "6.3.2", "the variable ROCM_PATH=/opt/rocm-6.3.2")),
        ({"ROCM_PATH": "/opt/rocm"}, Gpu("rocm", "", "the variable ROCM_PATH=/opt/rocm")),
        ({"CUDA_VERSION": "12.4.1"}, Gpu("cuda", "12.4", "the variable CUDA_VERSION=12.4.1")),
        ({"ROCM_VERSION": "6.2.100"}, Gpu("rocm", "6.2.100", "the variable ROCM_VERSION=6.2.100")),
        ({"CUDA_VERSION": "12.4.99999"}, Gpu("cuda", "12.4", "the variable CUDA_VERSION=12.4.99999")),
        (
            {"NVIDIA_REQUIRE_CUDA": f"cuda>=12.2 {'x' * 100}"},
            Gpu("cuda", "12.2", f"the variable NVIDIA_REQUIRE_CUDA=cuda>=12.2 {'x' * 49}"),
        ),
        ({"CUDA_VERSION": "12", "ROCM_VERSION": "6"}, Gpu("rocm", "6", "the variable ROCM_VERSION=6")),
        ({"CUDA_VERSION": ""}, SILENT),
    ],
)
def test_the_word_of_variables(tmp_path: Path, environment: dict[str, str], expected: Gpu) -> None:
    assert gpu(tmp_path, environment=environment) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("com.nvidia.cuda.version", "12.4.1", Gpu("cuda", "12.4", "the label com.nvidia.cuda.version: 12.4.1")),
        ("ROCm", f"v6.2 {'x' * 100}", Gpu("rocm", "6.2", f"the label ROCm: v6.2 {'x' * 55}")),
        ("org.ROCM_VERSION", "", Gpu("rocm", "", "the label org.ROCM_VERSION: ")),
        ("barracuda", "1.0", SILENT),
        ("cuda.home", "12.4", SILENT),
    ],
)
def test_the_word_of_labels(tmp_path: Path, name: str, value: str, expected: Gpu) -> None:
    assert gpu(tmp_path, labels={"maintainer": "cuda", name: value}) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("/opt/rocm-6.2.4",), Gpu("rocm", "6.2.4", "the directory /opt/rocm-6.2.4")),
        (("/opt/rocm-6.10.0-12", "/opt/rocm-6.9.1"), Gpu("rocm", "6.10.0", "the directory /opt/rocm-6.10.0")),
        (("/opt/rocm-6.2", "/opt/rocm"), Gpu("rocm", "", "the directory /opt/rocm")),
        (
            ("/usr/local/cuda-12.10", "/usr/local/cuda-12.9"),
            Gpu("cuda", "12.10", "the directory /usr/local/cuda-12.10"),
        ),
        (("/usr/local/cuda",), Gpu("cuda", "", "the directory /usr/local/cuda")),
        (("/usr/local/cuda-12.4-old", "/opt/rocm-6.2.4-x"), SILENT),
    ],
)
def test_the_word_of_directories(tmp_path: Path, files: tuple[str, ...], expected: Gpu) -> None:
    assert gpu(tmp_path, dict.fromkeys(files)) == expected


def test_the_first_word_counts_and_the_longest_version_of_rocm(tmp_path: Path) -> None:
    files = {
        f"{LIBRARY}/torch/version.py": "hip = '6.2.41133'",
        "/opt/rocm-6.2.4/x": "",
        "/usr/local/cuda-12.4.1": None,
    }
    found = gpu(tmp_path, files, {}, {"CUDA_VERSION": "11.8.0.0"})
    assert found == Gpu("rocm", "6.2.4", "torch/version.py has hip 6.2.41133")


def test_the_longest_version_is_not_the_largest(tmp_path: Path) -> None:
    found = gpu(tmp_path, {"/opt/rocm-6.2.4": None}, environment={"ROCM_VERSION": "6.3"})
    assert found == Gpu("rocm", "6.2.4", "the variable ROCM_VERSION=6.3")


def test_the_first_version_of_cuda_counts_in_two_parts(tmp_path: Path) -> None:
    packages = {"jax-cuda12-plugin": "0.5.0"}
    found = gpu(tmp_path, {"/opt/rocm-6.2.4": None}, packages, {"CUDA_VERSION": "12.6.2"}, {"cuda": "11.8.1"})
    assert found == Gpu("cuda", "12.6", "the package jax-cuda12-plugin 0.5.0")


def test_without_an_environment_of_python_its_files_say_nothing(tmp_path: Path) -> None:
    assert gpu(tmp_path, {f"{LIBRARY}/torch/version.py": "cuda = '12.6'"}) == SILENT
