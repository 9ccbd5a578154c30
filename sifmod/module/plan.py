"""The Plan: all decisions before an install, and the runtime's environment for them."""

import os
from dataclasses import dataclass

from sifmod.config.easyconfig import Accelerator, Conversion, GpuSelection, SanityCheck, Verb
from sifmod.config.kinds import RUNTIMES, RuntimeKind, StaleLayer, Syntax
from sifmod.config.mpi_profile import IMAGES_OWN, WantedMpi
from sifmod.config.name import ModuleName
from sifmod.config.redact import shown
from sifmod.config.site import Link
from sifmod.errors import ViewError

RUNSCRIPTS_TARGET = "/runscripts"
PIP_TARGET = f"{RUNSCRIPTS_TARGET}/.pip"  # prepended to the image's pip
USER_SOFTWARE_TARGET = "/user-software"
LAYER_TARGET = "/user-layer"  # the layer made by `sifmod add`
# patterns for a user's venv inside; the first one that matches is used
VENVS = ("/user-software/venv/*", "/user-software/venv", "/user-software/*", "/user-software")
# searched in the container, where the content of a squashfs is visible too
_USERS_VENV = (
    f'for sifmod_venv in {" ".join(VENVS)}; do if [ -f "$sifmod_venv/bin/activate" ]; then'
    ' export VIRTUAL_ENV="$sifmod_venv" PATH="$sifmod_venv/bin:$PATH"; break; fi; done; unset sifmod_venv; '
)
# placeholders for paths that are known at run time; no text of a plan contains a NUL
ROOT = "\0root"  # of the generation
PREFIX = "\0prefix"  # as a shell word
MODULES = "\0modules"  # the directory for `module use`, as a shell word
PACKERS = ("make-squashfs", "unmake-squashfs")  # commands of the host for the user's additions
_EVALUATED = str.maketrans({sign: f"\\{sign}" for sign in "\\$`"})


def literal(text: str) -> str:
    r"""A value as SINGULARITYENV_X and APPTAINERENV_X need it, so that it arrives unchanged.

    The runtime puts a backslash before each `"` and evaluates the result inside double quotes (Apptainer, every
    version, and SingularityCE from 3.9): `\`, `$` and the backtick are escaped here, `"` must not be. With NO_EVAL set
    the runtime uses values literally, and this spelling is wrong (not supported).
    """
    return text.translate(_EVALUATED)


@dataclass(frozen=True)
class Bind:
    """One bind path. `source` and `target` are absolute; an optional one is skipped if its source is missing."""

    source: str
    target: str
    options: tuple[str, ...] = ()  # ro, rw, image-src=/…
    optional: bool = False

    def __str__(self) -> str:
        """The bind in the runtime's syntax: `source[:target[:options]]`."""
        if self.options:
            return f"{self.source}:{self.target}:{','.join(self.options)}"
        return self.source if self.source == self.target else f"{self.source}:{self.target}"


@dataclass(frozen=True)
class Runtime:
    """The program that runs images on this site, as found when the site was loaded."""

    kind: RuntimeKind
    path: str  # absolute path; "" if none was found

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
        """The runtimes that a wrapper tries, in order: the path found at install time, then names in PATH."""
        names = tuple(sorted(RUNTIMES, key=lambda name: name != self.kind))
        return (self.path, *names) if self.path else names


@dataclass(frozen=True)
class BuildPlan:
    """How an image is built: on a base, or by a definition file or Dockerfile, whose paths are "" otherwise."""

    base: "ImagePlan | None" = None
    pip: tuple[str, ...] = ()  # requirements
    requirements: str = ""  # path of a requirements.txt or of a lock
    files: tuple[tuple[str, str], ...] = ()  # path on the host, path in the image
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    post: str = ""
    test: str = ""
    definition: str = ""
    dockerfile: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    path: tuple[str, ...] = ()  # directories to search for the base's Python before its own PATH
    protected: tuple[str, ...] = ()  # packages of the base that are kept; `*` at the end: a prefix
    # prefix of torch's local version: the index of packages linked against it
    indexes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """The inputs of the build, in one line."""
        if self.base is None:
            return self.definition or self.dockerfile
        added = [*self.pip, *(os.path.basename(path) for path in (self.requirements,) if path)]  # noqa: PTH119 (text)
        added += [os.path.basename(path.rstrip("/")) for path, _ in self.files]  # noqa: PTH119 (text)
        base = str(self.base.build) if self.base.build else shown(self.base.sources[0])
        return f"{base} with {', '.join(added)}" if added else base


@dataclass(frozen=True)
class ImagePlan:
    """The wanted SIF and its possible sources."""

    filename: str  # the link's name in the generation
    sources: tuple[str, ...]  # tried in this order; a bare name is looked up in image_dirs
    image_dirs: tuple[str, ...]
    build: BuildPlan | None  # instead of sources
    sha256: str | None
    arch: str  # amd64 | arm64
    link: Link
    offline: bool
    available: str = ""  # where the image is available, if it has no public source
    conversion: Conversion | None = None


@dataclass(frozen=True)
class Activation:
    """How to activate the Python environment in the image."""

    with_conda: str  # the value of WITH_CONDA; "true" if nothing is needed
    command: str  # run by bash inside, before the command; "" if variables are enough
    users_venv: bool = False  # a user's venv below /user-software takes precedence

    def activated(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command line that starts a command with the active Python environment; arguments may follow.

        A runscript activates the environment itself, and is unchanged; so is any command, if variables are enough and
        no user's venv is searched.
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
    """The texts of a module's help and whatis: plain text with any characters, which the templates quote."""

    description: str
    homepage: str
    docurls: tuple[str, ...]
    whatis: tuple[str, ...]
    contents: tuple[tuple[str, str], ...]  # package, version
    origin: str  # the image's first source, with its digest if known
    mpi: str = ""  # the MPI of the image or host, and how srun starts it
    driver: str = ""  # why the driver of the site's GPUs does not run the image
    quirks: tuple[tuple[str, str], ...] = ()  # a line and its reason for each quirk that applies
    extensions: tuple[tuple[str, str], ...] | None = None  # of `contents`, for `module spider`; None: all


@dataclass(frozen=True)
class Plan:
    """The decisions for one module, as pure data: `make_plan` makes them from easyconfig, site and `Choices`."""

    module: ModuleName
    version: str  # without the versionsuffix: EBVERSION<NAME>
    easyconfig: str  # the arguments of `sifmod install` that restore the module, quoted for a shell, without --prefix
    prefix: str
    syntaxes: tuple[Syntax, ...]
    accelerator: Accelerator
    gpu_flags: tuple[str, ...]  # of nv, nvccli, rocm: the site's flags for the accelerator
    runtime: Runtime
    image: ImagePlan | None  # None for a view
    activation: Activation
    binds: tuple[Bind, ...]  # without /runscripts: see binds_of
    env: tuple[tuple[str, str], ...]  # inside the container, sorted by name
    host_env: tuple[tuple[str, str], ...]  # on the host, sorted by name
    path: tuple[str, ...]  # prepended to PATH inside, in order
    wrappers: tuple[Wrapper, ...]
    runscripts: tuple[str, ...]  # names of templates/runscripts/
    runscript_env: tuple[tuple[str, str], ...]  # set by conda-python-distributed unless the user has set it
    conflict: tuple[str, ...]
    family: str | None
    help: Help
    sanity_check: SanityCheck
    verb: Verb = "exec"  # how wrappers start the image; `run` uses its entrypoint
    user_software: bool = False  # bind the user's additions at /user-software
    gpu_selection: GpuSelection = "slurm"  # what selects the GPU of each task of a node
    gpus_per_node: int = 4  # as Slurm counts them; for job scripts, like the next two
    cpus_per_gpu: int = 0  # 0: not set by the site
    cpu_bind: str = ""  # for srun with one task for each GPU of a node
    scratch: tuple[str, ...] = ()  # directories of the user, with `$USER`
    cache_directory: str = ""  # for compilers and kernels, on the node; "": decided at run time
    default_env: tuple[tuple[str, str], ...] = ()  # on the host unless the user has set it; sorted by name
    depends_on: tuple[str, ...] = ()  # modules that this one loads
    protected: tuple[str, ...] | None = None  # packages that layers never replace; None: the site's list
    wrappers_auto: bool = False  # search the image for further wrappers
    stale_layer: StaleLayer = "warn"
    warn_without_version: bool = False  # warn at a load without a version
    mpi: WantedMpi = IMAGES_OWN  # the wanted MPI; the image decides with it
    modules: tuple[str, ...] = ()  # loaded by a view; also in depends_on

    @property
    def required_image(self) -> ImagePlan:
        """The image of a module that must have one. Raises ViewError for a view."""
        if self.image is None:
            raise ViewError(self.module, self.modules)
        return self.image

    def binds_of(self, root: str) -> tuple[Bind, ...]:
        """Every bind of the generation at `root`, its runscripts (read-only) first."""
        if self.image is None:
            return self.binds
        return (Bind(f"{root}/runscripts", RUNSCRIPTS_TARGET, ("ro",)), *self.binds)

    def user_software_of(self, root: str) -> tuple[Bind, ...]:
        """The possible binds of the user's additions, in order: a squashfs, a directory; () without `user_software`."""
        if not self.user_software:
            return ()
        place = f"{root}{USER_SOFTWARE_TARGET}"
        return (
            Bind(f"{place}.squashfs", USER_SOFTWARE_TARGET, ("ro", "image-src=/")),  # Apptainer warns without ro
            Bind(place, USER_SOFTWARE_TARGET),
        )

    def images_of(self, root: str) -> tuple[str, ...]:
        """The paths to search for the image: the generation's own link, then copies in image_dirs; () for a view."""
        if self.image is None:
            return ()
        return tuple(f"{directory}/{self.image.filename}" for directory in (root, *self.image.image_dirs))

    @property
    def layers(self) -> str:
        """The relative path of this module's layers; "" for a module without a wrapper for Python."""
        names = {wrapper.name for wrapper in self.wrappers}
        return str(self.module) if names & {"python", "python3"} else ""

    @property
    def packers(self) -> tuple[str, ...]:
        """The commands that pack the user's additions and unpack them; a wrapper of the easyconfig takes precedence."""
        own = {wrapper.name for wrapper in self.wrappers}
        return tuple(name for name in PACKERS if self.user_software and name not in own)

    @property
    def plain_env(self) -> tuple[tuple[str, str], ...]:
        """The variables inside the container with the values they have there, WITH_CONDA among them, sorted by name."""
        activation = {"WITH_CONDA": self.activation.with_conda} if self.image else {}
        env = dict(self.env)
        if self.layers and "PYTHONPATH" in env:  # if the plan sets none, PIP_TARGET would hide the image's own
            env["PYTHONPATH"] = ":".join(filter(None, (env["PYTHONPATH"], PIP_TARGET)))
        return tuple(sorted({**env, **activation}.items()))

    @property
    def container_env(self) -> tuple[tuple[str, str], ...]:
        """The pairs of `plain_env`, with the values as `literal` quotes them for the runtime; without PREPEND_PATH."""
        return tuple((name, literal(value)) for name, value in self.plain_env)

    @property
    def prepend_path(self) -> tuple[str, ...]:
        """The directories to prepend to PATH inside, in order, as `literal` quotes them for the runtime."""
        return tuple(literal(directory) for directory in self.path)

    @property
    def switch(self) -> str:
        """The path of the live generation after the prefix, `/software/…`; the same for every generation."""
        return f"/software/{self.module}"

    def place_of(self, generation: int) -> str:
        """The path of one generation after the prefix, `/software/…`."""
        return f"/software/{self.module.name}/.generations/{self.module.version}/{generation}"

    def reinstall(self, prefix: str) -> str:
        """The command that restores the module in `prefix`."""
        return f"sifmod install {self.easyconfig} --prefix {prefix}"


@dataclass(frozen=True)
class File:
    """A file to write; `path` is relative to the generation's root, for a stub to `<prefix>/modules`."""

    path: str
    text: str
    executable: bool = False
