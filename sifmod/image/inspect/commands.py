"""The commands of an image: programs in its directories, found by reading its file system."""

from collections.abc import Iterable

from sifmod.image.inspect.rootfs import Rootfs

USUAL_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# what people start from a shell, in the order of a wrapper list
PYTHON_COMMANDS = (
    "python", "python3", "pip", "pip3", "ipython", "jupyter", "jupyter-lab", "torchrun", "accelerate", "deepspeed",
    "lightning", "vllm", "sglang", "ray", "trtllm-build", "hf", "huggingface-cli", "tensorboard",
)  # fmt: skip


def search_path(path: str) -> tuple[str, ...]:
    """The absolute directories of a PATH, in order and once each; the usual ones where it names none."""
    found = (directory.rstrip("/") or "/" for directory in path.split(":") if directory.startswith("/"))
    return tuple(dict.fromkeys(found)) or USUAL_PATH


def find_command(rootfs: Rootfs, name: str, directories: Iterable[str]) -> str:
    """The path that `name` stands for in `directories`; "" where none of them has it. An absolute name is looked at."""
    candidates = [name] if name.startswith("/") else [f"{directory}/{name}" for directory in directories]
    return next((path for path in candidates if rootfs.is_program(path)), "")
