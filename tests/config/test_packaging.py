"""The wheel: everything that an installed sifmod needs is in it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from sifmod import __version__
from sifmod.cli import commands
from support.command import run

ROOT = Path(__file__).parents[2]
VERBS = ("", *(f"-{verb}" for verb in commands.COMMANDS), "-config-show", "-site-new")
DOCUMENTS = ("README", "tutorial", "guide", "easyconfig")


def test_what_a_wheel_installs_works_without_the_checkout(tmp_path: Path) -> None:
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT)
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob(f"sifmod-{__version__}-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
        programs = packed.read(f"sifmod-{__version__}.dist-info/entry_points.txt").decode()
        assert "sifmod = sifmod_command:main" in programs
        share = f"sifmod-{__version__}.data/data/share"
        pages = {verb: packed.read(f"{share}/man/man1/sifmod{verb}.1").decode() for verb in VERBS}
        assert {f"{share}/doc/sifmod/{name}.md" for name in DOCUMENTS} <= set(packed.namelist())
    assert [verb for verb, page in pages.items() if ".SH EXAMPLES\n.TP\n.B " not in page] == []
    assert [verb for verb, page in pages.items() if ".TP\n.B \\-h, \\-\\-help\n" not in page] == []
    page = site / f"{share}/man/man1/sifmod-install.1"
    shown = run(("man", "-l", page), env={"PATH": os.environ["PATH"], "LC_ALL": "C"}).ok()
    assert "a name (lumi-g, ...) or a file" in " ".join(shown.stdout.replace("\b", "").split()), "no sign is lost"
    # -P and the path first: what is imported is the wheel's, not the checkout's
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = (sys.executable, "-P", "-c", "import sifmod.config.find as find; print(find.__file__, find.shipped())")
    found = subprocess.run(where, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.split() == [f"{site}/sifmod/config/find.py", f"{site}/sifmod/easyconfigs"]
    assert (site / "sifmod/easyconfigs/index.json").is_file()
    check = (sys.executable, "-P", "-m", "sifmod", "check", "PyTorch-2.2.0", "PyTorch-2.13.0")
    result = subprocess.run(check, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "== 2 of 2 files ok\n")
    assert result.stdout.count(": ok: ") == 6
