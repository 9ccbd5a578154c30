"""The Python environments of an image (conda, venv, the system's) and the packages in them, read from its files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sifmod.image.inspect.interpreter import Interpreter, read_interpreter
from sifmod.image.inspect.rootfs import Rootfs, search_path

Kind = Literal["conda", "venv", "prefix", "system"]

_USUAL_CONDA = ("conda", "miniconda3", "miniconda", "miniforge3", "miniforge", "mambaforge", "anaconda3", "micromamba")
_USUAL_VENV = ("/opt/venv", "/venv", "/.venv", "/app/.venv", "/app/venv", "/workspace/.venv", "/workspace/venv")
_DIST = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[0-9][A-Za-z0-9.!+_-]*?)(?:-py[0-9.]+)?\.(?:dist|egg)-info"
)
_LIBRARY = re.compile(r"/lib(?:64)?/python3(?:\.\d+t?)?/(?:site|dist)-packages$")
_NAMEABLE = re.compile(r"/[A-Za-z0-9_@+./-]{0,200}")  # a directory that an easyconfig may name
_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_ACTIVATE = re.compile(r"(?:source|\.)\s+(/[^\s;&|]*)/bin/activate(?:\s+([A-Za-z0-9._+-]+))?")
# for each framework: the words in a reference that mean it, its distributions, and the name of its modules
FRAMEWORKS = (
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
_PLAIN = {"pip", "setuptools", "wheel", "distlib", "packaging", "six", "distro-info", "python-apt", "dbus-python"}


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python environment: `directory` is its prefix.

    A conda environment also has conda's own `prefix`, and its name there, `env`. A `prefix` environment is any other
    directory that only needs its bin in PATH; the `system` one needs nothing. `packages` maps normalized names to
    versions. `version` is like 3.11, "" if unknown.
    """

    kind: Kind
    directory: str
    version: str
    packages: Mapping[str, str]
    prefix: str = ""
    env: str = ""
    libraries: tuple[str, ...] = ()  # where the packages are, in the order of its sys.path
    library: str = ""  # where pip puts packages; it need not exist


def normalized(name: str) -> str:
    """A distribution's name, normalized as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(entry: str) -> tuple[str, str] | None:
    """Name and version from the name of a `.dist-info` or `.egg-info`; None for any other name."""
    match = _DIST.fullmatch(entry)
    return (match["name"], match["version"]) if match else None


def library_prefix(library: str) -> str:
    """The prefix of the Python with this package directory; its commands are below it. Any other path is unchanged."""
    return _LIBRARY.sub("", library)


def activated_environment(command: str) -> str:
    """The directory of the environment that a command like `source …/bin/activate NAME` activates; "" for any other."""
    match = _ACTIVATE.search(command)
    if match is None:
        return ""
    return f"{match[1]}/envs/{match[2]}" if match[2] and match[2] != "base" else match[1]


def find_environments(rootfs: Rootfs, environment: Mapping[str, str]) -> tuple[PythonEnvironment, ...]:
    """The environments in the image's variables and PATH, then those in the usual locations; the system's last.

    `environment` is the image's. Raises ImageError for a damaged image.
    """
    found: dict[str, PythonEnvironment] = {}
    for directory in dict.fromkeys((*_candidates(rootfs, environment), "/usr/local", "/usr")):
        if directory not in found and (one := environment_of(rootfs, python_in(rootfs, directory), environment)):
            found.setdefault(one.directory, one)
    return tuple(sorted(found.values(), key=lambda one: one.kind == "system"))


def python_in(rootfs: Rootfs, directory: str) -> str:
    """The program of `python3`, or else `python`, in the `bin` of a directory; "" without them."""
    programs = (f"{directory}/bin/{name}" for name in ("python3", "python"))
    return next(filter(rootfs.is_program, programs), "")


def _candidates(rootfs: Rootfs, environment: Mapping[str, str]) -> Iterator[str]:
    command = environment.get("WITH_CONDA", "")
    if match := _ACTIVATE.search(command):
        yield activated_environment(command)
        yield match[1]
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if (value := environment.get(name, "").rstrip("/")).startswith("/"):
            yield value
    for directory in search_path(environment.get("PATH", "")):
        if directory.endswith("/bin"):
            yield directory.removesuffix("/bin")
    for parent in ("/opt", "/usr/local", "/root", ""):
        for name in _USUAL_CONDA:
            prefix = f"{parent}/{name}"  # conda's own environment comes after those that the author made
            yield from (f"{prefix}/envs/{env}" for env in rootfs.entries(f"{prefix}/envs")[:50])
            yield prefix
    yield from _USUAL_VENV
    yield from (f"/opt/{name}" for name in rootfs.entries("/opt")[:200])


def environment_of(rootfs: Rootfs, program: str, environment: Mapping[str, str]) -> PythonEnvironment | None:
    """The environment of a Python program; None for "", and for a path that an easyconfig may not name.

    `environment` is the image's, for its PYTHONPATH.
    """
    if not program:
        return None
    first = (place for place in environment.get("PYTHONPATH", "").split(":") if place.startswith("/"))
    python = read_interpreter(rootfs, program, first)
    directory = python.prefix
    if not _NAMEABLE.fullmatch(directory) or ".." in directory:
        return None
    if directory in ("/usr", "/usr/local"):
        return _made("system", rootfs, python)
    parent, _, env = directory.rpartition("/envs/")
    if (
        parent
        and _ENVIRONMENT.fullmatch(env)
        and (_is_conda(rootfs, parent) or rootfs.is_file(f"{parent}/bin/activate"))
    ):
        return _made("conda", rootfs, python, parent, env)
    if _is_conda(rootfs, directory) and rootfs.is_file(f"{directory}/bin/activate"):
        return _made("conda", rootfs, python, directory, "base")
    if rootfs.is_file(f"{directory}/pyvenv.cfg") and rootfs.is_file(f"{directory}/bin/activate"):
        return _made("venv", rootfs, python)
    return _made("prefix", rootfs, python)


def _made(kind: Kind, rootfs: Rootfs, python: Interpreter, prefix: str = "", env: str = "") -> PythonEnvironment:
    packages: dict[str, str] = {}
    for library in python.libraries:
        for name in rootfs.entries(library):
            if named := distribution(name):
                packages.setdefault(normalized(named[0]), named[1])
    return PythonEnvironment(
        kind, python.prefix, python.version, packages, prefix, env, python.libraries, python.library
    )


def _is_conda(rootfs: Rootfs, directory: str) -> bool:
    return rootfs.is_directory(f"{directory}/conda-meta")


def is_framework(package: str) -> bool:
    """Whether this normalized distribution name is a framework's, for which images are built."""
    return any(package in names for _, names, _ in FRAMEWORKS)


def is_bare(environment: PythonEnvironment) -> bool:
    """Whether `environment` is the system's own Python without further packages."""
    return environment.kind == "system" and not set(environment.packages) - _PLAIN


def software_environment(
    environments: tuple[PythonEnvironment, ...], first: PythonEnvironment | None
) -> PythonEnvironment | None:
    """The environment of an image's software: with a framework in it, else the `first` in PATH, else the first of all.

    A system's own Python without other packages comes last. None without environments.
    """
    if found := next((one for one in environments if any(map(is_framework, one.packages))), None):
        return found
    chosen = first or next(iter(environments), None)
    if chosen is None or not is_bare(chosen):
        return chosen
    return next((one for one in environments if one.kind != "system"), chosen)
