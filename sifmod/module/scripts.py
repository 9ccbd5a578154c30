"""A plan to the scripts of its generation: the wrappers in bin/, what they share, and the runscripts."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sifmod.errors import ModuleError
from sifmod.module import launch
from sifmod.module.file import File
from sifmod.module.plan import Plan
from sifmod.module.quote import shell

LAUNCHER = "share/launch.sh"
# the directory is bound and named by RUNSCRIPTS in any case
NO_RUNSCRIPTS = "The easyconfig of this module asks for no runscripts.\n"
_KEPT_OUT = ("PYTHONPATH", "LD_PRELOAD")  # the host's do not reach the container when the plan has them
_DEVICES = {"nv": "/dev/nvidiactl", "nvccli": "/dev/nvidiactl", "rocm": "/dev/kfd"}
_NEEDS = {"conda-python-distributed": "get-master"}  # a runscript that calls another


def _here(path: str, root: str) -> str:
    """A path as the launcher spells it, which has the generation's path in a variable."""
    rest = path.removeprefix(f"{root}/")
    return shell(path) if rest == path else f'"$sifmod_root"/{shell(rest)}'


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 (shell; every value goes through its filter)
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"shell": shell, "here": _here}


def scripts(plan: Plan, root: str) -> tuple[File, ...]:
    """Every script of the generation at `root`: POSIX sh, the same for the same plan and root.

    Raises ModuleError for a name that cannot be a file's or a variable's.
    """
    _check_names(plan)
    runscripts = dict.fromkeys((*plan.runscripts, *(_NEEDS[name] for name in plan.runscripts if name in _NEEDS)))
    return (
        *(_wrapper(plan, root, wrapper.name, wrapper.command) for wrapper in plan.wrappers),
        File(LAUNCHER, _launcher(plan, root)),
        *(File(f"runscripts/{name}", _runscript(plan, name), executable=True) for name in runscripts),
        *(() if runscripts else (File("runscripts/README", NO_RUNSCRIPTS),)),
    )


def _wrapper(plan: Plan, root: str, name: str, command: tuple[str, ...]) -> File:
    words = launch.activated(plan.activation, command)
    text = _TEMPLATES.get_template("scripts/wrapper").render(launcher=f"{root}/{LAUNCHER}", command=words)
    return File(f"bin/{name}", text, executable=True)


def _launcher(plan: Plan, root: str) -> str:
    plain = dict(launch.plain_env(plan))
    return _TEMPLATES.get_template("scripts/launch.sh").render(
        module=str(plan.module),
        root=root,
        stable_bin=f"{launch.stable_root(plan)}/bin",
        images=launch.images(plan, root),
        reinstall=f"sifmod install {plan.easyconfig} brings it back",
        runtimes=launch.runtimes(plan.runtime),
        binds=launch.binds(plan, root),
        path=":".join(launch.prepend_path(plan)),
        kept_out=tuple(name for name in _KEPT_OUT if name in plain),
        env=tuple((name, value, plain[name]) for name, value in launch.container_env(plan)),
        gpus=tuple((flag.upper(), _DEVICES[flag]) for flag in plan.gpu_flags),
    )


def _runscript(plan: Plan, name: str) -> str:
    return _TEMPLATES.get_template(f"runscripts/{name}").render(
        accelerator=plan.accelerator,
        python=launch.activated(plan.activation, ("python",)),
        bash=launch.activated(plan.activation, ("bash",)),
        runscript_env=plan.runscript_env,
    )


def _check_names(plan: Plan) -> None:
    """Names are not quoted in a script: hold them to what the configuration promises."""
    for name, _ in (*plan.env, *plan.runscript_env):
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise ModuleError(f"{name!r} cannot be a variable's name")
    for wrapper in plan.wrappers:
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._+-]*", wrapper.name):
            raise ModuleError(f"{wrapper.name!r} cannot be a wrapper's name")
