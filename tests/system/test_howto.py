"""The pages of tasks, `docs/howto`: their commands in a login shell, with PyTorch's image, Slurm and real packages."""

import os
from pathlib import Path

import pytest

from support import module_tool as tools
from support.command import ROOT, SIFMOD, run
from support.documents import blocks
from support.images import Images
from support.runtime import RUNTIME, VARIABLE
from support.slurm import Slurm

SHOWN = {
    "lumi": ("rank 0 of 2: a step is done", "rank 1 of 2: a step is done"),
    "build": (
        "the image keeps torch 2.13",
        "Lightning 2.6.0, PyTorch 2.13.0+cpu: 1 step is done",
        "build docker://nvcr.io/nvidia/pytorch:23.03-py3 with requirements-arm64.txt, code",
    ),
    "lightning": ("rank 0 of 2: 1 step is done", "rank 1 of 2: 1 step is done"),
    "requirements": ("10.0 2.0 million", "humanize>=4"),
    "notebooks": ("PyTorch/2.13.0-cpu", "kernels/pytorch-2.13.0-cpu"),
    "network": ("passed   collective, torchrun",),
}


@pytest.fixture(scope="module")
def environment(images: Images, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a user who has installed PyTorch's module; its directory below the prefix is on MODULEPATH."""
    directory = tmp_path_factory.mktemp("howto")
    (directory / "home").mkdir()
    shell = tools.lmod(directory / "home")
    prefix = directory / "prefix"
    own = {name: value for name, value in os.environ.items() if name != VARIABLE}
    kept = {**own, **shell.run("export -f module ml", prefix / "modules").environment, **RUNTIME.userns}
    path = f"{ROOT}/.venv/bin:{RUNTIME.search_path}:{os.environ['PATH']}"
    kept |= {"SIFMOD_PREFIX": str(prefix), "OMP_NUM_THREADS": "1", "PATH": path, "MODULEPATH": f"{prefix}/modules"}
    easyconfig = ROOT / "easyconfigs" / "PyTorch" / "PyTorch-2.13.0.yaml"
    source = ("--variant", "cpu", "--source", str(images.pytorch_sif), "--link", "reference")
    run((*SIFMOD, "install", "-q", easyconfig, *source), env=kept).ok()
    return kept


@pytest.mark.parametrize("page", SHOWN)
def test_the_commands_of_a_page(page: str, slurm: Slurm, environment: dict[str, str], tmp_path: Path) -> None:
    text = "\n".join(blocks(ROOT / "docs" / "howto" / f"{page}.md"))
    text = text.replace("apptainer exec", f"{Path(RUNTIME.path).name} exec")
    result = slurm.run(("bash", "-e", "-c", text), environment, tmp_path).ok()
    for line in SHOWN[page]:
        assert line in result.stdout + result.stderr


def test_every_page_is_run() -> None:
    """`publish` by test_publish.py."""
    assert {path.stem for path in (ROOT / "docs" / "howto").iterdir()} == SHOWN.keys() | {"publish"}
