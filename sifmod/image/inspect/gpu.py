"""The kind of GPU that an image is built for, from its packages, variables, labels and files."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sifmod.config.easyconfig import Accelerator
from sifmod.image.inspect.python_environments import PythonEnvironment
from sifmod.image.inspect.rootfs import Rootfs

_SHORT = re.compile(r"\d{1,4}(?:\.\d{1,9}){0,2}")
_TORCH = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]([0-9][0-9.]*)", re.MULTILINE)
_LOCAL = re.compile(r"\+(cu|rocm)([0-9.]+)")
_PLUGIN = re.compile(r"jax-(cuda|rocm)([0-9]*)-plugin")
_ROCM_DIRECTORY = re.compile(r"rocm-(\d{1,3}\.\d{1,3}\.\d{1,3})(?:-\d+)?")
_CUDA_DIRECTORY = re.compile(r"cuda-(\d{1,3}\.\d{1,3})")


class Gpu(NamedTuple):
    """The kind of GPU, the version of CUDA or ROCm ("" if unknown), and the evidence in words."""

    accelerator: Accelerator
    version: str
    why: str


def find_gpu(
    rootfs: Rootfs, python: PythonEnvironment | None, environment: Mapping[str, str], labels: Mapping[str, str]
) -> Gpu:
    """The GPU that the image is built for: its framework decides first, then variables, labels and files.

    `none` if nothing indicates a GPU. Raises ImageError for a damaged image.
    """
    packages = python.packages if python else {}
    found = [*_evidence(rootfs, python, environment, labels)]
    if not found:
        built = (f"the package {name} {version}" for name, version in packages.items() if version.endswith("+cpu"))
        return Gpu("none", "", next(built, "nothing in the image indicates CUDA or ROCm"))
    first = found[0]
    # the name of ROCm's directory has the whole version, that of a framework often only its beginning
    same = [one for one in found if one.accelerator == first.accelerator and one.version]
    version = max((one.version for one in same), key=lambda text: text.count("."), default="")
    if first.accelerator == "cuda":
        version = ".".join((same[0].version if same else "").split(".")[:2])
    return Gpu(first.accelerator, version, first.why)


def _evidence(
    rootfs: Rootfs, python: PythonEnvironment | None, environment: Mapping[str, str], labels: Mapping[str, str]
) -> Iterator[Gpu]:
    """All that indicates a GPU, the most reliable first: packages, variables, labels, directories."""
    packages = python.packages if python else {}
    for library in python.libraries if python else ():
        for kind, version in _TORCH.findall(rootfs.read(f"{library}/torch/version.py", 1 << 16)):
            yield Gpu(_kind(kind), _short(version), f"torch/version.py has {kind} {version}")
    for name, version in packages.items():
        if local := _LOCAL.search(version):
            yield Gpu(_kind(local[1]), _pip_version(local[1], local[2]), f"the package {name} {version}")
        elif plugin := _PLUGIN.fullmatch(name):
            yield Gpu(_kind(plugin[1]), "", f"the package {name} {version}")
    if "tensorflow-rocm" in packages:
        yield Gpu("rocm", "", "the package tensorflow-rocm")
    for name in ("ROCM_VERSION", "ROCM_PATH", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"):
        if value := environment.get(name, ""):
            yield Gpu("rocm" if name.startswith("ROCM") else "cuda", _short(value), f"the variable {name}={value[:60]}")
    for name, value in labels.items():
        if re.search(r"(^|[._-])(cuda|rocm)([._-]version)?$", name.lower()):
            yield Gpu("rocm" if "rocm" in name.lower() else "cuda", _short(value), f"the label {name}: {value[:60]}")
    for parent, pattern, name in (("/opt", _ROCM_DIRECTORY, "rocm"), ("/usr/local", _CUDA_DIRECTORY, "cuda")):
        versions = [match[1] for entry in rootfs.entries(parent) if (match := pattern.fullmatch(entry))]
        if versions:
            version = max(versions, key=lambda text: [int(part) for part in text.split(".")])
            yield Gpu(_kind(name), version, f"the directory {parent}/{name}-{version}")
        elif rootfs.is_directory(f"{parent}/{name}"):
            yield Gpu(_kind(name), "", f"the directory {parent}/{name}")


def _kind(text: str) -> Accelerator:
    return "cuda" if text.startswith("cu") else "rocm"


def _short(text: str) -> str:
    """The first version number in `text`, at most three parts; for 6.2.41133 (HIP's own) two."""
    found = _SHORT.search(text)
    parts = found[0].split(".") if found else []
    return ".".join(parts[:2] if parts and len(parts[-1]) > 3 else parts)


def _pip_version(kind: str, text: str) -> str:
    """The version in a local version: `cu126` is CUDA 12.6, `rocm6.2.4` is ROCm 6.2.4."""
    return f"{text[:-1]}.{text[-1]}" if kind == "cu" and text.isdecimal() and len(text) >= 3 else _short(text)
