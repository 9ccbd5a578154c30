"""The Plan: everything that is decided before anything is done, and how the runtime is told of it."""

import os
from dataclasses import dataclass

from sifmod.config.easyconfig import Accelerator, GpuSelection, Verb
from sifmod.config.kinds import RUNTIMES, RuntimeKind, StaleLayer, Syntax
from sifmod.config.mpi_profile import IMAGES_OWN, WantedMpi
from sifmod.config.name import ModuleName
from sifmod.config.shown import shown
from sifmod.config.site import Link
from sifmod.errors import ViewError

RUNSCRIPTS_TARGET = "/runscripts"
PIP_TARGET = f"{RUNSCRIPTS_TARGET}/.pip"  # what stands before the image's pip
USER_SOFTWARE_TARGET = "/user-software"
LAYER_TARGET = "/user-layer"  # what `sifmod add` has put over the image
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


def literal(text: str) -> str:
    r"""A value as SINGULARITYENV_X and APPTAINERENV_X must spell it to arrive unchanged.

    The runtime puts a backslash before each `"` and evaluates the result inside double quotes (Apptainer, every
    version, and SingularityCE from 3.9): `\`, `$` and the backtick are escaped here, `"` must not be. With NO_EVAL
    set the runtime takes values as they are, and this spelling is then wrong (never run).
    """
    return text.translate(_EVALUATED)


@dataclass(frozen=True)
class Bind:
    """One bind path. `source` and `target` are absolute; an optional one is left out where its source is missing."""

    source: str
    target: str
    options: tuple[str, ...] = ()  # ro, rw, image-src=/…
    optional: bool = False

    def __str__(self) -> str:
        """As the runtime spells it: `source[:target[:options]]`."""
        if self.options:
            return f"{self.source}:{self.target}:{','.join(self.options)}"
        return self.source if self.source == self.target else f"{self.source}:{self.target}"


@dataclass(frozen=True)
class Runtime:
    """The program that runs images on this site, as found when the site was loaded."""

    kind: RuntimeKind
    path: str  # absolute path; "" when none was found

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the runtime's variables.

        Apptainer reads both and warns when they differ, so both are set, identically; SingularityCE reads its own only.
        """
        match self.kind:
            case "apptainer":
                return ("SINGULARITY", "APPTAINER")
            case "singularity":
                return ("SINGULARITY",)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Where a wrapper looks for the runtime: where it was at install time, else on PATH."""
        names = tuple(sorted(RUNTIMES, key=lambda name: name != self.kind))
        return (self.path, *names) if self.path else names


@dataclass(frozen=True)
class ConversionPlan:
    """How the promised SIF of a docker or oci image was made."""

    compression: str
    tools: tuple[tuple[str, str], ...]
    tree: str  # digest of the files in it


@dataclass(frozen=True)
class BuildPlan:
    """How an image is built: upon a base; or by a definition file or a Dockerfile, whose paths are "" otherwise."""

    base: "ImagePlan | None" = None
    pip: tuple[str, ...] = ()  # requirements
    requirements: str = ""  # path of a requirements.txt or of a lock
    files: tuple[tuple[str, str], ...] = ()  # path here, path in the image
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    post: str = ""
    test: str = ""
    definition: str = ""
    dockerfile: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    path: tuple[str, ...] = ()  # where the base's Python is looked for, before its own PATH
    protected: tuple[str, ...] = ()  # packages that stay as the base has them, `*` at the end for all that begin so
    indexes: tuple[tuple[str, str], ...] = ()  # beginning of torch's local version: index of packages linked against it

    def __str__(self) -> str:
        """What it is built from, in a line."""
        if self.base is None:
            return self.definition or self.dockerfile
        added = [*self.pip, *(os.path.basename(path) for path in (self.requirements,) if path)]  # noqa: PTH119 (text)
        added += [os.path.basename(path.rstrip("/")) for path, _ in self.files]  # noqa: PTH119 (text)
        base = str(self.base.build) if self.base.build else shown(self.base.sources[0])
        return f"{base} with {', '.join(added)}" if added else base


@dataclass(frozen=True)
class ImagePlan:
    """Which SIF is wanted and where it may come from."""

    filename: str  # the link's name in the generation
    sources: tuple[str, ...]  # in the order they are tried; a bare name is looked up in image_dirs
    image_dirs: tuple[str, ...]
    build: BuildPlan | None  # instead of sources
    sha256: str | None
    arch: str  # amd64 | arm64
    link: Link
    offline: bool
    available: str = ""  # where the image is, when it has no public source
    conversion: ConversionPlan | None = None


@dataclass(frozen=True)
class Activation:
    """How the Python environment inside the image is activated."""

    with_conda: str  # the value of WITH_CONDA; "true" when nothing is needed
    command: str  # run by bash inside, before the command; "" when variables do it all
    users_venv: bool = False  # a venv below /user-software goes over it, where the user has made one

    def activated(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The words that start a command inside with the Python environment active; arguments may follow.

        A runscript activates the environment itself, and variables need no command: both are started as they are.
        """
        if command[0].startswith(f"{RUNSCRIPTS_TARGET}/"):
            return command
        start = f'{{ {_USERS_VENV}exec "$@"; }}' if self.users_venv else 'exec "$@"'
        if self.command:
            return ("bash", "-c", f"{self.command} && {start}", "bash", *command)
        return ("sh", "-c", start, "sh", *command) if self.users_venv else command


@dataclass(frozen=True)
class Wrapper:
    """One executable in bin/: `name` on the host runs `command` inside the image."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Help:
    """What the module says about itself. Plain text, any character; the templates quote it."""

    description: str
    homepage: str
    docurls: tuple[str, ...]
    whatis: tuple[str, ...]
    contents: tuple[tuple[str, str], ...]  # package, version
    origin: str  # where the image comes from: the first source, with its digest if stated
    mpi: str = ""  # of the image, or the host's in its place, and how srun starts it
    quirks: tuple[tuple[str, str], ...] = ()  # each that applies, in one line, and its reason
    extensions: tuple[tuple[str, str], ...] | None = None  # of the contents, for `module spider`; None: all


@dataclass(frozen=True)
class SanityCheck:
    """Commands run through the wrappers' environment, and paths that must exist in the generation or the image."""

    commands: tuple[str, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What is decided for one module, as pure data: `make_plan` makes it of easyconfig, site and `Choices`."""

    module: ModuleName
    version: str  # without the versionsuffix: EBVERSION<NAME>
    easyconfig: str  # the words after `sifmod install` that bring the module back, quoted for a shell, but no --prefix
    prefix: str
    syntaxes: tuple[Syntax, ...]
    accelerator: Accelerator
    gpu_flags: tuple[str, ...]  # of nv, nvccli, rocm: what the site resolves the accelerator to
    runtime: Runtime
    image: ImagePlan | None  # None: a view, which has none
    activation: Activation
    binds: tuple[Bind, ...]  # without /runscripts: see binds_of
    env: tuple[tuple[str, str], ...]  # inside the container, sorted by name
    host_env: tuple[tuple[str, str], ...]  # on the host, sorted by name
    path: tuple[str, ...]  # in front of PATH inside, in order
    wrappers: tuple[Wrapper, ...]
    runscripts: tuple[str, ...]  # names of templates/runscripts/
    runscript_env: tuple[tuple[str, str], ...]  # set by conda-python-distributed where the user has not
    conflict: tuple[str, ...]
    family: str | None
    help: Help
    sanity_check: SanityCheck
    verb: Verb = "exec"  # how wrappers start the image; `run` goes through its entrypoint
    user_software: bool = False  # bind what the user has added at /user-software
    gpu_selection: GpuSelection = "slurm"  # whose choice the GPU of each task of a node is
    gpus_per_node: int = 4  # as Slurm counts them; for job scripts, as the next two
    cpus_per_gpu: int = 0  # 0: the site does not say
    cpu_bind: str = ""  # for srun, one task for each GPU of a node
    scratch: tuple[str, ...] = ()  # places of the user's, `$USER` in them
    cache_directory: str = ""  # of compilers and kernels, on the node; "": decided at run time
    default_env: tuple[tuple[str, str], ...] = ()  # on the host, where the user has none of that name; sorted by name
    depends_on: tuple[str, ...] = ()  # modules that are loaded with this one
    protected: tuple[str, ...] | None = None  # packages that layers leave as they are; None: those of the site
    wrappers_auto: bool = False  # more wrappers are found in the image
    stale_layer: StaleLayer = "warn"
    warn_without_version: bool = False  # at a load that names none
    mpi: WantedMpi = IMAGES_OWN  # whose MPI, which the image decides with it
    modules: tuple[str, ...] = ()  # those that a view loads, which are in depends_on too

    @property
    def own_image(self) -> ImagePlan:
        """The image, where there must be one. Raises ViewError for a view."""
        if self.image is None:
            raise ViewError(self.module, self.modules)
        return self.image

    def binds_of(self, root: str) -> tuple[Bind, ...]:
        """Every bind of the generation at `root`, its runscripts (read-only) first."""
        if self.image is None:
            return self.binds
        return (Bind(f"{root}/runscripts", RUNSCRIPTS_TARGET, ("ro",)), *self.binds)

    def user_software_of(self, root: str) -> tuple[Bind, ...]:
        """Where the user's additions may be: a squashfs, else a directory. The first that exists is bound."""
        if not self.user_software:
            return ()
        place = f"{root}{USER_SOFTWARE_TARGET}"
        return (
            Bind(f"{place}.squashfs", USER_SOFTWARE_TARGET, ("ro", "image-src=/")),  # without ro Apptainer warns
            Bind(place, USER_SOFTWARE_TARGET),
        )

    def images_of(self, root: str) -> tuple[str, ...]:
        """Where the image is looked for: the generation's own link, then the copies in image_dirs."""
        if self.image is None:
            return ()
        return tuple(f"{directory}/{self.image.filename}" for directory in (root, *self.image.image_dirs))

    @property
    def layers(self) -> str:
        """Where below a directory of layers this module's are; "" for one without a Python to add packages to."""
        names = {wrapper.name for wrapper in self.wrappers}
        return str(self.module) if names & {"python", "python3"} else ""

    @property
    def packers(self) -> tuple[str, ...]:
        """The commands that pack the user's additions and unpack them; a wrapper of the easyconfig's own goes first."""
        own = {wrapper.name for wrapper in self.wrappers}
        return tuple(name for name in PACKERS if self.user_software and name not in own)

    @property
    def plain_env(self) -> tuple[tuple[str, str], ...]:
        """The variables inside the container with the values they have there, WITH_CONDA among them, sorted by name."""
        activation = {"WITH_CONDA": self.activation.with_conda} if self.image else {}
        env = dict(self.env)
        if self.layers and "PYTHONPATH" in env:  # else the image's own would be hidden
            env["PYTHONPATH"] = ":".join(filter(None, (env["PYTHONPATH"], PIP_TARGET)))
        return tuple(sorted({**env, **activation}.items()))

    @property
    def container_env(self) -> tuple[tuple[str, str], ...]:
        """The same as the runtime must be told them, after <prefix>ENV_: see literal. Without PREPEND_PATH."""
        return tuple((name, literal(value)) for name, value in self.plain_env)

    @property
    def prepend_path(self) -> tuple[str, ...]:
        """Directories in front of PATH inside, the first one first, as the runtime must be told them: see literal."""
        return tuple(literal(directory) for directory in self.path)

    @property
    def switch(self) -> str:
        """The live generation's place in any prefix, `/software/…`, the same for every generation."""
        return f"/software/{self.module}"

    def place_of(self, generation: int) -> str:
        """The own place of one generation in any prefix."""
        return f"/software/{self.module.name}/.generations/{self.module.version}/{generation}"

    def reinstall(self, prefix: str) -> str:
        """The command that brings the module in `prefix` back."""
        return f"sifmod install {self.easyconfig} --prefix {prefix}"


@dataclass(frozen=True)
class File:
    """`path` is relative to the generation's root."""

    path: str
    text: str
    executable: bool = False
