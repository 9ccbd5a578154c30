"""Each sign in the path of a tree: Environment Modules loads the module, or the install says that it cannot."""

import string
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.images import Images
from support.module_tool import environment_modules


def test_environment_modules_finds_the_module_or_the_install_says_that_it_cannot(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"name: App\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    path = write(tmp_path / "App-1.yaml", text)
    monkeypatch.delenv("MODULES_CMD", raising=False)  # who installs may use Lmod
    tool, warned = environment_modules(tmp_path), set()
    for sign in sorted(set(string.punctuation) - set('/:"\\')):
        prefix = tmp_path / f"a{sign}b"
        words = ["install", str(path), "--skip-sanity-check", "--prefix", str(prefix), "--module-syntax", "tcl"]
        if run(words) != 0:
            capfd.readouterr()
            continue
        said = f"Environment Modules finds no module below {prefix}/modules: it expands" in capfd.readouterr().err
        loaded = "App/1" in tool.run("module load App/1; echo $LOADEDMODULES", prefix / "modules").stdout
        assert loaded is not said, sign
        warned |= {sign} if said else set()
    assert warned == set("$[{}")
