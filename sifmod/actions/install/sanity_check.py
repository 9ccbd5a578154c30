"""The sanity check: whether a generation that is in its place does what its easyconfig promises."""

import os
from collections.abc import Callable
from pathlib import Path

from sifmod.errors import SanityCheckError
from sifmod.image.child import LATE, Ended, run_child
from sifmod.module.plan import Plan
from sifmod.tree.receipt import Installation

Run = Callable[..., Ended]
# what a user may have set for his own runs
USERS = tuple(f"{prefix}_{name}" for prefix in ("SINGULARITY", "APPTAINER") for name in ("BIND", "NO_EVAL"))
MISSING = "not there: "
SHELL = "/bin/sh"  # by its path: an environment inside may have a `sh` of its own
# names what is missing; the words after it are the commands and the paths
LOOK = f'for c; do case $c in /*) [ -e "$c" ] ;; *) command -v "$c" >/dev/null ;; esac || echo "{MISSING}$c"; done'


def sanity_check(
    installation: Installation, plan: Plan, workspace: Path, say: Callable[[str], None], limit: float | None = None
) -> None:
    """Look for every wrapper's command and every path, and run the easyconfig's commands inside the image.

    The generation is in its place and need not be published; `workspace` is for the runtime's own files; `limit` is
    what a command may take, in seconds. Commands run in `/`, where Python imports no file of the user's. Without a
    runtime, or where it cannot start the image, what was not checked is said; commands that the easyconfig asks for
    then fail the check. Raises SanityCheckError.
    """
    directory = Path(installation.root)
    missing = [path for path in plan.sanity_check.paths if not path.startswith("/") and not (directory / path).exists()]
    if missing:
        raise SanityCheckError(f"sanity check of {plan.module}: the module has no {', '.join(missing)}")
    if not plan.runtime.path:
        if plan.sanity_check.commands:
            say(f"sanity check: no {plan.runtime.kind} here, so its commands were not run")
        return
    image, environment = directory / installation.own_image.filename, _environment(directory, workspace, plan)

    def run(*command: str) -> Ended:
        start = (plan.runtime.path, "-q", plan.verb, str(image), *plan.activation.activated(command))
        return run_child(start, cwd=Path("/"), env=environment, limit=limit)

    _look(run, plan, say)
    for command in plan.sanity_check.commands:
        result = run(SHELL, "-c", command)
        if result.code != 0:
            output = result.said.decode(errors="replace").strip()[-2000:]
            code = f"gave exit code {result.code}, expected 0"
            came = f"was not done after {limit:.0f} s" if limit and result.code == LATE else code
            raise SanityCheckError(
                f"sanity check of {plan.module}: `{command}` {came}\n{output}",
                "mend the easyconfig, or install without the check: --skip-sanity-check",
            )


def _look(run: Run, plan: Plan, say: Callable[[str], None]) -> None:
    commands = [wrapper.command[0] for wrapper in plan.wrappers]
    wanted = [*commands, *(path for path in plan.sanity_check.paths if path.startswith("/"))]
    if not wanted:
        return
    result = run(SHELL, "-c", LOOK, "sh", *wanted)
    lines = result.lines
    if result.code != 0:
        why = lines[-1:] or (f"exit code {result.code}",)
        say(f"sanity check: the image could not be started here, its commands were not looked at ({why[0]})")
        return
    if missing := [line.removeprefix(MISSING) for line in lines if line.startswith(MISSING)]:
        raise SanityCheckError(
            f"sanity check of {plan.module}: not in the image: {', '.join(missing)}",
            "take them out of `wrappers` or `sanity_check.paths`, or correct `conda`, `venv`, `activate` or `path`",
        )


def _environment(directory: Path, workspace: Path, plan: Plan) -> dict[str, str]:
    """The environment of a command: the module's own, without a bind whose source is missing here."""
    bound = [bind for bind in plan.binds_of(str(directory)) if Path(bind.source).exists()]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SINGULARITYENV_", "APPTAINERENV_", *USERS))
        and name not in ("PYTHONPATH", "LD_PRELOAD")
    }
    evaluated = plan.verb == "exec"
    path, variables = (plan.prepend_path, plan.container_env) if evaluated else (plan.path, plan.plain_env)
    for prefix in plan.runtime.prefixes:
        environment |= {f"{prefix}_{name}": str(workspace) for name in ("CONFIGDIR", "CACHEDIR", "TMPDIR")}
        environment[f"{prefix}_BINDPATH"] = ",".join(map(str, bound))
        if not evaluated:  # see launch.sh
            environment[f"{prefix}_NO_EVAL"] = "1"
        environment[f"{prefix}ENV_PREPEND_PATH"] = ":".join(path)
        environment |= {f"{prefix}ENV_{name}": value for name, value in variables}
    return environment
