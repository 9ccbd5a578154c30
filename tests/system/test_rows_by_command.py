"""Rows of wrong results (W1, W5, W7, T5) by commands and files on disk alone.

So the file runs in a checkout of an earlier sifmod as it is, where each test gives the row's own wrong result.
"""

import json
import os
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import identity
from support.command import Result
from support.config import write
from support.images import Images
from support.layered import NAME, make_machine
from support.slurm import Slurm

SKIP = "--skip-sanity-check"
EASYCONFIG = (
    "name: {name}\nversion: '{version}'\nwrappers: [sh]\nimage: {{sources: ['{source}'], filename: tiny.sif}}\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "a place"
    directory.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(directory / "prefix"))
    monkeypatch.setenv("SIFMOD_ACCELERATOR", "none")
    monkeypatch.chdir(directory)
    return directory


def sifmod(*words: str, **env: str) -> Result:
    return identity.sifmod(words, os.environ | env, Path.cwd())


def good(*words: str, **env: str) -> str:
    told = sifmod(*words, **env)
    assert told.code == 0, told.stderr
    return told.stdout + told.stderr


def test_add_resolves_with_the_python_of_the_image(shared_tmp: Path, images: Images) -> None:
    """W1: with a .venv above, its Python decided; here one that says that it is 3.11.99."""
    machine = make_machine(shared_tmp / "machine", images)
    version = machine.python("import platform; print(platform.python_version())").ok().stdout.strip()
    venv = machine.prefix / ".venv"
    write(venv / "pyvenv.cfg", f"home = /usr/bin\nversion_info = {version}\n")
    change = f"import sys; print(sys.stdin.read().replace('{version}', '3.11.99'))"
    said = f'#!/bin/sh\npython3 "$@" | python3 -c "{change}"\n'
    for name in ("python", "python3"):
        write(venv / "bin" / name, said).chmod(0o755)
    machine.add("demo")
    found = (machine.prefix / "layers" / NAME / "default").glob("*/live/pylock.toml")
    locks = [re.findall('^requires-python = ">=([0-9.]+)"$', path.read_text(), re.MULTILINE) for path in found]
    assert locks == [[version]]


def test_jobs_that_nobody_waits_for_decide_what_the_stack_says(
    slurm: Slurm, images: Images, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W5: "One/2 is not installed, so it is not made the default", and a hidden module was visible."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    for version in ("1", "2"):
        write(here / f"One-{version}.yaml", EASYCONFIG.format(name="One", version=version, source=images.tiny_sif))
    entries = "{easyconfig: One-1.yaml, hidden: true}, {easyconfig: One-2.yaml, default: true}"
    write(here / "stack.yaml", f"easyconfigs: [{entries}]\n")
    told = good("stack", "apply", "stack.yaml", SKIP, "--job", "--job-cores=1")
    modules = here / "prefix/modules/One"
    _wait(lambda: {"1.lua", "2.lua"} <= {path.name for path in modules.glob("*.lua")})
    _wait(lambda: not slurm.run(("squeue", "--noheader")).ok().stdout)
    decided = modules / ".modulerc.lua"
    assert decided.exists(), told
    assert 'hide_version("One/1")' in decided.read_text()
    assert 'module_version("One/2", "default")' in decided.read_text()


def _wait(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.3)


def test_a_nightly_apply_promotes_nothing_that_was_rolled_back(images: Images, here: Path) -> None:
    """W7: `[R] App/1`, exit code 0, and the bad generation was live again."""
    stack = ("stack", "apply", "stack.yaml", SKIP)
    write(here / "stack.yaml", "easyconfigs: [App-1.yaml]\n")
    for word in ("good", "bad"):
        text = EASYCONFIG.format(name="App", version="1", source=images.tiny_sif)
        write(here / "App-1.yaml", f"{text}env: {{A: {word}}}\n")
        good(*stack)
    good("stack", "lock", "stack.yaml")
    good("rollback", "App/1")
    told = good(*stack, "--locked")
    (listed,) = json.loads(sifmod("list", "--json").stdout)
    assert listed["generation"] == 1, told
    assert "App/1 was rolled back from the same content" in told


def test_a_bundle_is_applied_where_its_variables_are_not_set(images: Images, here: Path) -> None:
    """T5: "source ${IMAGES}/tiny.sif left out: the variable IMAGES is not set"."""
    (here / "images").mkdir()
    (here / "images/tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    write(here / "App-1.yaml", EASYCONFIG.format(name="App", version="1", source="${IMAGES}/tiny.sif"))
    write(here / "stack.yaml", "easyconfigs: [App-1.yaml]\n")
    own = {"IMAGES": str(here / "images")}
    good("stack", "apply", "stack.yaml", SKIP, **own)
    good("stack", "lock", "stack.yaml", **own)
    good("stack", "bundle", "stack.yaml", "-o", "it.tar", "--no-wheels", **own)
    with tarfile.open("it.tar") as bundle:
        assert any(name.startswith("images/sha256/") for name in bundle.getnames())
    (here / "images/tiny.sif").unlink()
    told = sifmod("stack", "apply", "--bundle", "it.tar", SKIP, SIFMOD_PREFIX=str(here / "else where"))
    assert told.code == 0, told.stderr
    modulefile = here / "else where/software/App/1/modulefile.lua"
    assert modulefile.exists(), told.stderr
