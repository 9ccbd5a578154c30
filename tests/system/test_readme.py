"""README: what a newcomer types, word by word, and figures and versions that stand elsewhere too."""

import os
import re
from pathlib import Path

from sifmod import __version__
from sifmod.cli.commands import COMMANDS
from support.command import ROOT, run
from support.config import write
from support.documents import BLOCK
from support.images import Images
from support.module_tool import ModuleTool
from support.oci import Entry, layer, layers_of, write_layout
from support.registry import Registry
from support.wheels import wheel

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = [match["text"] for match in BLOCK.finditer(README) if match["language"] == "sh"]
INSTALL_SIFMOD, USE, LOAD, JOB = BLOCKS
TORCH = "opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/torch.py"


def test_from_nothing_to_a_module_with_a_package_and_a_job_script(
    lmod: ModuleTool, images: Images, registry: Registry, shared_tmp: Path
) -> None:
    """By a registry that stands for Docker Hub; its image has Python, and a file in the place of PyTorch."""
    torch = layer([Entry(TORCH, b"__version__ = '2.13.0'\n")])
    layout = write_layout(shared_tmp / "layout", [*layers_of(images.python_layout), torch])
    registry.push_layout(layout, "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime")
    settings = lmod.home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"accelerator: none\nmirrors: {{docker.io: [{registry.address}]}}\n")
    wheels = shared_tmp / "wheels"
    wheels.mkdir()
    wheel(wheels, "transformers", "99.0")
    wheel(wheels, "ipykernel", "99.0")
    uv = write(shared_tmp / "uv.toml", f'no-index = true\nfind-links = ["{wheels}"]\n')
    words = re.findall(r"(?m)^\| `((?:add|jobscript|jupyter) .*?)` \|", README)
    assert len(words) == 3
    commands = "\n".join(f"sifmod {typed}" for typed in words)
    script = "\n".join((lmod.initialise, f"cd {shared_tmp}", "set -e", USE, LOAD, commands))
    environment = {
        **os.environ,
        "HOME": str(lmod.home),
        "PATH": f"{os.environ['PATH']}:{ROOT}/.venv/bin",
        "SIFMOD_COMPRESSION": "lz4",
        "UV_CONFIG_FILE": str(uv),
        "UV_CACHE_DIR": str(shared_tmp / "uv"),
    }
    step = run(("bash", "--norc", "-c", script), env=environment)
    assert step.code == 0, step.stdout + step.stderr
    assert "PyTorch/2.13.0-cpu: installed, generation 1" in step.stderr
    printed = step.stdout.splitlines()
    assert LOAD.splitlines()[0] in printed, "what `install` prints is what README shows"
    assert "2.13.0" in printed
    assert "layer default" in step.stderr
    assert (shared_tmp / "job.sh").read_text().startswith("#!/bin/bash\n#SBATCH")


def test_its_commands_are_there() -> None:
    typed = re.findall(r"`sifmod ([a-z]+)", README) + re.findall(
        r"(?m)^\| `([a-z]+) (?:PyTorch|apply)[^`]*` \|", README
    )
    assert len(set(typed)) > 10
    assert set(typed) <= {*COMMANDS, "help"}


def test_its_figures_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    table = README.split("\n## How fast\n")[1].split("\n\n")[0]
    figures = re.findall(r"(?<![\w.])(\d[\d.]*) (?:m?s|MB)\b", table)
    assert len(figures) >= 10
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", page)] == []


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
