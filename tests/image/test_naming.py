"""Names and versions that are guessed for images."""

import pytest

from sifmod.config.easyconfig import Easyconfig
from sifmod.image.guess import CALLED, Named, find_name, own_labels
from sifmod.image.inspect.python_environments import is_framework
from sifmod.image.sources.source_kinds import parse

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


FRAMEWORKS = {
    "PyTorch": (("pytorch", "torch"), ("torch",)),
    "TensorFlow": (("tensorflow", "tf"), ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-rocm")),
    "jax": (("jax",), ("jax",)),
    "vLLM": (("vllm",), ("vllm",)),
    "SGLang": (("sglang",), ("sglang",)),
    "Megatron-LM": (("megatron",), ("megatron-core",)),
    "NeMo": (("nemo",), ("nemo-toolkit",)),
    "DeepSpeed": (("deepspeed",), ("deepspeed",)),
    "AlphaFold": (("alphafold",), ("alphafold", "alphafold3")),
    "mpi4py": (("mpi4py",), ("mpi4py",)),
    "CuPy": (("cupy",), ("cupy", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-5-0")),
    "RAPIDS": (("rapids", "rapidsai"), ("cudf", "cudf-cu12")),
    "PaddlePaddle": (("paddle", "paddlepaddle"), ("paddlepaddle-gpu", "paddlepaddle")),
    "Horovod": (("horovod",), ("horovod",)),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_by_each_word_and_package(name: str) -> None:
    words, packages = FRAMEWORKS[name]
    for word in words:
        for package in packages:
            module = {"PyTorch": "torch", "TensorFlow": "tensorflow", "jax": "jax"}.get(name, "")
            expected = Named(name, CALLED, "1.2", f"the package {package}", True, module)
            assert find_name(parse(f"docker://h.example/x/my-{word}_x:9"), {package: "1.2+cu1"}, {}) == expected
            titled = find_name(parse("docker://h.example/x/other:9"), {package: "1.2"}, {TITLE: f"The {word}!"})
            assert titled == expected._replace(name_from=f"the label {TITLE}")
    assert all(is_framework(package) for package in packages)
    assert not is_framework(words[0] + "-tools")
    assert not find_name(parse(f"docker://h.example/x/{words[0]}:9"), {}, {}).framework


@pytest.mark.parametrize(
    "word",
    [
        *("image", "images", "container", "containers", "docker", "oci", "sif", "archive", "layout", "latest", "main"),
        *("base", "runtime", "devel", "dev", "test", "demo", "ml", "ai", "dl", "gpu", "cpu", "cuda", "rocm", "python"),
        *("py", "app", "lumi", "ubuntu", "debian", "v2.1", "3"),
    ],
)
def test_words_that_say_nothing_leave_the_name_to_the_packages(word: str) -> None:
    reference = parse(f"./{word}-image.sif")
    found = find_name(reference, TORCH, {})
    assert (found.name, found.name_from) == ("PyTorch", "the packages in the image")
    assert find_name(reference, {"vllm": "1.0"}, {}).name != "vLLM"  # which nobody calls just an image
    assert find_name(parse(f"./{word}-tool.sif"), TORCH, {}).name != "PyTorch"
    assert find_name(reference, TORCH, {TITLE: "Tool"}).name == "Tool"


@pytest.mark.parametrize(("package", "name"), [("jax", "jax"), ("tensorflow", "TensorFlow"), ("torch", "PyTorch")])
def test_frameworks_that_an_image_is_about_unasked(package: str, name: str) -> None:
    assert find_name(parse("./image.sif"), {package: "1.0"}, {}).name == name


UNKNOWN = "nothing in the image"


@pytest.mark.parametrize(
    ("source", "labels", "expected"),
    [
        ("./tool.sif", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("./tool.sif", {TITLE: " A Tool "}, Named("A-Tool", f"the label {TITLE}", "1.0", UNKNOWN)),
        ("./tool.sif", {VERSION: " v2.0 "}, Named("tool", CALLED, "2.0", f"the label {VERSION}")),
        ("docker://h.example/tool:v3", {VERSION: "2.0"}, Named("tool", CALLED, "2.0", f"the label {VERSION}")),
        ("docker://h.example/tool:v3", {}, Named("tool", CALLED, "3", "the tag")),
        ("docker://h.example/tool:vista", {}, Named("tool", CALLED, "vista", "the tag")),
        ("docker://h.example/tool:latest", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("docker://h.example/tool_4:latest", {}, Named("tool", CALLED, "4", CALLED)),
        ("./tool-1.5-2.sif", {}, Named("tool", CALLED, "1.5", CALLED)),
        ("./julia_1.9.sif", {}, Named("Julia", CALLED, "1.9", CALLED)),
        ("docker://rocker/r-ver:4.4", {}, Named("R", CALLED, "4.4", "the tag")),
        ("docker://r-base:4.4", {}, Named("R", CALLED, "4.4", "the tag")),
        ("./tool.oci.tar.gz.sif", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("./tool_oci.IMG", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("./tool.simg", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("oci:/data/tool.oci/", {}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("./tool.sif", {TITLE: "x" * 70}, Named("x" * 60, f"the label {TITLE}", "1.0", UNKNOWN)),
        ("./tool.sif", {TITLE: f"{'x' * 59}--y"}, Named("x" * 59, f"the label {TITLE}", "1.0", UNKNOWN)),
        ("./tool.sif", {TITLE: "a...b", VERSION: "default"}, Named("a.b", f"the label {TITLE}", "1.0", UNKNOWN)),
        ("./tool.sif", {TITLE: "default"}, Named("tool", CALLED, "1.0", UNKNOWN)),
        ("./7.sif", {}, Named("image", CALLED, "7", CALLED)),
    ],
)
def test_where_a_name_and_a_version_come_from(source: str, labels: dict[str, str], expected: Named) -> None:
    found = find_name(parse(source), {}, labels)
    assert found == expected
    assert found.is_known == (found.version_from != UNKNOWN)


def test_a_package_of_the_name() -> None:
    packages = {"my-tool": "3.0+local"}
    by_reference = find_name(parse("docker://h.example/x/my_tool:9"), packages, {VERSION: "8"})
    assert by_reference == Named("my_tool", CALLED, "3.0", "the package my-tool")
    by_title = find_name(parse("./x.sif"), packages, {TITLE: "My Tool", VERSION: "8"})
    assert by_title == Named("My-Tool", f"the label {TITLE}", "3.0", "the package my-tool")


OTHERS = {"org.opencontainers.image.source": "s", "maintainer": "m"}


@pytest.mark.parametrize(
    "title",
    [
        *("ubuntu", "Debian", "fedora", "CentOS", "rocky", "almalinux", "alpine", "opensuse", "sles", "suse"),
        *("rhel", "ubi9", "Red Hat", "redhat", "Amazon Linux", "amazonlinux"),
    ],
)
def test_labels_of_a_distribution_are_inherited(title: str) -> None:
    assert own_labels({TITLE: title, VERSION: "1", **OTHERS}) == {"maintainer": "m"}
    assert own_labels({TITLE: f"{title} 9", VERSION: "1", **OTHERS}) == {"maintainer": "m"}
    assert own_labels({BASE: title, VERSION: "1", **OTHERS}) == OTHERS
    for own in ({TITLE: f"my {title}"}, {TITLE: f"{title}x"}, {BASE: f"x/{title}"}):
        assert own_labels({**own, **OTHERS}) == {**own, **OTHERS}


def test_a_label_with_a_login_is_left_out() -> None:
    assert own_labels({**OTHERS, TITLE: "see https://ci:hunter2@git.example/x"}) == OTHERS
