"""A Guess: what an easyconfig for an image could say, with the reason for each, from its description and its files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sifmod.errors import FetchError
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.gpu import Gpu, find_gpu
from sifmod.image.inspect.naming import CALLED, Named, called, find_name, is_framework, own_labels
from sifmod.image.inspect.python import PythonEnvironment, find_environments
from sifmod.image.inspect.rootfs import PYTHON_COMMANDS, Rootfs, find_command, search_path
from sifmod.image.reference import Reference
from sifmod.image.sources.kinds import parse

MAIN_PACKAGES = (
    "torch", "torchvision", "torchaudio", "triton", "pytorch-triton-rocm", "tensorflow", "tensorflow-rocm", "keras",
    "jax", "jaxlib", "flax", "numpy", "deepspeed", "flash-attn", "xformers", "bitsandbytes", "transformers",
    "accelerate", "datasets", "diffusers", "peft", "trl", "lightning", "pytorch-lightning", "vllm", "sglang",
    "megatron-core", "transformer-engine", "apex", "ray", "horovod", "mpi4py", "cupy", "cupy-cuda12x", "onnxruntime",
    "onnxruntime-gpu", "scipy", "pandas", "scikit-learn",
)  # fmt: skip
_PLAIN = {"pip", "setuptools", "wheel", "distlib", "packaging", "six", "distro-info", "python-apt", "dbus-python"}
_NO_WRAPPER = re.compile(
    r"(ba|da|z|k|a|c|tc|fi)?sh|env|tini|dumb-init|busybox|apptainer|singularity|.*entrypoint.*|.*\.sh"
)
_WRAPPER = re.compile(r"[A-Za-z0-9](?:[._+-]?[A-Za-z0-9]){0,60}")
_DEFINED = "the image that its definition names"
_VERSION = re.compile(r"[0-9](?:[._+-]?[A-Za-z0-9]){0,60}")


@dataclass(frozen=True)
class Guess:
    """Everything that was guessed; what there is nothing to say about is empty. `python` is the environment to use."""

    named: Named
    gpu: Gpu
    labels: Mapping[str, str]  # without those of the distribution below
    python: PythonEnvironment | None
    others: tuple[str, ...]  # directories of further environments
    contents: tuple[tuple[str, str], ...]
    wrappers: tuple[str, ...]
    path: tuple[str, ...]  # to put in front of PATH

    @property
    def versionsuffix(self) -> str:
        """`-cuda-12.6-python-3.12` of a framework; of anything else only the kind of GPU."""
        gpu = "-".join(part for part in (self.gpu.accelerator, self.gpu.version) if part)
        gpu = "cpu" if self.gpu.accelerator == "none" else gpu
        if not self.named.framework:
            return "" if gpu == "cpu" else f"-{gpu}"
        version = self.python.version if self.python else ""
        return f"-{gpu}-python-{version}" if version else f"-{gpu}"


def make_guess(reference: Reference, described: ImageDescription, rootfs: Rootfs) -> Guess:
    """What the image of `reference` seems to be, as it is described and by its files; raises ImageError for damage.

    A SIF whose file's name leads to no version is called as the image that it is a conversion of.
    """
    guess = _guess(reference, described, rootfs)
    source = None if guess.named.is_known or not reference.kind.is_file else _converted_from(described)
    if source is None:
        return guess
    guess = _guess(source, described, rootfs)
    called_from = _DEFINED if guess.named.name_from == CALLED else guess.named.name_from
    return replace(guess, named=guess.named._replace(name_from=called_from))


def _converted_from(described: ImageDescription) -> Reference | None:
    """The image that a SIF is a mere conversion of, as its definition says: one without a section that changes it."""
    if any(text.lstrip().startswith("%") for text in described.definition.splitlines()):
        return None
    try:
        source = parse(described.origin)
    except FetchError:
        return None
    return source if source.kind.location in ("repository", "library") else None


def _guess(reference: Reference, described: ImageDescription, rootfs: Rootfs) -> Guess:
    environment, labels = dict(described.config.environment), own_labels(dict(described.config.labels))
    directories = search_path(environment.get("PATH", ""))
    environments = find_environments(rootfs, environment)
    python = _chosen(rootfs, environments, directories, called(reference))
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
        contents=tuple((name, packages[name]) for name in MAIN_PACKAGES if _VERSION.fullmatch(packages.get(name, ""))),
        wrappers=wrappers,
        path=path,
    )


def _chosen(
    rootfs: Rootfs, environments: tuple[PythonEnvironment, ...], directories: tuple[str, ...], text: str
) -> PythonEnvironment | None:
    """The environment of the image's software: with a framework in it, else the first one in PATH, else the first.

    A system's own Python that has nothing but itself comes last, and counts only where the image is called after it.
    """
    if found := next((one for one in environments if any(map(is_framework, one.packages))), None):
        return found
    first = find_command(rootfs, "python3", directories) or find_command(rootfs, "python", directories)
    known = {f"{one.directory}/bin": one for one in environments}
    chosen = known.get(first.rpartition("/")[0]) or next(iter(environments), None)
    if chosen is None or chosen.kind != "system" or set(chosen.packages) - _PLAIN:
        return chosen
    made = next((one for one in environments if one.kind != "system"), None)
    return made or (chosen if "python" in text.lower() else None)


def _commands(
    rootfs: Rootfs,
    described: ImageDescription,
    python: PythonEnvironment | None,
    directories: tuple[str, ...],
    named: Named,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The wrappers, and what must be in PATH for them."""
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
