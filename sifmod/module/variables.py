"""Variables that a module sets on the host, and the parts of variables' names that stand for a module."""

import re

from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.module.plan import RUNSCRIPTS_TARGET, Plan


def own_variables(plan: Plan, root: str) -> dict[str, str]:
    """The variables that every module sets about its generation at `root`; a view sets only EBROOT and EBVERSION."""
    name = plan.module.variable
    if plan.image is None:  # the modules that a view loads set the others
        return {f"EBROOT{name}": root, f"EBVERSION{name}": plan.version}
    return {
        "RUNSCRIPTS": f"{root}/runscripts",
        f"RUNSCRIPTS{name}": f"{root}/runscripts",
        "WITH_CONDA": plan.activation.with_conda,
        "CONTAINERROOT": root,
        f"EBROOT{name}": root,
        f"EBVERSION{name}": plan.version,
    }


def host_variables(plan: Plan, root: str) -> tuple[tuple[str, str], ...]:
    """Names and values of the variables that a load always sets, except SIF, PATH, other lists and the runtime's.

    The module's own variables take precedence over those of host_env.
    """
    own = own_variables(plan, root)
    return tuple({**own, **dict(plan.host_env), **own}.items())


def image_variables(module: ModuleName) -> tuple[str, ...]:
    return ("SIF", f"SIF{module.variable}")


def record_key(plan: Plan) -> str:
    """The key of the module's record in the environment. Wrappers recognise a view's, and keep its variables."""
    return state_key(plan.module) if plan.image else f"_VIEW_{state_key(plan.module)}"


def state_key(module: ModuleName) -> str:
    """The module's name for use in variable names, uniquely: other characters become `_` and their code."""
    return re.sub("[^A-Za-z0-9]", lambda sign: f"_{ord(sign[0]):02X}", module.name)


def python_key(plan: Plan) -> str:
    """A key that is the same for modules that start the same Python of an image."""
    return sha256_bytes(repr((plan.activation.command, python_path(plan))).encode())[:8]


def python_path(plan: Plan) -> tuple[str, ...]:
    """The directories to prepend to PATH to find the module's Python."""
    return tuple(directory for directory in plan.path if directory != RUNSCRIPTS_TARGET)
