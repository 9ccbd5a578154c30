"""The sanity check: a module that does not do what its easyconfig promises is not published."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from sifmod.errors import SanityCheckError
from sifmod.module.launch import activated, binds, container_env, prefixes, prepend_path
from sifmod.module.plan import Plan
from sifmod.tree.receipt import Installation

SECONDS = 300
# names what is missing; the words after it are the commands and the paths
LOOK = 'for c; do case $c in /*) [ -e "$c" ] ;; *) command -v "$c" >/dev/null ;; esac || printf "%s\\n" "$c"; done'


def sanity_check(installation: Installation, plan: Plan, say: Callable[[str], None]) -> None:
    """Look for every wrapper's command and every path, and run the easyconfig's commands inside the image.

    The generation is in its place and not yet published. Without a runtime, or where it cannot start the image, what
    was not checked is said; commands that the easyconfig asks for then fail the check. Raises SanityCheckError.
    """
    directory = Path(installation.root)
    image = directory / installation.image.filename
    missing = [path for path in plan.sanity_check.paths if not path.startswith("/") and not (directory / path).exists()]
    if missing:
        raise SanityCheckError(f"sanity check of {plan.module}: the module has no {', '.join(missing)}")
    if not plan.runtime.path:
        if plan.sanity_check.commands:
            say(f"sanity check: no {plan.runtime.kind} here, so its commands were not run")
        return
    _look(directory, image, plan, say)
    for command in plan.sanity_check.commands:
        result = _run(directory, image, plan, activated(plan.activation, ("sh", "-c", command)))
        if result.returncode != 0:
            output = (result.stderr or result.stdout).strip()[-2000:]
            raise SanityCheckError(
                f"sanity check of {plan.module}: `{command}` gave exit code {result.returncode}, expected 0\n{output}",
                "mend the easyconfig, or install without the check: --skip-sanity-check",
            )


def _look(directory: Path, image: Path, plan: Plan, say: Callable[[str], None]) -> None:
    commands = [wrapper.command[0] for wrapper in plan.wrappers]
    wanted = [*commands, *(path for path in plan.sanity_check.paths if path.startswith("/"))]
    if not wanted:
        return
    result = _run(directory, image, plan, activated(plan.activation, ("sh", "-c", LOOK, "sh", *wanted)))
    if result.returncode != 0:
        why = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
        say(f"sanity check: the image could not be started here, its commands were not looked at ({why[0]})")
        return
    if missing := result.stdout.splitlines():
        raise SanityCheckError(
            f"sanity check of {plan.module}: not in the image: {', '.join(missing)}",
            "take them out of `wrappers` or `sanity_check.paths`, or correct `conda`, `venv`, `activate` or `path`",
        )


def _run(directory: Path, image: Path, plan: Plan, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    arguments = [plan.runtime.path, "exec", str(image), *command]
    try:
        return subprocess.run(
            arguments,
            env=_environment(directory, plan),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SanityCheckError(
            f"sanity check of {plan.module}: `{shlex.join(command)}` did not end within {SECONDS} seconds",
            "install without the check: --skip-sanity-check",
        ) from error


def _environment(directory: Path, plan: Plan) -> dict[str, str]:
    """The environment of a command: the module's own, without a bind whose source is missing here."""
    bound = [bind for bind in binds(plan, str(directory)) if Path(bind.source).exists()]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SINGULARITYENV_", "APPTAINERENV_", "SINGULARITY_BIND", "APPTAINER_BIND"))
        and name not in ("PYTHONPATH", "LD_PRELOAD")
    }
    for prefix in prefixes(plan.runtime):
        environment[f"{prefix}_BINDPATH"] = ",".join(map(str, bound))
        environment[f"{prefix}ENV_PREPEND_PATH"] = ":".join(prepend_path(plan))
        environment |= {f"{prefix}ENV_{name}": value for name, value in container_env(plan)}
    return environment
