"""A site: the properties of a machine, as configured and as resolved."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

from sifmod.config.bind import BindItem, BindSpec
from sifmod.config.easyconfig import Accelerator, Arch, ContainerEnv, GpuSelection, HostEnv, RunscriptEnv
from sifmod.config.hook import Hook, HookKeys
from sifmod.config.kinds import RUNTIMES, MpiUse, RuntimeKind, StaleLayer, Syntax, accelerator_of
from sifmod.config.limits import Limits
from sifmod.config.partition import CpuBind, CpusPerGpu, SlurmKeys
from sifmod.config.text import (
    Absolute,
    BindPath,
    Items,
    Line,
    Name,
    OpenLine,
    OpenText,
    Package,
    Pairs,
    SearchDirectory,
    expecting,
    number_as_written,
    size_in_bytes,
    whole_number,
)
from sifmod.config.version import is_range
from sifmod.config.yaml.node import Number
from sifmod.config.yaml.validate import Model

Link = Literal["copy", "hardlink", "reference"]
Sharing = Literal["group", "site"]
DriverSoftware = Literal["cuda", "rocm"]
MARK_DAYS = 180.0


# the keys that decide a module's files in any tree: a bundle brings its own
DECIDING = (
    *("name", "description", "accelerator", "accelerators", "binds", "env", "host_env", "runscript_env"),
    *("gpu_selection", "gpus_per_node", "mpi", "mpi_profile", "cpus_per_gpu", "cpu_bind", "cache_directory", "scratch"),
    *("module_syntax", "arch", "extensions", "protected", "stale_layer", "warn_without_version"),
    *("driver_runs", "image_dirs"),
)

# the packages that an image is chosen for or that must fit its drivers; `*` at the end: a prefix
PROTECTED = (
    *("torch", "torchvision", "torchaudio", "triton", "pytorch-triton*", "apex", "flash-attn*", "nvidia-*", "jaxlib"),
    *("jax-cuda*", "jax-rocm*", "tensorflow*", "transformer-engine*", "mpi4py", "cupy*"),
)


_HOME = expecting(r"(https?://[^\s@]+)?", "a web address")


class Accelerators(Model):
    """How this site provides an accelerator: the runtime's flag, bare devices, or nothing."""

    rocm: Literal["rocm", "devices", "none"] = "rocm"
    cuda: Literal["nv", "nvccli", "none"] = "nv"


class StripingKeys(Model):
    """Lustre striping of images."""

    count: Annotated[int, Field(ge=-1, le=2000), BeforeValidator(whole_number)] = -1
    """Number of targets; -1 for all."""
    size: Annotated[int, Field(ge=1 << 16, le=1 << 32), BeforeValidator(size_in_bytes)] = 4 << 20
    """Stripe size in bytes: a number, or a text such as 4MB."""


class Signatures(Model):
    """A site's policy for image signatures."""

    # YAML reads a bare `off` as false
    policy: Annotated[
        Literal["off", "warn", "require"], BeforeValidator(lambda value: "off" if value is False else value)
    ] = "off"
    """require: refuse an image without a good signature; warn: install it with a warning; off: do not check."""
    keys: tuple[Line, ...] = ()
    """Files with the OpenPGP public keys of trusted signers."""


# Lmod's program does not quote its arguments: a blank or pattern would name other directories
SPIDER_PATH = r"[^\s*?\[]*"
_SpiderPath = Annotated[SearchDirectory, expecting(SPIDER_PATH, "a path without blanks, *, ? and [, as Lmod needs it")]


class SpiderCache(Model):
    """Lmod's spider cache, maintained by `update_lmod_system_cache_files`."""

    directory: _SpiderPath
    """The directory of the cache (`dir` in Lmod's scDescriptT)."""
    timestamp: _SpiderPath
    """The file whose time Lmod checks (`timestamp`)."""
    modulepath: tuple[_SpiderPath, ...] = ()
    """The module directories in the cache, if they are more than the prefix's own."""


class CatalogueKeys(Model):
    """What the catalogue says of the site."""

    text: OpenText = ""
    """A text above the modules; an empty line begins a paragraph."""
    contact: OpenLine = ""
    """A mail address, a web address, or words."""
    home: Annotated[Line, _HOME] = ""
    """The site's web page."""
    logo: Absolute = ""
    """A file: .svg, .png, .jpg or .webp, of at most 256 kiB."""


class Detect(Model):
    """The site is recognised if there are paths, each path exists, and each pattern has a match."""

    paths: tuple[Line, ...] = ()


def _extensions(value: object) -> object:
    return {"all": ("*",), "none": ()}.get(value, value) if isinstance(value, str) else value


def _seconds(value: object) -> object:
    with suppress(ValueError):
        return float(value.text) if isinstance(value, Number) else value
    return value


def _umask(text: str) -> str:
    if not (text.isascii() and text.isdigit() and 3 <= len(text) <= 4 and set(text) <= set("01234567")):
        raise ValueError(f"expected three or four octal digits such as '027', got {text!r}")
    if int(text, 8) & 0o700:
        raise ValueError(f"{text!r} would remove the owner's permissions from files that sifmod writes")
    return text


def _range(text: str) -> str:
    if not is_range(text):
        raise ValueError(f"expected a comparison with a version, such as '>=6.1' or '<7.1', got {text!r}")
    return text


def _place(text: str) -> str:
    host = r"[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\]"
    found = re.fullmatch(rf"({host})(:(?P<port>[0-9]{{1,5}}))?(/[A-Za-z0-9._/-]+)?", text)
    if "@" in text:
        raise ValueError("credentials do not belong here: log in, for example with `apptainer registry login`")
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        raise ValueError(
            f"expected a registry and perhaps a path, such as docker.io or mirror.site:5000/hub, got {text!r}"
        )
    return text


def _host(text: str) -> str:
    if "/" in _place(text):
        raise ValueError(f"expected a server, such as registry.site.org or registry.site.org:5000, got {text!r}")
    return text.lower()


_RUNTIME = expecting(f"auto|{'|'.join(RUNTIMES)}|/.*", f"auto, {', '.join(RUNTIMES)} or an absolute path")
_CACHE = expecting("(/[^$]*)?", "an absolute path without variables")
_SCRATCH = expecting(r"(/(\$USER|[^/$,:\"\\]+))+", "an absolute path, in which $USER may stand")
_COMPRESSION = expecting("auto|(zstd|gzip)(:[0-9]{1,2})?|lz4", "auto, zstd:LEVEL, gzip:LEVEL or lz4")
Place = Annotated[str, AfterValidator(_place)]
Host = Annotated[str, AfterValidator(_host)]
LocalVersion = Annotated[str, expecting(r"[a-z0-9]+(\.[a-z0-9]+)*", "the beginning of a local version: cu126, cpu")]
Index = Annotated[str, expecting(r"https?://[^\s@?#]+", "the URL of an index, without a login")]
Range = Annotated[str, AfterValidator(_range)]
DriverRuns = tuple[tuple[DriverSoftware, tuple[Range, ...]], ...]
Umask = Annotated[str, BeforeValidator(number_as_written, json_schema_input_type=str | int), AfterValidator(_umask)]


@dataclass(frozen=True, kw_only=True)
class SiteKeys:
    """The keys that a resolved site has as they are configured."""

    name: Name = "generic"
    description: OpenText = ""
    accelerators: Accelerators = Accelerators()  # noqa: RUF009 (frozen, as the others are)
    image_dirs: tuple[SearchDirectory, ...] = ()
    env: ContainerEnv = ()
    host_env: HostEnv = ()
    runscript_env: RunscriptEnv = ()
    gpu_selection: GpuSelection = "slurm"
    driver_runs: Annotated[DriverRuns, Items(DriverSoftware, tuple[Range, ...])] = ()
    """Versions of CUDA and ROCm in images that the GPUs' driver here runs; what is not named runs."""
    gpus_per_node: Annotated[int, Field(ge=1, le=64), BeforeValidator(whole_number)] = 4
    mpi: MpiUse = "image"  # the MPI of a module, unless its easyconfig decides
    cpus_per_gpu: CpusPerGpu = 0  # 0: unknown
    cpu_bind: CpuBind = ""  # for srun, one task for each GPU of a node; "" for Slurm's own choice
    slurm: SlurmKeys = SlurmKeys()  # noqa: RUF009
    cache_directory: Annotated[Line, _CACHE] = ""  # of compilers and kernels, on the node; "": decided at run time
    scratch: tuple[Annotated[Line, _SCRATCH], ...] = ()  # directories of the user, with `$USER`
    link: Link = "copy"
    lock_lease: Annotated[float, Field(ge=1, le=3600), BeforeValidator(_seconds)] = 30.0
    sharing: Sharing | None = None  # who may use the prefix; decides the umask
    group: Name | None = None
    mark_days: Annotated[float, Field(ge=0, le=36500), BeforeValidator(_seconds)] = MARK_DAYS
    """Days for which another tree's use of an image here counts after it was last seen."""
    compression: Annotated[Line, _COMPRESSION] = "auto"  # or the compression of a squashfs, perhaps with its level
    connections: Annotated[int, Field(ge=1, le=32), BeforeValidator(whole_number)] = 4  # to one server at a time
    processors: Annotated[int | None, Field(ge=1, le=256), BeforeValidator(whole_number)] = None
    """Threads that convert an image; None: those that this process may use."""
    memory: Annotated[int | None, Field(ge=64 << 20), BeforeValidator(size_in_bytes)] = None
    """Bytes that converting an image may take; None: a quarter of the memory of the machine or control group."""
    mirrors: Annotated[tuple[tuple[str, tuple[Place, ...]], ...], Items(Place, tuple[Place, ...])] = ()
    insecure_registries: tuple[Place, ...] = ()
    token_servers: Annotated[tuple[tuple[str, tuple[Host, ...]], ...], Items(Host, tuple[Host, ...])] = ()
    """For each registry, the servers that may get a login for it."""
    protected: tuple[Package, ...] = PROTECTED  # packages that no layer replaces; `*` at the end: a prefix
    stale_layer: StaleLayer = "warn"  # unless SIFMOD_STALE_LAYER says otherwise at the load or start
    package_indexes: Annotated[Pairs, Items(LocalVersion, Index)] = ()
    """Beginning of torch's local version: index of packages that are linked against it."""
    extensions: Annotated[tuple[Line, ...], BeforeValidator(_extensions)] = ("*",)
    """Packages of contents that `module spider` finds."""
    striping: StripingKeys | None = None
    signatures: Signatures = Signatures()  # noqa: RUF009
    warn_without_version: bool = False  # at a load without a version, on a terminal
    spider_cache: SpiderCache | None = None
    limits: Limits = Limits()  # noqa: RUF009
    catalogue: CatalogueKeys = CatalogueKeys()  # noqa: RUF009


class SiteFile(Model, SiteKeys):
    """The keys of a site file, a settings file, the environment and the command line."""

    site: Line | None = None
    extends: Line | None = None
    accelerator: Annotated[Literal["auto", "rocm", "cuda", "none"], BeforeValidator(accelerator_of)] = "auto"
    runtime: Annotated[Line, _RUNTIME] = "auto"
    prefix: BindPath | None = None
    user_prefix: BindPath | None = None
    robot_paths: tuple[SearchDirectory, ...] = ()
    binds: Annotated[tuple[tuple[str, tuple[BindSpec, ...]], ...], Items(Name, tuple[BindItem, ...])] = ()
    mpi_profile: Name | None = None
    module_syntax: Literal["auto", "lua", "tcl", "both"] = "auto"
    umask: Umask | None = None
    trees: tuple[BindPath, ...] | None = None
    stores: tuple[BindPath, ...] | None = None
    arch: Literal["auto", "amd64", "arm64"] = "auto"
    hooks: HookKeys = HookKeys()
    detect: Detect = Detect()


@dataclass(frozen=True, kw_only=True)
class Site(SiteKeys):
    """A fully resolved site."""

    accelerator: Accelerator
    runtime_kind: RuntimeKind
    runtime_path: str  # absolute; "" when none was found
    prefix: Path
    prefix_is_default: bool
    robot_paths: tuple[Path, ...]  # in search order; the shipped easyconfigs come last
    binds: tuple[BindSpec, ...]  # of all groups, in the order of the files
    mpi_profile: str  # the host's profile; "" for none
    module_syntax: tuple[Syntax, ...]
    umask: int | None
    trees: tuple[Path, ...]  # other prefixes whose modules this user loads, in the order of MODULEPATH
    stores: tuple[Path, ...]  # prefixes to search for images by digest, before fetching
    arch: Arch
    hooks: tuple[Hook, ...] = ()  # programs that run before and after actions


def keys_in_order() -> dict[str, FieldInfo]:
    """Every key of a site file, in the order of `config show`: first SiteFile's own, then those of SiteKeys."""
    return {key: SiteFile.model_fields[key] for key in (*SiteFile.__annotations__, *SiteFile.model_fields)}
