"""The easyconfig as its author wrote it, validated."""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sifmod.config.bind import BindItem
from sifmod.config.build import Spelled
from sifmod.config.kinds import MpiUse
from sifmod.config.name import ModuleName
from sifmod.config.text import (
    Absolute,
    EnvName,
    EnvValue,
    Family,
    Items,
    Line,
    ModuleSpec,
    Name,
    NotEmpty,
    OpenLine,
    OpenText,
    Package,
    Pairs,
    SearchDirectory,
    Sha256,
    SifName,
    Version,
    VersionSuffix,
    wrapper_item,
)
from sifmod.config.yaml.validate import Model
from sifmod.errors import ViewError

Accelerator = Literal["rocm", "cuda", "none"]
Arch = Literal["amd64", "arm64"]
Verb = Literal["exec", "run"]
GpuSelection = Literal["slurm", "localid", "none"]
Runscript = Literal[
    "conda-python-simple",
    "conda-python-distributed",
    "torchrun-distributed",
    "get-master",
    "gpu-check",
    "init-conda-venv",
    "list-packages",
    "start-shell",
]


class Conversion(Model):
    """How the SIF that `image.sha256` promises was made from a docker or oci image; `sifmod fetch` prints it."""

    compression: Line
    """Compression of its squashfs, as for --compression."""
    tools: Annotated[Pairs, Items(Name, Line)]
    """The tools and versions that made it: the same ones make the same bytes on the same kind of processor."""
    tree: Sha256
    """The digest of its files, which is the same for other versions of the tools."""


class Image(Model):
    """The SIF, and its origin: `sources` or `build`."""

    filename: SifName
    """The SIF's name in the module's directory and in the site's image directories."""
    sources: tuple[NotEmpty, ...] = ()
    """Sources, in order: NAME.sif, a path, https:, oras:, docker:, library:, oci:, oci-archive:, docker-archive:."""
    build: Spelled = None
    """How to build the image, instead of sources; a text is a definition file or a Dockerfile."""
    sha256: Sha256 | None = None
    """The expected SHA-256 of the SIF."""
    conversion: Conversion | None = None
    """For a docker or oci image with sha256: how that SIF was made."""
    arch: Arch
    """The architecture of the image (default: the site's)."""
    available: OpenText = ""
    """Where the image is available, if it has no public source."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.build is not None and self.sources:
            raise PydanticCustomError("combination", "give sources or build, not both")
        if self.build is None and not self.sources:
            raise PydanticCustomError("combination", "expected sources (a list), or build")
        if self.conversion is not None and self.sha256 is None:
            raise PydanticCustomError(
                "combination", "conversion describes how the SIF with sha256 was made: give sha256 too"
            )
        return self


class Conda(Model):
    """A conda environment inside the image, activated by variables."""

    prefix: Absolute
    """Where conda is inside the image, e.g. /opt/miniconda3."""
    env: Name = "base"
    """The environment's name; `base` is the prefix itself."""


class SanityCheck(Model):
    """Checks that must pass before the module is published."""

    commands: tuple[NotEmpty, ...] = ()
    """Commands that must succeed inside the image."""
    paths: tuple[NotEmpty, ...] = ()
    """Paths that must exist: inside the image, or relative to the module's directory."""


# Apptainer's embedded shell warns about these, drops them, or interprets them.
_RUNTIMES_OWN = ["HOME", "PWD", "IFS", "OPTIND", "UID", "EUID", "GID", "PROMPT_COMMAND", "e", "key"]
_RUNTIMES_PREFIXES = ("__", "APPTAINER_", "SINGULARITY_", "SING_USER_DEFINED_")
_OWN_VARIABLES = (
    *("PATH", "MODULEPATH", "LOADEDMODULES", "_LMFILES_", "SIF", "RUNSCRIPTS", "CONTAINERROOT", "WITH_CONDA"),
    *("SINGULARITY_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BIND", "APPTAINER_BINDPATH"),
)
_OWN_PREFIXES = ("_SIFMOD_", "SIFMOD_", "LMOD_", "__LMOD_", "_ModuleTable", "MODULES_", "__MODULES_")


def _container_variable(name: str) -> str:
    if name in ("PATH", "PREPEND_PATH", "APPEND_PATH"):
        raise ValueError(f"{name} is made from the key path: write the directories there")
    if name == "WITH_CONDA":
        raise ValueError("WITH_CONDA is made from the keys activate, conda and venv: use these keys")
    if name in _RUNTIMES_OWN or name.startswith(_RUNTIMES_PREFIXES):
        raise ValueError(f"{name} belongs to the runtime or its shell and cannot be set from outside the container")
    return name


def _host_variable(name: str) -> str:
    if name.startswith(("SINGULARITYENV_", "APPTAINERENV_")):
        raise ValueError(f"write {name.partition('_')[2]} under env, which sets it in the container")
    if name in _OWN_VARIABLES or name.startswith(_OWN_PREFIXES):
        raise ValueError(f"{name} belongs to the module itself or to the module system and cannot be set here")
    return name


def can_be_set(name: str) -> bool:
    """Whether a module may set a variable of this name on the host."""
    try:
        _host_variable(name)
    except ValueError:
        return False
    return True


AUTO = "auto"  # as a wrapper: all commands that are found in the image


def _items(value: object) -> object:
    """A plain `auto` as a tuple with `auto`; raises ValueError for any other text."""
    if isinstance(value, str) and value != AUTO:
        raise ValueError(f"expected a list of commands, or auto, got {value!r}")
    return (AUTO,) if value == AUTO else value


_COMMAND = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 1}
WrapperItems = Annotated[
    tuple[Annotated[tuple[str, str], PlainValidator(wrapper_item)], ...],
    BeforeValidator(_items),
    PlainSerializer(lambda items: [{name: command} if command else name for name, command in items]),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"anyOf": [{"type": "string"}, _COMMAND]}},
                {"type": "string", "enum": [AUTO]},
            ]
        }
    ),
]
ContainerEnv = Annotated[Pairs, Items(Annotated[EnvName, AfterValidator(_container_variable)], EnvValue)]
HostEnv = Annotated[Pairs, Items(Annotated[EnvName, AfterValidator(_host_variable)], EnvValue)]
RunscriptEnv = Annotated[Pairs, Items(EnvName, EnvValue)]


class Easyconfig(Model):
    """One module, with its presets, the easyconfigs it extends, its variant, quirks and the command line merged in.

    Without an image it is a view (config/inheritance.py). No field is undecided: loading fills in `image.filename`,
    `image.arch` and `accelerator`. Paths in `image.sources` and `image.build` are absolute; a bare name in `sources` is
    looked up in image_dirs.
    """

    name: Name
    """The name; the module is NAME/VERSION followed by the versionsuffix."""
    version: Version
    """The version, always in quotes."""
    versionsuffix: VersionSuffix = ""
    """What distinguishes this build from others of the version, e.g. -rocm-5.6.1-python-3.10."""
    description: OpenText = ""
    """A description for `module help`."""
    homepage: OpenLine = ""
    """The home page of the software."""
    docurls: tuple[OpenLine, ...] = ()
    """The URLs of the documentation."""
    whatis: tuple[OpenLine, ...] = ()
    """Further lines for `module whatis`, e.g. "Keywords: PyTorch, DeepSpeed"."""
    moduleclass: Name = "base"
    """The kind of software, as in EasyBuild."""
    license: OpenLine = ""
    """The licence of the software in the image."""
    contents: Annotated[Pairs, Items(Name, Version)] = ()
    """Packages in the image and their versions, for help and `module spider`."""
    accelerator: Accelerator
    """The accelerator that the image is built for; the site translates it to flags or devices."""
    image: Image | None = None
    """The SIF and its origin; every module except a view has one."""
    modules: tuple[ModuleSpec, ...] = ()
    """Instead of an image: the modules that a view loads, in order."""
    activate: NotEmpty | None = None
    """A command that bash runs inside before every command; prefer conda or venv, which cost nothing."""
    conda: Conda | None = None
    """A conda environment inside the image, activated by variables."""
    venv: Absolute | None = None
    """The path of a Python venv inside the image, activated by variables."""
    binds: tuple[BindItem, ...] = ()
    """Bind paths in addition to the site's."""
    env: ContainerEnv = ()
    """Variables inside the container; null removes one."""
    host_env: HostEnv = ()
    """Variables on the host."""
    default_env: HostEnv = ()
    """Variables on the host that a load sets unless the user has set them."""
    runscript_env: RunscriptEnv = ()
    """Variables that conda-python-distributed sets unless the user has set them."""
    path: tuple[SearchDirectory, ...] = ()
    """Directories to prepend to PATH inside the container."""
    wrapper_items: Annotated[WrapperItems, Field(alias="wrappers")] = ()
    """Commands of the image that become executables on the host: a name, or name: command line if they differ; `auto`
    stands for all commands that are found in the image."""
    verb: Verb = "exec"
    """How wrappers start the image; `run` uses its entrypoint."""
    user_software: bool = False
    """Bind the user's additions to the module, a directory or a squashfs, at /user-software."""
    protected: tuple[Package, ...] | None = None
    """Packages that layers never replace, instead of the site's list; `*` at the end matches any ending."""
    gpu_selection: GpuSelection | None = None
    """What selects the GPU of each task: Slurm, the task's number on its node, or nothing (default: the site's)."""
    mpi: MpiUse | None = None
    """The MPI: the image's, the host's from the site's profile, or the host's if it fits (default: the site's)."""
    runscripts: tuple[Runscript, ...] = ()
    """Scripts in the directory bound at /runscripts."""
    conflict: tuple[ModuleSpec, ...] = ()
    """Modules that cannot be loaded together with this one."""
    depends_on: tuple[ModuleSpec, ...] = ()
    """Modules that this one loads."""
    family: Family | None = None
    """Only one module of a family can be loaded."""
    sanity_check: SanityCheck = SanityCheck()
    """Commands and paths to check before the module is published."""

    @property
    def module(self) -> ModuleName:
        """`<name>/<version><versionsuffix>`."""
        return ModuleName(self.name, self.version + self.versionsuffix)

    @property
    def required_image(self) -> Image:
        """The image of a module that must have one. Raises ViewError for a view."""
        if self.image is None:
            raise ViewError(self.module, self.modules)
        return self.image

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The names of the wrappers in the list, without `auto`."""
        return tuple(name for name, _ in self.wrapper_items if name != AUTO)

    @property
    def wrapper_commands(self) -> Pairs:
        """Wrappers whose command differs from their name: (name, command line), the line as the easyconfig has it."""
        return tuple((name, command) for name, command in self.wrapper_items if command)

    @property
    def wrappers_auto(self) -> bool:
        """Whether wrappers are found in the image, in addition to the named ones."""
        return (AUTO, "") in self.wrapper_items

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.module.name.endswith(".lua"):  # Lmod then finds no version of the name without it either
            raise ValueError(f"the name is {self.module.name}: .lua marks a Lua modulefile")
        if self.module.version.endswith(".lua"):
            raise ValueError(f"version and versionsuffix give {self.module.version}: .lua marks a Lua modulefile")
        if ".." in self.module.version:
            raise PydanticCustomError("combination", "version and versionsuffix together hold '..'")
        if (self.image is None) != bool(self.modules):
            raise PydanticCustomError("combination", "give image, or the modules of a view, and not both")
        if self.activate is not None and (self.conda is not None or self.venv is not None):
            raise PydanticCustomError("combination", "give activate, or conda and venv, not both")
        return self


class Variant(Easyconfig):
    """The keys of one variant of a file."""

    preset: Name | None = None
    """A named set of defaults for this variant, in presets/ beside the easyconfigs."""


class EasyconfigFile(Easyconfig):
    """The keys of a file: an easyconfig's keys, all optional, and those that loading consumes."""

    extends: Line = ""
    """Another easyconfig to inherit from; keys given here take precedence."""
    preset: Name | None = None
    """A named set of defaults, in presets/ beside the easyconfigs."""
    variants: Annotated[tuple[tuple[str, Variant], ...], Items(Name, Variant)] = ()
    """Several builds in one file: --variant picks one, else the site's accelerator and architecture do."""
