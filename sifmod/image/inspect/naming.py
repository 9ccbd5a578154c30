"""A name and a version for the software in an image, from its packages, its labels and what it is called."""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from sifmod.image.inspect.python import normalized
from sifmod.image.reference import Reference

# words in a reference, the distributions that they mean, and the name that modules have for it
_FRAMEWORKS = (
    (("pytorch", "torch"), ("torch",), "PyTorch"),
    (("tensorflow", "tf"), ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-rocm"), "TensorFlow"),
    (("jax",), ("jax",), "jax"),
    (("vllm",), ("vllm",), "vLLM"),
    (("sglang",), ("sglang",), "SGLang"),
    (("megatron",), ("megatron-core",), "Megatron-LM"),
    (("nemo",), ("nemo-toolkit",), "NeMo"),
    (("deepspeed",), ("deepspeed",), "DeepSpeed"),
    (("alphafold",), ("alphafold", "alphafold3"), "AlphaFold"),
    (("mpi4py",), ("mpi4py",), "mpi4py"),
    (("cupy",), ("cupy", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-5-0"), "CuPy"),
    (("rapids", "rapidsai"), ("cudf", "cudf-cu12"), "RAPIDS"),
    (("paddle", "paddlepaddle"), ("paddlepaddle-gpu", "paddlepaddle"), "PaddlePaddle"),
    (("horovod",), ("horovod",), "Horovod"),
)
_UNASKED = frozenset(("torch", "tensorflow", "jax", "paddle"))  # that an image may be called after by themselves
_NOTHING = "nothing: the image does not say one"
CALLED = "what the image is called"
_SPELLED = {"python": "Python", "julia": "Julia", "r-base": "R", "r-ver": "R"}
_MODULES = {"PyTorch": "torch", "TensorFlow": "tensorflow", "jax": "jax"}  # that import without a GPU
_SAYS_NOTHING = (
    "image", "images", "container", "containers", "docker", "oci", "sif", "archive", "layout", "latest", "main", "base",
    "runtime", "devel", "dev", "test", "demo", "ml", "ai", "dl", "gpu", "cpu", "cuda", "rocm", "python", "py", "app",
    "lumi", "ubuntu", "debian",
)  # fmt: skip
_DISTRIBUTIONS = re.compile(
    r"(ubuntu|debian|fedora|centos|rocky|almalinux|alpine|opensuse|sles|suse|rhel|ubi\d|red ?hat|amazon ?linux)\b",
    re.IGNORECASE,
)
_OCI = "org.opencontainers.image."
_TITLE, _VERSION = f"{_OCI}title", f"{_OCI}version"
_NUMBER = re.compile(r"v?(\d+(?:\.\d+)+[A-Za-z0-9.]*|\d+)")


class Named(NamedTuple):
    """A name and a version, each with what it was guessed from. `module` is what Python imports, "" without one."""

    name: str
    name_from: str
    version: str
    version_from: str
    framework: bool = False
    module: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the image says its version."""
        return self.version_from != _NOTHING


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels but for those that tell of the distribution that the image was built on: they are inherited."""
    if _DISTRIBUTIONS.match(labels.get(_TITLE, "")):
        return {name: value for name, value in labels.items() if not name.startswith(_OCI)}
    if _DISTRIBUTIONS.match(labels.get(f"{_OCI}ref.name", "")):
        return {name: value for name, value in labels.items() if name not in (_VERSION, f"{_OCI}ref.name")}
    return dict(labels)


def find_name(reference: Reference, packages: Mapping[str, str], labels: Mapping[str, str]) -> Named:
    """Name and version of the software in the image of `reference`, whose Python packages and own labels these are.

    A framework that the reference is called after wins, then a package of the reference's own name, then the label
    `title`, then what the reference is called, then any framework that is there. Where a package has that name, its
    version is the one that counts; then a label's, a tag's, and one in what the reference is called.
    """
    text = called(reference)
    words = [word for word in re.split(r"[-_. +]+", text.lower()) if word]
    title = labels.get(_TITLE, "").strip()
    for said, origin in ((words, CALLED), (re.split(r"\W+", title.lower()), f"the label {_TITLE}")):
        if found := _framework(packages, set(said), origin):
            return found
    if normalized(text) in packages:
        return Named(_clean(text), CALLED, *_of_package(text, packages))
    telling = any(not _NUMBER.fullmatch(word) and word not in _SAYS_NOTHING for word in words)
    if not telling and not title and (found := _framework(packages, _UNASKED, "the packages in the image")):
        return found
    called_from = f"the label {_TITLE}" if _clean(title) else CALLED
    name = (
        _clean(title)
        or _clean("-".join(word for word in re.split(r"[-_ ]+", text) if not _NUMBER.fullmatch(word)))
        or "image"
    )
    known = normalized(name) in packages
    version, origin = _of_package(name, packages) if known else _version(reference, labels, text)
    return Named(_SPELLED.get(name, name), called_from, version, origin)


def _of_package(name: str, packages: Mapping[str, str]) -> tuple[str, str]:
    package = normalized(name)
    return _clean(packages[package].partition("+")[0]), f"the package {package}"


def _framework(packages: Mapping[str, str], words: Set[str], origin: str) -> Named | None:
    for keys, names, name in _FRAMEWORKS:
        package = next((one for one in names if one in packages), None)
        if package and words & set(keys):
            version = _clean(packages[package].partition("+")[0])
            return Named(name, origin, version, f"the package {package}", True, _MODULES.get(name, ""))
    return None


def is_framework(package: str) -> bool:
    """Whether a normalized distribution name is of one of the frameworks that images are made for."""
    return any(package in names for _, names, _ in _FRAMEWORKS)


def called(reference: Reference) -> str:
    """The last part of where it is, without what only says how it is packed."""
    last = reference.location.rstrip("/").rpartition("/")[2]
    return re.sub(r"(?i)(\.sif|\.tar(\.\w+)?|[._-]oci|\.img|\.simg|-dockerhash-[0-9a-f]+)+$", "", last)


def _version(reference: Reference, labels: Mapping[str, str], text: str) -> tuple[str, str]:
    if version := _clean(labels.get(_VERSION, "").strip().removeprefix("v")):
        return version, f"the label {_VERSION}"
    if reference.tag not in ("", "latest") and (
        tag := _clean(re.sub(r"^v(?=\d)", "", reference.tag.rpartition(":")[2]))
    ):
        return tag, "the tag"
    numbers = [match[1] for word in re.split(r"[-_ ]+", text) if (match := _NUMBER.fullmatch(word))]
    if numbers:
        return numbers[0], CALLED
    return "1.0", _NOTHING


def _clean(text: str) -> str:
    """`text` as the name or the version of a module may be: letters, digits and . _ + -; "" where nothing is left."""
    text = re.sub(r"[^A-Za-z0-9._+-]+", "-", text.strip())
    text = re.sub(r"\.{2,}", ".", text).strip("._+-")[:60].rstrip("._+-")
    text = text.removesuffix(".lua")
    return "" if text == "default" else text
