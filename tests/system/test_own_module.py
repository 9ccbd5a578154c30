"""`sifmod self module`: the module of sifmod itself, loaded by both module tools, with man pages and completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod import __version__
from sifmod.cli.main import run
from support.disk_state import disk_state
from support.module_tool import ModuleTool

COMMAND = Path(sys.executable).with_name("sifmod")
TAB = 'COMP_WORDS=(sifmod upg); COMP_CWORD=1; _sifmod_completion sifmod; echo "${COMPREPLY[@]}"'


def written(directory: Path, command: Path = COMMAND, *words: str) -> list[str]:
    typed = [str(word) for word in (command, "self", "module", directory, *words)]
    return subprocess.run(typed, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The command in a directory where nothing else is, as `uv tool install` makes one."""
    (tmp_path / "bin of a site").mkdir()
    command = tmp_path / "bin of a site" / "sifmod"
    command.symlink_to(COMMAND)
    return command


def test_both_module_tools_load_it(tmp_path: Path, alone: Path, module_tool: ModuleTool) -> None:
    paths = written(tmp_path / "my modules", alone)
    assert paths == [f"{tmp_path}/my modules/sifmod/{name}" for name in (f"{__version__}.lua", __version__)]
    steps = ("true", "module load sifmod", "command -v sifmod; sifmod -V; man -w sifmod", TAB, "module unload sifmod")
    before, loaded, used, completed, after = module_tool.session(steps, tmp_path / "my modules")
    assert (loaded.code, loaded.stderr) == (0, "")
    version, man = f"sifmod {__version__}", f"{sys.prefix}/share/man/man1/sifmod.1"
    assert used.stdout.splitlines() == [str(alone), version, man], used
    assert loaded.environment["PATH"] == f"{alone.parent}:{before.environment['PATH']}"
    assert completed.stdout == "upgrade\n", completed
    tool = ("LOADEDMODULES", "_LMFILES_", "_ModuleTable", "__LMOD", "__MODULES", "MODULES", "LMOD")
    left, there = (
        {name: text for name, text in step.environment.items() if not name.startswith(tool)} for step in (after, before)
    )
    assert left == there


def test_a_python_beside_it_hides_no_other(tmp_path: Path, module_tool: ModuleTool) -> None:
    """In a virtual environment, as pip makes one: the directory goes to the end of PATH."""
    written(tmp_path / "modules")
    before, loaded = module_tool.session(("true", "module load sifmod"), tmp_path / "modules")
    assert loaded.environment["PATH"] == f"{before.environment['PATH']}:{COMMAND.parent}"


def test_what_is_there_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lua, tcl = (tmp_path / "sifmod" / name for name in (f"{__version__}.lua", __version__))
    assert run(["self", "module", str(tmp_path)]) == 0
    assert capfd.readouterr().out.splitlines() == [str(lua), str(tcl)]
    texts, before = (lua.read_text(), tcl.read_text()), disk_state(tmp_path)
    assert run(["self", "module", str(tmp_path)]) == 0  # it says the same
    assert disk_state(tmp_path) == before
    tcl.write_text("mine")
    lua.unlink()
    before = disk_state(tmp_path)
    assert run(["self", "module", str(tmp_path)]) == 2
    assert f"{tcl} exists already and was not changed\n\nhint: --force replaces it" in capfd.readouterr().err
    assert disk_state(tmp_path) == before
    assert run(["self", "module", str(tmp_path), "--force"]) == 0
    assert (lua.read_text(), tcl.read_text()) == texts


@pytest.mark.parametrize("mode", [0o2775, 0o755, 0o700])
def test_it_is_as_open_as_its_directory_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    """Others could not load it from a directory of modules that is open to them."""
    directory = tmp_path / "modules"
    directory.mkdir()
    directory.chmod(mode)
    before = os.umask(0o077)
    try:
        assert run(["self", "module", str(directory)]) == 0
    finally:
        os.umask(before)
    assert (directory / "sifmod").stat().st_mode & 0o7777 == mode
    assert {path.stat().st_mode & 0o777 for path in (directory / "sifmod").iterdir()} == {mode & 0o666}


def test_one_syntax_and_the_screen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["self", "module", str(tmp_path / "deep/below"), "--syntax", "lua"]) == 0
    (lua,) = capfd.readouterr().out.splitlines()
    assert os.listdir(tmp_path / "deep/below/sifmod") == [f"{__version__}.lua"]
    assert run(["self", "module", "-", "--syntax", "lua"]) == 0
    assert capfd.readouterr().out == Path(lua).read_text()
    for words in ((), ("--syntax", "lua", "--json")):
        assert run(["self", "module", "-", *words]) == 2
        assert "--syntax" in capfd.readouterr().err
    assert run(["self", "module", str(tmp_path / "json"), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["module"], found["man"]) == (f"sifmod/{__version__}", f"{sys.prefix}/share/man")
    assert found["paths"] == [f"{tmp_path}/json/sifmod/{name}" for name in (f"{__version__}.lua", __version__)]


def test_a_directory_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    before = disk_state(tmp_path)
    assert run(["self", "module", str(tmp_path / "file")]) == 18
    assert str(tmp_path / "file") in capfd.readouterr().err
    assert disk_state(tmp_path) == before


def test_packages_in_pythonpath_come_along(tmp_path: Path, module_tool: ModuleTool) -> None:
    """As pip install --target, EasyBuild and Spack leave it: the command needs PYTHONPATH."""
    packages = tmp_path / "lib"
    packages.mkdir()
    for name in ("sifmod", "sifmod_command.py"):
        (packages / name).symlink_to(COMMAND.parents[2] / name)
    command = tmp_path / "bin" / "sifmod"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom sifmod_command import main\nraise SystemExit(main())\n")
    command.chmod(0o755)
    typed = (command, "self", "module", tmp_path / "modules")
    subprocess.run(typed, check=True, env={**os.environ, "PYTHONPATH": str(packages)})
    (loaded,) = module_tool.session(("module load sifmod; sifmod -V",), tmp_path / "modules")
    assert loaded.stdout == f"sifmod {__version__}\n"
    assert loaded.environment["PYTHONPATH"] == str(packages)


MODULECMD = "/opt/environment-modules/usr/lib/*/modulecmd.tcl"
TOOLS = {
    ("lmod", "zsh"): ". /usr/share/lmod/lmod/init/zsh",
    ("lmod", "fish"): "source /usr/share/lmod/lmod/init/fish",
    ("environment modules", "zsh"): f'eval "$(tclsh {MODULECMD} zsh autoinit)"',
    ("environment modules", "fish"): f"tclsh {MODULECMD} fish autoinit | source",
}
# zsh's own functions for completion work at TAB only: one that prints stands in for it
COMPLETES = {
    "zsh": """
_describe() { print -l "${(@P)3}" }
module load sifmod
print "${_comps[sifmod]}"
words=(sifmod upg); CURRENT=2
_sifmod_completion
module unload sifmod
print "left: ${_comps[sifmod]} ${+functions[_sifmod_completion]}"
""",
    "fish": """
module load sifmod
echo _sifmod_completion
complete -C 'sifmod upg' | string replace \\t :
module unload sifmod
echo left: (complete -C 'sifmod upg') (functions -q _sifmod_completion; and echo 1; or echo 0)
""",
}


@pytest.mark.parametrize(("tool", "shell"), TOOLS)
def test_completion_in_other_shells(tool: str, shell: str, tmp_path: Path) -> None:
    written(tmp_path / "modules")
    begin = "autoload -Uz compinit; compinit -D\n" if shell == "zsh" else ""
    script = tmp_path / "script"
    script.write_text(f"{begin}{TOOLS[tool, shell]}\nmodule use {tmp_path}/modules\n{COMPLETES[shell]}")
    words = (shell, "-f" if shell == "zsh" else "--no-config", str(script))
    plain = {name: os.environ[name] for name in ("PATH", "HOME")} | {"TERM": "dumb"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    first, found, left = done.stdout.splitlines()
    assert (first, left.split()) == ("_sifmod_completion", ["left:", "0"]), done
    assert found.startswith("upgrade:"), done
    assert done.stderr == ""
