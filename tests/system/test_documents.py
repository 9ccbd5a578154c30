"""README and docs: every shell block is run as it stands there, or says before it why it is an illustration."""

import os
import re
import shlex
from functools import partial
from pathlib import Path

import click
import pytest

from sifmod.cli.main import cli
from sifmod.cli.main import run as run_sifmod
from support.command import BUILD, ROOT, run
from support.documents import BLOCK, blocks, typed
from support.images import Images, made
from support.module_tool import ModuleTool
from support.oci import Entry, layer, layers_of, write_layout
from support.registry import Registry
from support.wheels import wheel

PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
HOWTO = sorted(ROOT.glob("docs/howto/*.md"))  # run by test_howto.py and test_publish.py
TUTORIAL = ROOT / "docs" / "tutorial.md"
INSTALL = ROOT / "docs" / "install.md"  # run by test_install_page.py
MIGRATION = sorted(ROOT.glob("docs/from-*.md"))  # run by test_migration.py
HINTED = ROOT / "docs" / "internals" / "commands.md"  # what is typed and answered by a hint
EXAMPLE = ROOT / "CONTRIBUTING.md"  # it adds a command


def test_every_block_has_a_language() -> None:
    """So that a shell block cannot hide: `text` is no shell, and an illustration says why it is one."""
    blocks = ((page.name, match) for page in (*PAGES, *HOWTO) for match in BLOCK.finditer(page.read_text()))
    known = ("sh", "text", "yaml", "python", "json")
    assert [(name, match["text"]) for name, match in blocks if match["language"] not in known] == []


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(ROOT.glob("docs/*/*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_each_command_of_a_page_is_there_with_its_options(page: Path) -> None:
    for command in typed(page) if page not in (HINTED, EXAMPLE) else ():
        words = command.split()[1:]
        found: click.Command = cli
        while isinstance(found, click.Group) and words and re.fullmatch("[a-z][a-z-]+", words[0]):
            below = found.get_command(click.Context(found), words.pop(0))
            assert below is not None and not below.hidden, command
            found = below
        known = {option for each in found.params for option in (*each.opts, *each.secondary_opts)}
        options = [re.split("[=|/]", word)[0] for word in words if re.match("--?[a-zA-Z]", word)]
        assert [one for one in options if one not in {*known, "-h", "--help", "-V"}] == [], command


@pytest.fixture
def mirror(registry: Registry, images: Images) -> str:
    """A mirror of Docker Hub and of registry.site, with small images under the names of the documents."""
    programs = [Entry(f"opt/conda/bin/{name}", b"#!/bin/sh\n") for name in ("python", "python3", "pip", "torchrun")]
    conda = images.tiny_layout("documents", entries=programs)
    for name in ("pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", "library/python:3.12"):
        registry.push_layout(conda, name)
    registry.push_sif(images.tiny_sif, "ai/pytorch:2.2.0")
    return registry.address


def test_the_commands_of_the_documents(
    mirror: str, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pages that name `sifmod` alone; one prefix for all of them, and a directory for each."""
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    mirrors = f"{{docker.io: [{mirror}], registry.site: [{mirror}]}}"
    settings.write_text(f"prefix: {tmp_path}/prefix\naccelerator: none\nmirrors: {mirrors}\n")
    monkeypatch.setenv("PATH", str(ROOT / ".venv" / "bin"), prepend=":")
    for page in PAGES:
        (tmp_path / page.stem).mkdir()
        monkeypatch.chdir(tmp_path / page.stem)
        for line in "".join(blocks(page)).splitlines() if page not in (TUTORIAL, INSTALL, *MIGRATION) else ():
            assert line.startswith("sifmod "), f"{page}: {line}"
            if "|" in line:  # to another program
                run(("bash", "-o", "pipefail", "-c", line)).ok()
                continue
            code = run_sifmod([os.path.expanduser(word) for word in shlex.split(line, comments=True)[1:]])
            captured = capfd.readouterr()
            assert code == 0, f"{page}: {line}\n{captured.out}{captured.err}"


def test_the_tutorial(lmod: ModuleTool, images: Images, shared_tmp: Path) -> None:
    """Word by word in one shell; its image has Python, and an empty module in the place of PyTorch."""
    clone = shared_tmp / "sifmod"
    (clone / "build").mkdir(parents=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    (clone / "build" / "pytorch-2.13.0-oci").symlink_to(made(BUILD / "tutorial.oci", partial(_layout, images)))
    script = "\n".join((lmod.initialise, f"cd {clone}", "set -e", *blocks(TUTORIAL)))
    wheels = shared_tmp / "wheels"
    wheels.mkdir()
    wheel(wheels, "humanize", "99.0")
    settings = shared_tmp / "uv.toml"  # no index: the wheel in the place of what PyPI has
    settings.write_text(f'no-index = true\nfind-links = ["{wheels}"]\n')
    uv = {"UV_CONFIG_FILE": str(settings), "UV_CACHE_DIR": str(shared_tmp / "uv")}
    environment = {**os.environ, **uv, "HOME": str(lmod.home), "SIFMOD_COMPRESSION": "lz4"}
    step = run(("bash", "--norc", "-c", script), env=environment)
    assert step.code == 0, step.stdout + step.stderr
    assert "PyTorch/2.13.0-cpu: installed, generation 1" in step.stderr
    assert [line for line in step.stdout.splitlines() if line in ("2", "4")] == ["2", "4"]
    assert "MyTorch/1.0-cpu: generation 1 is live" in step.stderr
    assert "99.0" in step.stdout.splitlines()
    assert sorted(path.name for path in clone.iterdir()) == [".venv", "build"]


def _layout(images: Images, to: Path) -> Path:
    torch = "opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/torch.py"
    return write_layout(to, [*layers_of(images.python_layout), layer([Entry(torch, b"")])])
