"""The easyconfig: what its author wrote, checked."""

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
    Package,
    Pairs,
    SearchDirectory,
    Sha256,
    SifName,
    Text,
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
    """Of the squashfs in it, as --compression takes it."""
    tools: Annotated[Pairs, Items(Name, Line)]
    """What made it, with versions: the same ones make the same bytes on the same kind of processor."""
    tree: Sha256
    """The digest of the files in it, which other versions of the tools must give too."""


class Image(Model):
    """Which SIF, and where it comes from: `sources` or `build`."""

    filename: SifName
    """The SIF's name in the module's directory and in the site's image directories."""
    sources: tuple[NotEmpty, ...] = ()
    """Places to take the image from, tried in order: NAME.sif, a path, https:, oras:, docker:, library:, oci:."""
    build: Spelled = None
    """How the image is built, instead of sources; a text is a definition file, or a Dockerfile."""
    sha256: Sha256 | None = None
    """The promise about the SIF: its SHA-256."""
    conversion: Conversion | None = None
    """Of a docker or oci image, beside sha256: how the promised SIF was made."""
    arch: Arch
    """The architecture of the image; the site's when it is not given."""
    available: Text = ""
    """Where the image exists, when it has no public source."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.build is not None and self.sources:
            raise PydanticCustomError("combination", "give sources or build, not both")
        if self.build is None and not self.sources:
            raise PydanticCustomError("combination", "expected sources, a list of places to fetch from, or build")
        if self.conversion is not None and self.sha256 is None:
            raise PydanticCustomError("combination", "conversion says how the SIF of sha256 was made: give sha256 too")
        return self


class Conda(Model):
    """A conda environment inside the image, activated by variables."""

    prefix: Absolute
    """Where conda is inside the image, e.g. /opt/miniconda3."""
    env: Name = "base"
    """The environment's name; `base` is the one of the prefix itself."""


class SanityCheck(Model):
    """What must hold before the module is published."""

    commands: tuple[NotEmpty, ...] = ()
    """Commands that must succeed inside the image."""
    paths: tuple[NotEmpty, ...] = ()
    """Paths that must exist: inside the image, or relative to the module's directory."""


# Apptainer's embedded shell warns about these, loses them, or acts on them.
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
        raise ValueError("WITH_CONDA is made from the keys activate, conda and venv: write it there")
    if name in _RUNTIMES_OWN or name.startswith(_RUNTIMES_PREFIXES):
        raise ValueError(f"{name} belongs to the runtime or its shell and cannot be set inside from outside")
    return name


def _host_variable(name: str) -> str:
    if name.startswith(("SINGULARITYENV_", "APPTAINERENV_")):
        raise ValueError(f"write {name.partition('_')[2]} under env: it is handed into the container from there")
    if name in _OWN_VARIABLES or name.startswith(_OWN_PREFIXES):
        raise ValueError(f"{name} belongs to the module itself or to the module system and cannot be set here")
    return name


def variable_problem(name: str, *, inside: bool) -> str:
    """Why a variable of this name cannot be set inside the container, or on the host; empty where it can."""
    try:
        (_container_variable if inside else _host_variable)(name)
    except ValueError as error:
        return str(error)
    return ""


AUTO = "auto"  # among the wrappers: those that are found in the image


def _items(value: object) -> object:
    """`auto` alone is a list of it."""
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
    """One module, with its preset, what it extends, its variant and the command line merged in.

    Without an image it is a view (config/inheritance.py). Nothing in here says "not decided": `image.filename`,
    `image.arch` and `accelerator` are filled in by loading. Paths in `image.sources` and `image.build` are absolute; a
    bare name in `sources` is looked up in image_dirs.
    """

    name: Name
    """The module is NAME/VERSION with the versionsuffix behind it."""
    version: Version
    """Always in quotes."""
    versionsuffix: VersionSuffix = ""
    """What tells this build from others of the version, e.g. -rocm-5.6.1-python-3.10."""
    description: Text = ""
    """What it is, for `module help`."""
    homepage: Line = ""
    """The home page of the software."""
    docurls: tuple[Line, ...] = ()
    """Where the documentation is."""
    whatis: tuple[Line, ...] = ()
    """Further lines for `module whatis`, e.g. "Keywords: PyTorch, DeepSpeed"."""
    moduleclass: Name = "base"
    """The kind of software, as in EasyBuild."""
    license: Line = ""
    """The licence of the software in the image."""
    contents: Annotated[Pairs, Items(Name, Version)] = ()
    """Packages in the image and their versions, for help and `module spider`."""
    accelerator: Accelerator
    """What the image is built for: an intent that the site resolves to flags or devices."""
    image: Image | None = None
    """Which SIF, and where it comes from; every module has one, but for a view."""
    modules: tuple[ModuleSpec, ...] = ()
    """Instead of an image: the modules that this one, a view, loads, in their order."""
    activate: NotEmpty | None = None
    """A command that bash runs inside before every command; rather give conda or venv, which cost nothing."""
    conda: Conda | None = None
    """A conda environment inside the image, activated by variables."""
    venv: Absolute | None = None
    """The path of a Python venv inside the image, activated by variables."""
    binds: tuple[BindItem, ...] = ()
    """Bind paths beside those of the site."""
    env: ContainerEnv = ()
    """Variables inside the container; null removes one."""
    host_env: HostEnv = ()
    """Variables on the host."""
    default_env: HostEnv = ()
    """Variables on the host that a load sets where the user has none of that name."""
    runscript_env: RunscriptEnv = ()
    """Variables that conda-python-distributed sets where the user has not."""
    path: tuple[SearchDirectory, ...] = ()
    """Directories in front of PATH inside."""
    wrapper_items: Annotated[WrapperItems, Field(alias="wrappers")] = ()
    """Commands of the image that become executables on the host: a name, or name: command line where they differ;
    `auto` stands for those that are found in it."""
    verb: Verb = "exec"
    """How wrappers start the image; `run` goes through its entrypoint."""
    user_software: bool = False
    """Bind what the user has added to the module, a directory or a squashfs, at /user-software."""
    protected: tuple[Package, ...] | None = None
    """Packages that layers leave as the image has them, in the place of the site's; `*` at the end: any end."""
    gpu_selection: GpuSelection | None = None
    """Who picks the GPU of each task: Slurm, the task's number on its node, or neither; default: the site's."""
    mpi: MpiUse | None = None
    """Whose MPI: the image's, the host's by the site's profile, or the host's where that fits; default: the site's."""
    runscripts: tuple[Runscript, ...] = ()
    """Scripts in the directory that is bound at /runscripts."""
    conflict: tuple[ModuleSpec, ...] = ()
    """Modules that cannot be loaded together with this one."""
    depends_on: tuple[ModuleSpec, ...] = ()
    """Modules that are loaded with this one."""
    family: Family | None = None
    """Of the modules of one family only one can be loaded."""
    sanity_check: SanityCheck = SanityCheck()
    """Commands and paths that are tried before the module is published."""

    @property
    def module(self) -> ModuleName:
        """`<name>/<version><versionsuffix>`."""
        return ModuleName(self.name, self.version + self.versionsuffix)

    @property
    def own_image(self) -> Image:
        """The image, where there must be one. Raises ViewError for a view."""
        if self.image is None:
            raise ViewError(self.module, self.modules)
        return self.image

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The wrappers that are named."""
        return tuple(name for name, _ in self.wrapper_items if name != AUTO)

    @property
    def wrapper_commands(self) -> Pairs:
        """Those that run another command than their own name: name and command line, split into words as sh does."""
        return tuple((name, command) for name, command in self.wrapper_items if command)

    @property
    def wrappers_auto(self) -> bool:
        """Whether wrappers are found in the image, beside those that are named."""
        return (AUTO, "") in self.wrapper_items

    @model_validator(mode="after")
    def _consistent(self) -> Self:
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
    """What one of a file's variants may hold."""

    preset: Name | None = None
    """A named set of defaults for this variant, in presets/ beside the easyconfigs."""


class EasyconfigFile(Easyconfig):
    """What a file may hold: an easyconfig's keys, any of them left out, and what loading uses up."""

    extends: Line = ""
    """Another easyconfig; the keys given here win."""
    preset: Name | None = None
    """A named set of defaults, in presets/ beside the easyconfigs."""
    variants: Annotated[tuple[tuple[str, Variant], ...], Items(Name, Variant)] = ()
    """Several builds in one file: the site's accelerator picks one, or --variant."""
