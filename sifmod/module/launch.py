"""How the runtime is told: the names of its variables, the values a plan gives them, the command lines it runs."""

from sifmod.config.kinds import RUNTIMES
from sifmod.module.plan import Activation, Bind, Plan, Runtime

RUNSCRIPTS_TARGET = "/runscripts"
USER_SOFTWARE_TARGET = "/user-software"
VENVS = ("/user-software/venv/*", "/user-software/venv", "/user-software/*", "/user-software")  # the first is taken
# inside, where a squashfs can be looked into too
_USERS_VENV = (
    f'for sifmod_venv in {" ".join(VENVS)}; do if [ -f "$sifmod_venv/bin/activate" ]; then'
    ' export VIRTUAL_ENV="$sifmod_venv" PATH="$sifmod_venv/bin:$PATH"; break; fi; done; unset sifmod_venv; '
)
# paths that are known when the files are used; no text of a plan holds a NUL
ROOT = "\0root"  # of the generation
PREFIX = "\0prefix"  # as a shell would spell it
MODULES = "\0modules"  # the directory for `module use`, in the same way
PACKERS = ("make-squashfs", "unmake-squashfs")  # commands of the host, for what is at USER_SOFTWARE_TARGET
_EVALUATED = str.maketrans({sign: f"\\{sign}" for sign in "\\$`"})


def prefixes(runtime: Runtime) -> tuple[str, ...]:
    """The prefixes of the runtime's variables.

    Apptainer reads both and warns when they differ, so both are set, identically; SingularityCE reads its own only.
    """
    match runtime.kind:
        case "apptainer":
            return ("SINGULARITY", "APPTAINER")
        case "singularity":
            return ("SINGULARITY",)


def runtimes(runtime: Runtime) -> tuple[str, ...]:
    """Where a wrapper looks for the runtime: where it was at install time, else on PATH."""
    names = tuple(sorted(RUNTIMES, key=lambda name: name != runtime.kind))
    return (runtime.path, *names) if runtime.path else names


def literal(text: str) -> str:
    r"""A value as SINGULARITYENV_X and APPTAINERENV_X must spell it to arrive unchanged.

    The runtime puts a backslash before each `"` and evaluates the result inside double quotes (Apptainer, every
    version, and SingularityCE from 3.9): `\`, `$` and the backtick are escaped here, `"` must not be. With NO_EVAL
    set the runtime takes values as they are, and this spelling is then wrong (never run).
    """
    return text.translate(_EVALUATED)


def binds(plan: Plan, root: str) -> tuple[Bind, ...]:
    """Every bind of the module, the generation's runscripts (read-only) first."""
    return (Bind(f"{root}/runscripts", RUNSCRIPTS_TARGET, ("ro",)), *plan.binds)


def user_software(plan: Plan, root: str) -> tuple[Bind, ...]:
    """Where the user's additions to the module may be: a squashfs, else a directory. The first that exists is bound."""
    if not plan.user_software:
        return ()
    place = f"{root}{USER_SOFTWARE_TARGET}"
    return (
        Bind(f"{place}.squashfs", USER_SOFTWARE_TARGET, ("ro", "image-src=/")),  # without ro Apptainer warns
        Bind(place, USER_SOFTWARE_TARGET),
    )


def packers(plan: Plan) -> tuple[str, ...]:
    """The commands that pack the user's additions and unpack them; a wrapper of the easyconfig's own goes first."""
    own = {wrapper.name for wrapper in plan.wrappers}
    return tuple(name for name in PACKERS if plan.user_software and name not in own)


def plain_env(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The variables inside the container with the values they have there, WITH_CONDA among them, sorted by name."""
    return tuple(sorted({**dict(plan.env), "WITH_CONDA": plan.activation.with_conda}.items()))


def container_env(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The same as the runtime must be told them, after <prefix>ENV_: see literal. PREPEND_PATH is not one of them."""
    return tuple((name, literal(value)) for name, value in plain_env(plan))


def prepend_path(plan: Plan) -> tuple[str, ...]:
    """Directories in front of PATH inside, the first one first, as the runtime must be told them: see literal."""
    return tuple(literal(directory) for directory in plan.path)


def images(plan: Plan, root: str) -> tuple[str, ...]:
    """Where the image is looked for: the generation's own link, then the copies in image_dirs."""
    return tuple(f"{directory}/{plan.image.filename}" for directory in (root, *plan.image.image_dirs))


def switch(plan: Plan) -> str:
    """The live generation's place in any prefix, `/software/…`, the same for every generation."""
    return f"/software/{plan.module}"


def generation(plan: Plan, number: int) -> str:
    """The own place of one generation in any prefix."""
    return f"/software/{plan.module.name}/.generations/{plan.module.version}/{number}"


def reinstall(plan: Plan, prefix: str) -> str:
    """The command that brings the module in `prefix` back."""
    words = f"sifmod install {plan.easyconfig}"
    return f"{words} --prefix {prefix}" if plan.prefix_named else words


def activated(activation: Activation, command: tuple[str, ...]) -> tuple[str, ...]:
    """The words that start a command inside with the Python environment active; arguments may follow.

    A runscript activates the environment itself, and variables need no command: both are started as they are.
    """
    if command[0].startswith(f"{RUNSCRIPTS_TARGET}/"):
        return command
    start = f'{{ {_USERS_VENV}exec "$@"; }}' if activation.users_venv else 'exec "$@"'
    if activation.command:
        return ("bash", "-c", f"{activation.command} && {start}", "bash", *command)
    return ("sh", "-c", start, "sh", *command) if activation.users_venv else command
