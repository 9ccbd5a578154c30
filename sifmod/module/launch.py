"""How the runtime is told: the names of its variables and the values a plan gives them."""

from sifmod.module.plan import Bind, Plan, Runtime

RUNSCRIPTS_TARGET = "/runscripts"


def prefixes(runtime: Runtime) -> tuple[str, ...]:
    """The prefixes of the runtime's variables.

    Apptainer reads both and warns when they differ, so both are set, identically; SingularityCE reads its own only.
    """
    return ("SINGULARITY", "APPTAINER") if runtime.kind == "apptainer" else ("SINGULARITY",)


def binds(plan: Plan, root: str) -> tuple[Bind, ...]:
    """Every bind of the module, the generation's runscripts (read-only) first."""
    return (Bind(f"{root}/runscripts", RUNSCRIPTS_TARGET, ("ro",)), *plan.binds)


def container_env(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The variables set inside the container, WITH_CONDA among them, sorted by name; PREPEND_PATH is not one of them."""
    return tuple(sorted({**dict(plan.env), "WITH_CONDA": plan.activation.with_conda}.items()))


def prepend_path(plan: Plan) -> tuple[str, ...]:
    """Directories in front of PATH inside, the first one first."""
    return plan.path
