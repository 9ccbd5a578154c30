"""The variables that a module sets on the host."""

import re

from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.module.plan import RUNSCRIPTS_TARGET, Plan


def own_variables(plan: Plan, root: str) -> dict[str, str]:
    """Those by which every module tells where the generation at `root` is, and what is in it."""
    name = plan.module.variable
    if plan.image is None:  # those of the modules that a view loads stay
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
    """The variables that a load of the generation at `root` sets to one value: no SIF, no lists, no PATH, no runtime's.

    A variable of the host's environment that bears the name of one of the module's own loses.
    """
    own = own_variables(plan, root)
    return tuple({**own, **dict(plan.host_env), **own}.items())


def image_variables(module: ModuleName) -> tuple[str, ...]:
    return ("SIF", f"SIF{module.variable}")


def record_key(plan: Plan) -> str:
    """The key of the module's record in the environment; by a view's, wrappers know that what it sets is to stay."""
    return state_key(plan.module) if plan.image else f"_VIEW_{state_key(plan.module)}"


def state_key(module: ModuleName) -> str:
    """The module's name within names of variables, one spelling for one name: other signs as `_` and their code."""
    return re.sub("[^A-Za-z0-9]", lambda sign: f"_{ord(sign[0]):02X}", module.name)


def python_key(plan: Plan) -> str:
    """What is the same for modules that start the same Python of an image, as far as their own settings choose it."""
    return sha256_bytes(repr((plan.activation.command, python_path(plan))).encode())[:8]


def python_path(plan: Plan) -> tuple[str, ...]:
    """The directories in front of PATH inside by which it is found."""
    return tuple(directory for directory in plan.path if directory != RUNSCRIPTS_TARGET)
