"""A sifmod that changed while its version did not: install, plan and lock decide by the same comparison."""

import os
import shutil
import sys
from pathlib import Path

import sifmod
from support.command import Result, run
from support.config import write
from support.disk_state import disk_state
from support.images import Images

SKIP = "--skip-sanity-check"
COMPILED_ONCE = {"PYTHONDONTWRITEBYTECODE": ""}


def test_install_and_lock_agree_after_sifmod_or_an_input_changed(tmp_path: Path, images: Images) -> None:
    """W4: `install` said "nothing to do", and `stack lock` "is not installed as … says"."""
    here, own = tmp_path / "a place", tmp_path / "own"
    root = Path(sifmod.__file__).parent.parent
    for name in ("sifmod", "easyconfigs"):
        shutil.copytree(root / name, own / name)  # with what is compiled
    site = write(here / "site.yaml", "name: ours\n")
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    write(here / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}")
    write(here / "stack.yaml", "name: small\neasyconfigs: [Good-1.yaml]\n")
    given = {"PYTHONPATH": str(own), "SIFMOD_PREFIX": str(here / "a prefix"), "SIFMOD_SITE": str(site)}
    environ = {**os.environ, **given, **COMPILED_ONCE}

    def call(*words: str) -> Result:
        return run((sys.executable, "-m", "sifmod", *words), env=environ, cwd=here)

    assert call("stack", "apply", "stack.yaml", SKIP).code == 0
    with (own / "sifmod/module/templates/modulefile.lua.j2").open("a") as file:
        file.write("-- newer\n")
    assert call("stack", "lock", "stack.yaml").code == 18
    planned = call("stack", "plan", "stack.yaml", SKIP)
    assert " [R] Good/1: it was made by sifmod " in planned.stdout
    assert "with different files" in planned.stdout
    installed = call("install", "Good-1.yaml", SKIP)
    assert "nothing to do" not in installed.stderr
    assert call("stack", "lock", "stack.yaml").code == 0
    site.write_text("# ours\nname: ours\n")
    with (own / "sifmod/actions/gc.py").open("a") as file:
        file.write("# nothing else\n")
    for _ in range(2):
        assert " [x] Good/1" in call("stack", "plan", "stack.yaml", SKIP).stdout
        assert call("stack", "lock", "stack.yaml").code == 0
        assert "nothing to do" in call("install", "Good-1.yaml", SKIP).stderr


def test_an_earlier_sifmod_does_not_replace_what_a_later_one_made(tmp_path: Path, images: Images) -> None:
    here, later = tmp_path / "a place", tmp_path / "later"
    root = Path(sifmod.__file__).parent.parent
    for name in ("sifmod", "easyconfigs"):
        shutil.copytree(root / name, later / name)
    version = later / "sifmod/__init__.py"
    version.write_text(version.read_text().replace(sifmod.__version__, "12.10.0"))
    with (later / "sifmod/module/templates/modulefile.lua.j2").open("a") as file:
        file.write("-- later\n")
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    write(here / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}")
    write(here / "stack.yaml", "name: small\neasyconfigs: [Good-1.yaml]\n")
    environ = {**os.environ, "SIFMOD_PREFIX": str(here / "a prefix"), **COMPILED_ONCE}

    def call(own: Path, *words: str) -> Result:
        return run((sys.executable, "-m", "sifmod", *words), env={**environ, "PYTHONPATH": str(own)}, cwd=here)

    call(later, "install", "Good-1.yaml", SKIP).ok()
    before = disk_state(here / "a prefix/software")
    said = f"sifmod 12.10.0 has installed Good/1, and this is {sifmod.__version__}, which would render different files"
    for words in (("install", "Good-1.yaml", SKIP), ("stack", "apply", "stack.yaml", SKIP)):
        refused = call(root, *words)
        assert refused.code != 0
        assert said in refused.stderr
        assert disk_state(here / "a prefix/software") == before
    assert said in call(root, "stack", "plan", "stack.yaml", SKIP).stdout
    assert "nothing to do" in call(later, "install", "Good-1.yaml", SKIP).ok().stderr
    call(root, "install", "Good-1.yaml", SKIP, "--rebuild").ok()
    assert "nothing to do" in call(root, "install", "Good-1.yaml", SKIP).ok().stderr
    call(later, "install", "Good-1.yaml", SKIP).ok()
    assert "nothing to do" in call(later, "install", "Good-1.yaml", SKIP).ok().stderr
