"""Choose the Python environment of an image's software: the same for commands, recipes and `sifmod new`."""

from sifmod.image.inspect.python_environments import PythonEnvironment

# words in a reference, the distributions that they mean, and the name that modules have for it
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


def is_framework(package: str) -> bool:
    """Whether this normalized distribution name is a framework's: images are built for it."""
    return any(package in names for _, names, _ in FRAMEWORKS)


def is_bare(environment: PythonEnvironment) -> bool:
    """Whether it is a system's own Python without other packages."""
    return environment.kind == "system" and not set(environment.packages) - _PLAIN


def software_environment(
    environments: tuple[PythonEnvironment, ...], first: PythonEnvironment | None
) -> PythonEnvironment | None:
    """The environment of an image's software: with a framework in it, else the `first` in PATH, else the first of all.

    A system's own Python without other packages comes last.
    """
    if found := next((one for one in environments if any(map(is_framework, one.packages))), None):
        return found
    chosen = first or next(iter(environments), None)
    if chosen is None or not is_bare(chosen):
        return chosen
    return next((one for one in environments if one.kind != "system"), chosen)
