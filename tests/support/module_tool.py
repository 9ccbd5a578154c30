"""Shells that have Lmod or Environment Modules, and nothing else of the machine's environment."""

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.command import Result, User, run
from support.runtime import NAMED, RUNTIME

LMOD = Path("/usr/share/lmod/lmod")
ENVIRONMENT_MODULES = Path("/opt/environment-modules")
# bash's own, and the ones that only say which step this is
OF_THE_SHELL = ("_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV")


@dataclass(frozen=True)
class Step(Result):
    """One step of a session in one shell, and the exported variables after it."""

    environment: Mapping[str, str]


@dataclass(frozen=True)
class ModuleTool:
    """A module system: `initialise` is what a login shell runs to get its `module` command."""

    name: str
    initialise: str
    syntax: str
    home: Path

    def run(
        self,
        script: str,
        modulepath: str | Path = "",
        env: Mapping[str, str] | None = None,
        user: User | None = None,
    ) -> Step:
        """Run `script` in a fresh bash; `env` is what the user had exported before any module command."""
        return self.session((script,), modulepath, env, user)[0]

    def session(
        self,
        steps: Sequence[str],
        modulepath: str | Path = "",
        env: Mapping[str, str] | None = None,
        user: User | None = None,
    ) -> tuple[Step, ...]:
        """Run the steps one after the other in one fresh bash, all of them whatever their exit codes are.

        A step's own environment is read after it; `steps=("true", "module load X", "module unload X")` thus gives
        the environment before, in and after a load.
        """
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod-shell-") as directory:
            work = Path(directory)
            work.chmod(0o777)
            bash = (_script(self.initialise, steps, work), str(modulepath))
            whole = run(
                ("/bin/bash", "--noprofile", "--norc", "-c", bash[0], "bash", bash[1]),
                env={**self.clean_environment(), **(env or {})},
                cwd=work,
                user=user,
            )
            return tuple(_step(work, number, step, whole) for number, step in enumerate(steps))

    def clean_environment(self) -> dict[str, str]:
        """What a user has at login, on a machine that sets nothing of its own."""
        return {
            "HOME": str(self.home),
            "PATH": RUNTIME.search_path,
            "USER": "tester",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **RUNTIME.userns,
            **({"SIFMOD_RUNTIME": RUNTIME.path} if NAMED else {}),
        }


def lmod(home: Path, package: Path = LMOD) -> ModuleTool:
    """Lmod as installed, or as installed under another prefix."""
    assert (package / "init" / "bash").exists(), f"Lmod is missing in {package}: run scripts/provision"
    return ModuleTool("lmod", f'export MODULEPATH="$1"; . {shlex.quote(str(package / "init" / "bash"))}', "lua", home)


def environment_modules(home: Path, prefix: Path = ENVIRONMENT_MODULES) -> ModuleTool:
    """Environment Modules: what its init script does, for an installation that is not in its final place."""
    found = sorted(prefix.glob("usr/lib/*/modulecmd.tcl"))
    assert found, f"Environment Modules is missing in {prefix}: run scripts/provision"
    start = f'eval "$(tclsh {shlex.quote(str(found[0]))} bash autoinit)"; export MODULEPATH="$1"'
    return ModuleTool("environment-modules", start, "tcl", home)


def _script(initialise: str, steps: Sequence[str], work: Path) -> str:
    lines = [initialise, "shift", f"__work={shlex.quote(str(work))}"]
    for number, step in enumerate(steps):
        lines += [
            f"eval {shlex.quote(step)} >$__work/{number}.out 2>$__work/{number}.err",
            f"echo $? >$__work/{number}.code",
            f"/usr/bin/env -0 >$__work/{number}.env",
        ]
    return "\n".join(lines)


def _step(work: Path, number: int, step: str, whole: Result) -> Step:
    code = work / f"{number}.code"
    assert code.exists(), f"the shell ended before or in step {number}: {step}\n{whole}"

    def text(suffix: str) -> str:
        return (work / f"{number}.{suffix}").read_bytes().decode(errors="surrogateescape")

    variables = (pair.partition("=") for pair in text("env").split("\0") if pair)
    environment = {name: value for name, _, value in variables if name not in OF_THE_SHELL}
    return Step((step,), int(code.read_text()), text("out"), text("err"), environment)
