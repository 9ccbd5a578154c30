"""Names and versions that are guessed for images."""

import pytest

from sifmod.config.easyconfig import Easyconfig
from sifmod.image.inspect.naming import find_name, own_labels
from sifmod.image.reference import parse

TORCH = {"torch": "2.7.1+cu126", "numpy": "2.0.0"}
TITLE, VERSION, BASE = (f"org.opencontainers.image.{name}" for name in ("title", "version", "ref.name"))


@pytest.mark.parametrize(
    ("source", "packages", "labels", "expected"),
    [
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", {"torch": "2.2.0a0+81ea7a4.nv24.1"}, {}, "PyTorch 2.2.0a0"),
        ("docker://pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", {"torch": "2.2.0"}, {}, "PyTorch 2.2.0"),
        ("docker://tensorflow/tensorflow:2.16.1-gpu", {"tensorflow": "2.16.1"}, {}, "TensorFlow 2.16.1"),
        ("docker://vllm/vllm-openai:v0.10.1", {**TORCH, "vllm": "0.10.1"}, {}, "vLLM 0.10.1"),
        ("docker://rocm/vllm-dev:main", {**TORCH, "vllm": "0.10.1.dev3+gabc.rocm"}, {}, "vLLM 0.10.1.dev3"),
        ("docker://python:3.12-slim", {"pip": "24.0"}, {}, "Python 3.12-slim"),
        ("docker://host.example/group/simulator:v1.4", TORCH, {}, "simulator 1.4"),
        ("docker://host.example/group/alphafold", {"jax": "0.4.3", "alphafold": "2.3.2"}, {}, "AlphaFold 2.3.2"),
        ("docker://host.example/group/esmfold:9", {**TORCH, "esmfold": "1.0.3"}, {}, "esmfold 1.0.3"),
        ("docker://host.example/group/numpy:3.12", {"numpy": "2.4.6"}, {}, "numpy 2.4.6"),
        ("docker://host.example/group/x:3.12", {"numpy": "2.4.6"}, {TITLE: "NumPy", VERSION: "1"}, "NumPy 2.4.6"),
        ("docker://host.example/group/numpy-2:3.12", {"numpy": "2.4.6"}, {}, "numpy 2.4.6"),
        ("numpy_2.4.sif", {"numpy": "2.4.6+local"}, {}, "numpy 2.4.6"),
        ("x.sif", {"numpy": "2.4.6"}, {TITLE: "numpy"}, "numpy 2.4.6"),
        ("image.sif", TORCH, {}, "PyTorch 2.7.1"),
        ("gromacs_2024.3.sif", {}, {}, "gromacs 2024.3"),
        ("./lumi-jax-rocm-6.2.4-python-3.12-jax-0.5.0-dockerhash-0d47.sif", {"jax": "0.5.0"}, {}, "jax 0.5.0"),
        ("x.sif", {}, {TITLE: "My Tool", VERSION: "v3.1"}, "My-Tool 3.1"),
        ("x.sif", {}, {BASE: "ubuntu", VERSION: "22.04"}, "x 1.0"),
        ("x.sif", {}, {TITLE: "Ubuntu Server", VERSION: "22.04"}, "x 1.0"),
        ("x.sif", {}, {TITLE: "../../..", VERSION: "default"}, "x 1.0"),
        ("oci:/data/tiny.oci", {}, {}, "tiny 1.0"),
        ("oci:/data/layout:2.5", {}, {}, "layout 2.5"),
        ("docker-archive:/data/tool-1.2.tar.gz", {}, {}, "tool 1.2"),
        ("https://host.example/images/tool_v2.sif", {}, {}, "tool 2"),
        ("./x.lua.sif", {}, {VERSION: "1.lua"}, "x 1"),
        ("./…….sif", {}, {}, "image 1.0"),
    ],
)
def test_what_an_image_is_called(source: str, packages: dict[str, str], labels: dict[str, str], expected: str) -> None:
    found = find_name(parse(source), packages, own_labels(labels))
    assert f"{found.name} {found.version}" == expected
    image = {"filename": "x.sif", "sources": ("x.sif",), "arch": "amd64"}
    Easyconfig.model_validate({"name": found.name, "version": found.version, "accelerator": "none", "image": image})
