"""A module whose wrappers run in the tiny image, and people who run them."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plans import plan
from sifmod.module.plan import Activation, ImagePlan, Plan, Wrapper
from support.command import Result, User, run
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.user import OrdinaryUser

WRAPPERS = (
    Wrapper("in-sh", ("sh",)),
    Wrapper("show-env", ("env", "-0")),
    Wrapper("show", ("sh", "-c", 'printf "%s\\0" "$@"', "it's $0")),
    Wrapper("start-shell", ("/runscripts/start-shell",)),
    Wrapper("nothing", ("no-such-command",)),
)


def tiny_plan(prefix: Path, **changes: object) -> Plan:
    """A module of the busybox image."""
    wanted = plan(
        prefix=str(prefix),
        image=ImagePlan("tiny.sif", (), (), None, None, "amd64", "copy", False),
        runtime=RUNTIME.plan,
        accelerator="none",
        gpu_flags=(),
        activation=Activation("true", ""),
        binds=(),
        env=(("LD_PRELOAD", ""), ("PIP_USER", "0"), ("PYTHONNOUSERSITE", "1"), ("PYTHONPATH", "")),
        host_env=(),
        path=("/runscripts",),
        wrappers=WRAPPERS,
        runscripts=("start-shell",),
    )
    return replace(wanted, **changes)  # type: ignore[arg-type]


_UNMOUNTED_LATE = re.compile(
    r"^(ERROR: .*(host cleanup failed|/tmp/rootfs-\d+/root: exit status 1)|\S*fusermount3?: .* /tmp/rootfs-\d+/.*)\n",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Somebody:
    """Runs commands as root, or as the ordinary user."""

    ordinary: OrdinaryUser | None
    home: Path

    def run(
        self, args: Sequence[str | Path], env: Mapping[str, str] | None = None, stdin: str = "", cwd: Path | None = None
    ) -> Result:
        """Run `args` with `env` over what this person has at login.

        That SingularityCE could not unmount at once is left out of standard error (docs/runtimes.md).
        """
        done = run(args, env={**self._login(), **(env or {})}, cwd=cwd or self.home, stdin=stdin, user=self._user())
        return replace(done, stderr=_UNMOUNTED_LATE.sub("", done.stderr))

    def start(self, args: Sequence[str | Path]) -> subprocess.Popen[str]:
        """Start `args` in this person's home."""
        user = self._user()
        return subprocess.Popen(
            args,
            env=self._login(),
            cwd=self.home,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )

    def _login(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)} if self.ordinary is None else self.ordinary.environment()

    def _user(self) -> User | None:
        return None if self.ordinary is None or os.geteuid() != 0 else self.ordinary.user


def environment(result: Result) -> dict[str, str]:
    """What `env -0` printed; nothing else may have been said."""
    assert (result.code, result.stderr) == (0, "")
    return dict(variable.split("=", 1) for variable in result.stdout.split("\0")[:-1])


def loaded(tool: ModuleTool, *modules: Plan, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a shell that has loaded the modules, one after the other; `env` is what it had before."""
    paths = ":".join(f"{module.prefix}/modules" for module in modules)
    steps = [f"module load {module.module}" for module in modules]
    for step in (done := tool.session(steps, paths, env)):
        assert (step.code, step.stderr) == (0, "")
    return dict(done[-1].environment)
