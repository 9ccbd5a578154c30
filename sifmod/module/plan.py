"""The Plan: everything that is decided before anything is done."""

from dataclasses import dataclass
from typing import Literal

from sifmod.config.kinds import RuntimeKind, Syntax
from sifmod.config.name import ModuleName

Accelerator = Literal["rocm", "cuda", "none"]
Link = Literal["copy", "hardlink", "reference"]
Verb = Literal["exec", "run"]
GpuSelection = Literal["slurm", "localid", "none"]


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
    """The program that runs images on this site, as found at install time."""

    kind: RuntimeKind
    path: str  # absolute path; "" when none was found


@dataclass(frozen=True)
class ConversionPlan:
    """How the promised SIF of a docker or oci image was made."""

    compression: str
    tools: tuple[tuple[str, str], ...]
    tree: str  # digest of the files in it


@dataclass(frozen=True)
class ImagePlan:
    """Which SIF is wanted and where it may come from."""

    filename: str  # the link's name in the generation
    sources: tuple[str, ...]  # in the order they are tried; a bare name is looked up in image_dirs
    image_dirs: tuple[str, ...]
    build: str | None  # path of a definition file, instead of sources
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
    quirks: tuple[tuple[str, str], ...] = ()  # each that applies, in one line, and its reason


@dataclass(frozen=True)
class SanityCheck:
    """Commands run through the wrappers' environment, and paths that must exist in the generation or the image."""

    commands: tuple[str, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Everything decided for one module. Pure data: no path in here has been looked at."""

    module: ModuleName
    version: str  # without the versionsuffix: EBVERSION<NAME>
    easyconfig: str  # the words after `sifmod install` that bring the module back, quoted for a shell, but no --prefix
    prefix: str
    syntaxes: tuple[Syntax, ...]
    accelerator: Accelerator
    gpu_flags: tuple[str, ...]  # of nv, nvccli, rocm: what the site resolves the accelerator to
    runtime: Runtime
    image: ImagePlan
    activation: Activation
    binds: tuple[Bind, ...]  # without /runscripts, which render adds
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
    gpus_per_node: int = 4  # as Slurm counts them; for the job script in the help
    cache_directory: str = ""  # of compilers and kernels, on the node; "": decided at run time
    prefix_named: bool = False  # by --prefix
    default_env: tuple[tuple[str, str], ...] = ()  # on the host, where the user has none of that name; sorted by name
    depends_on: tuple[str, ...] = ()  # modules that are loaded with this one
    wrappers_auto: bool = False  # more wrappers are found in the image


@dataclass(frozen=True)
class File:
    """`path` is relative to the generation's root."""

    path: str
    text: str
    executable: bool = False
