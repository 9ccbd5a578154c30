"""A Guess: values for an image's easyconfig, each with its reason, from the image's description and files."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from sifmod.config.redact import has_login
from sifmod.errors import FetchError
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.gpu import Gpu, find_gpu
from sifmod.image.inspect.python_environments import (
    FRAMEWORKS,
    PythonEnvironment,
    find_environments,
    is_bare,
    normalized,
    software_environment,
)
from sifmod.image.inspect.rootfs import PYTHON_COMMANDS, Rootfs, find_command, search_path
from sifmod.image.reference import Reference
from sifmod.image.sources.source_kinds import parse

_UNASKED = frozenset(("torch", "tensorflow", "jax", "paddle"))  # frameworks whose own name an image may have
_NOTHING = "nothing in the image"
CALLED = "the image's name"
_SPELLED = {"python": "Python", "julia": "Julia", "r-base": "R", "r-ver": "R"}
_MODULES = {"PyTorch": "torch", "TensorFlow": "tensorflow", "jax": "jax"}  # Python can import these without a GPU
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
    """A name and a version, each with the source of the guess. `module` is the name for Python's import, or ""."""

    name: str
    name_from: str
    version: str
    version_from: str
    framework: bool = False
    module: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the version was found; otherwise it is assumed to be 1.0."""
        return self.version_from != _NOTHING


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels without those inherited from the base distribution, and without those that have a login."""
    labels = {name: value for name, value in labels.items() if not has_login(value)}
    if _DISTRIBUTIONS.match(labels.get(_TITLE, "")):
        return {name: value for name, value in labels.items() if not name.startswith(_OCI)}
    if _DISTRIBUTIONS.match(labels.get(f"{_OCI}ref.name", "")):
        return {name: value for name, value in labels.items() if name not in (_VERSION, f"{_OCI}ref.name")}
    return labels


def find_name(reference: Reference, packages: Mapping[str, str], labels: Mapping[str, str]) -> Named:
    """Name and version of the software in the image of `reference`, from its Python packages and own labels.

    The first match wins: a framework among the packages that the reference's name or the label `title` names, a package
    with the reference's name, a main framework among the packages if name and label say nothing, the label, the
    reference's name. The version is the package's, else from a label, the tag, or the reference's name, else 1.0.
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
    for keys, names, name in FRAMEWORKS:
        package = next((one for one in names if one in packages), None)
        if package and words & set(keys):
            return Named(name, origin, *_of_package(package, packages), True, _MODULES.get(name, ""))
    return None


def called(reference: Reference) -> str:
    """The last part of the reference's location, without a URL's query and suffixes such as `.sif` and `.tar.gz`."""
    location = urlsplit(reference.location).path if reference.kind.location == "url" else reference.location
    last = location.rstrip("/").rpartition("/")[2]
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
    """`text` as at most 60 characters of a module's name or version: letters, digits and . _ + -; may be ""."""
    text = re.sub(r"[^A-Za-z0-9._+-]+", "-", text.strip())
    text = re.sub(r"\.{2,}", ".", text).strip("._+-")[:60].rstrip("._+-")
    text = text.removesuffix(".lua")
    return "" if text == "default" else text


MAIN_PACKAGES = (
    "torch", "torchvision", "torchaudio", "triton", "pytorch-triton-rocm", "tensorflow", "tensorflow-rocm", "keras",
    "jax", "jaxlib", "flax", "numpy", "deepspeed", "flash-attn", "xformers", "bitsandbytes", "transformers",
    "accelerate", "datasets", "diffusers", "peft", "trl", "lightning", "pytorch-lightning", "vllm", "sglang",
    "megatron-core", "transformer-engine", "apex", "ray", "horovod", "mpi4py", "cupy", "cupy-cuda12x", "onnxruntime",
    "onnxruntime-gpu", "scipy", "pandas", "scikit-learn",
)  # fmt: skip
_NO_WRAPPER = re.compile(
    r"(ba|da|z|k|a|c|tc|fi)?sh|env|tini|dumb-init|busybox|apptainer|singularity|.*entrypoint.*|.*\.sh"
)
_WRAPPER = re.compile(r"[A-Za-z0-9](?:[._+-]?[A-Za-z0-9]){0,60}")
_DEFINED = "the image that its definition names"
_OF_PACKAGE = re.compile(r"[0-9](?:[._+-]?[A-Za-z0-9]){0,60}")


@dataclass(frozen=True)
class Guess:
    """All guesses about an image; unknown values are empty or None. `python` is the environment to use."""

    named: Named
    gpu: Gpu
    labels: Mapping[str, str]  # without those of the distribution below
    python: PythonEnvironment | None
    others: tuple[str, ...]  # directories of further environments
    contents: tuple[tuple[str, str], ...]
    wrappers: tuple[str, ...]
    path: tuple[str, ...]  # to prepend to PATH

    @property
    def versionsuffix(self) -> str:
        """The suffix: `-cuda-12.6-python-3.12` or `-cpu-python-3.12` for a framework, else `-cuda-12.6` or ""."""
        gpu = "-".join(part for part in (self.gpu.accelerator, self.gpu.version) if part)
        gpu = "cpu" if self.gpu.accelerator == "none" else gpu
        if not self.named.framework:
            return "" if gpu == "cpu" else f"-{gpu}"
        version = self.python.version if self.python else ""
        return f"-{gpu}-python-{version}" if version else f"-{gpu}"


def make_guess(reference: Reference, described: ImageDescription, rootfs: Rootfs) -> Guess:
    """Guess what the image of `reference` is, from its description and files; raises ImageError if it is damaged.

    A SIF whose version is not found is named after the image that it was converted from without changes, if any.
    """
    guess = _guess(reference, described, rootfs)
    source = None if guess.named.is_known or not reference.kind.is_file else _converted_from(described)
    if source is None:
        return guess
    guess = _guess(source, described, rootfs)
    called_from = _DEFINED if guess.named.name_from == CALLED else guess.named.name_from
    return replace(guess, named=guess.named._replace(name_from=called_from))


def _converted_from(described: ImageDescription) -> Reference | None:
    """The image in a registry or a library that a SIF was converted from; None if its definition has sections."""
    if any(text.lstrip().startswith("%") for text in described.definition.splitlines()):
        return None
    try:
        source = parse(described.source)
    except FetchError:
        return None
    return source if source.kind.location in ("repository", "library") else None


def _guess(reference: Reference, described: ImageDescription, rootfs: Rootfs) -> Guess:
    environment, labels = dict(described.config.environment), own_labels(dict(described.config.labels))
    directories = search_path(environment.get("PATH", ""))
    environments = find_environments(rootfs, environment)
    first = find_command(rootfs, "python3", directories) or find_command(rootfs, "python", directories)
    known = {f"{one.directory}/bin": one for one in environments}
    python = software_environment(environments, known.get(first.rpartition("/")[0]))
    if python and is_bare(python) and "python" not in called(reference).lower():
        python = None  # a bare system Python counts only if the image is named after Python
    packages = python.packages if python else {}
    named = find_name(reference, packages, labels)
    if python and named.name == "Python" and not named.is_known:
        named = named._replace(
            version=python.version or named.version, version_from=f"the Python in {python.directory}"
        )
    wrappers, path = _commands(rootfs, described, python, directories, named)
    return Guess(
        named=named,
        gpu=find_gpu(rootfs, python, environment, labels),
        labels=labels,
        python=python,
        others=tuple(one.directory for one in environments if one is not python and one.kind != "system"),
        contents=tuple(
            (name, packages[name]) for name in MAIN_PACKAGES if _OF_PACKAGE.fullmatch(packages.get(name, ""))
        ),
        wrappers=wrappers,
        path=path,
    )


def _commands(
    rootfs: Rootfs,
    described: ImageDescription,
    python: PythonEnvironment | None,
    directories: tuple[str, ...],
    named: Named,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The wrappers, and the directories that they need in PATH."""
    found: list[str] = []
    path: tuple[str, ...] = ()
    if python:
        place = f"{python.directory}/bin"
        if python.kind == "prefix" and find_command(rootfs, "python3", directories) != f"{place}/python3":
            path = (place,)
        places = directories if python.kind == "system" else (place,)
        found += [name for name in PYTHON_COMMANDS if find_command(rootfs, name, places)]
    config = described.config
    for word in (*config.entrypoint[:1], *config.cmd[:1], named.name, named.name.lower()):
        name = word.rpartition("/")[2]
        if _WRAPPER.fullmatch(name) and not _NO_WRAPPER.fullmatch(name) and find_command(rootfs, name, directories):
            found.append(name)
    scripts = ("start-shell", "list-packages") if "pip" in found or "pip3" in found else ("start-shell",)
    return tuple(dict.fromkeys((*found, *scripts))), path
