"""A site: what is true of a machine, as its files say it and as it is resolved."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sifmod.config.bind import BindItem, BindSpec
from sifmod.config.easyconfig import Accelerator, Arch, ContainerEnv, GpuSelection, HostEnv, RunscriptEnv
from sifmod.config.hook import Hook, HookKeys
from sifmod.config.kinds import RUNTIMES, MpiUse, RuntimeKind, StaleLayer, Syntax
from sifmod.config.limits import Limits
from sifmod.config.text import (
    BindPath,
    Items,
    Line,
    Name,
    Package,
    Pairs,
    SearchDirectory,
    Text,
    expecting,
    number_as_written,
    size_in_bytes,
    whole_number,
)
from sifmod.config.yaml.node import Number
from sifmod.config.yaml.validate import Model

Link = Literal["copy", "hardlink", "reference"]
Sharing = Literal["group", "site"]
MARK_DAYS = 180.0


# the keys that decide about a module's files, wherever its tree is: a bundle brings its own
DECIDING = (
    *("name", "description", "accelerator", "accelerators", "binds", "env", "host_env", "runscript_env"),
    *("gpu_selection", "gpus_per_node", "mpi", "mpi_profile", "cpus_per_gpu", "cpu_bind", "cache_directory", "scratch"),
    *("module_syntax", "arch", "extensions", "protected", "stale_layer", "warn_without_version"),
)

# what an image is chosen for, and what must fit its drivers; `*` at the end: all that begin so
PROTECTED = (
    *("torch", "torchvision", "torchaudio", "triton", "pytorch-triton*", "apex", "flash-attn*", "nvidia-*", "jaxlib"),
    *("jax-cuda*", "jax-rocm*", "tensorflow*", "transformer-engine*", "mpi4py", "cupy*"),
)


class Accelerators(Model):
    """What an easyconfig's accelerator becomes here: the runtime's flag, the bare devices, or nothing."""

    rocm: Literal["rocm", "devices", "none"] = "rocm"
    cuda: Literal["nv", "nvccli", "none"] = "nv"


class StripingKeys(Model):
    """Lustre striping of images."""

    count: Annotated[int, Field(ge=-1, le=2000), BeforeValidator(whole_number)] = -1
    """Over how many targets; -1 for all of them."""
    size: Annotated[int, Field(ge=1 << 16, le=1 << 32), BeforeValidator(size_in_bytes)] = 4 << 20
    """Bytes a stripe: a number, or 4MB and the like."""


class Signatures(Model):
    """What a site asks of the signatures of images."""

    # YAML reads a bare `off` as false
    policy: Annotated[
        Literal["off", "warn", "require"], BeforeValidator(lambda value: "off" if value is False else value)
    ] = "off"
    """require: an image without a good signature is not installed; warn: it is, and that is said."""
    keys: tuple[Line, ...] = ()
    """Files with OpenPGP public keys of those whose signature counts."""


class SpiderCache(Model):
    """Lmod's cache of the modules, as its own program `update_lmod_system_cache_files` keeps it."""

    directory: SearchDirectory
    """Where the cache is (the `dir` of Lmod's scDescriptT)."""
    timestamp: SearchDirectory
    """The file of which Lmod looks at the time (its `timestamp`)."""
    modulepath: tuple[SearchDirectory, ...] = ()
    """All that the cache is of, where that is more than the modules of the prefix."""


class Detect(Model):
    """A site is this one when every path exists; of a pattern, one match."""

    paths: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Site:
    """A site with nothing left to find out."""

    name: str
    description: str
    accelerator: Accelerator
    accelerators: Accelerators
    runtime_kind: RuntimeKind
    runtime_path: str  # absolute; "" when none was found
    prefix: Path
    prefix_is_default: bool
    image_dirs: tuple[str, ...]
    robot_paths: tuple[Path, ...]  # in the order of search; the shipped easyconfigs are the last
    binds: tuple[BindSpec, ...]  # of every group, in the files' order
    env: Pairs
    host_env: Pairs
    runscript_env: Pairs
    gpu_selection: GpuSelection
    gpus_per_node: int
    mpi: MpiUse  # whose MPI a module has, where its easyconfig does not say
    mpi_profile: str  # the host's; "" for none
    cpus_per_gpu: int  # 0: not said
    cpu_bind: str  # for srun, one task for each GPU of a node; "" for Slurm's own choice
    cache_directory: str  # of compilers and kernels, on the node; "" when it is decided at run time
    scratch: tuple[str, ...]  # places of the user's, `$USER` in them
    module_syntax: tuple[Syntax, ...]
    link: Link
    lock_lease: float  # seconds
    sharing: Sharing | None  # for whom the prefix is, which decides the umask
    umask: int | None
    group: str | None
    stores: tuple[Path, ...]  # prefixes in which images are looked for by digest, before anything is fetched
    mark_days: float  # for which another tree's use of an image here counts after it was last seen
    arch: Arch
    compression: str  # auto, or what a squashfs is compressed with
    connections: int  # to one server at a time
    processors: int | None  # threads that convert an image; None: those that this process may use
    memory: int | None  # bytes that converting an image may take; None: a quarter of what there is
    mirrors: tuple[tuple[str, tuple[str, ...]], ...]
    insecure_registries: tuple[str, ...]
    token_servers: tuple[tuple[str, tuple[str, ...]], ...]  # of a registry, which may have a login for it
    protected: tuple[str, ...]  # packages that no layer replaces, `*` at the end for all that begin so
    stale_layer: StaleLayer  # unless SIFMOD_STALE_LAYER says otherwise at the load or start
    package_indexes: Pairs  # beginning of torch's local version: index of packages that are linked against it
    striping: StripingKeys | None
    signatures: Signatures
    warn_without_version: bool  # at a load that names none, on a terminal
    spider_cache: SpiderCache | None
    extensions: tuple[str, ...] = ("*",)  # packages of contents that `module spider` finds
    hooks: tuple[Hook, ...] = ()  # programs that are run before and after what is done
    limits: Limits = field(default_factory=Limits)


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
        raise ValueError(f"{text!r} would take their owner's rights from the files that sifmod writes")
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
_CPU_BIND = expecting(
    "([A-Za-z0-9_]+(:[A-Za-z0-9_,]+)?)?", "what srun takes after --cpu-bind=, such as mask_cpu:0xfe,0xfe00"
)
_COMPRESSION = expecting("auto|(zstd|gzip)(:[0-9]{1,2})?|lz4", "auto, zstd:LEVEL, gzip:LEVEL or lz4")
Place = Annotated[str, AfterValidator(_place)]
Host = Annotated[str, AfterValidator(_host)]
LocalVersion = Annotated[str, expecting(r"[a-z0-9]+(\.[a-z0-9]+)*", "the beginning of a local version: cu126, cpu")]
Index = Annotated[str, expecting(r"https?://[^\s@?#]+", "the URL of an index, without a login")]
Umask = Annotated[str, BeforeValidator(number_as_written, json_schema_input_type=str | int), AfterValidator(_umask)]


class SiteFile(Model):
    """What a site file, a settings file, the environment and the command line may say."""

    site: Line | None = None
    name: Name = "generic"
    description: Text = ""
    accelerator: Literal["auto", "rocm", "cuda", "none"] = "auto"
    accelerators: Accelerators = Accelerators()
    runtime: Annotated[Line, _RUNTIME] = "auto"
    prefix: BindPath | None = None
    image_dirs: tuple[SearchDirectory, ...] = ()
    robot_paths: tuple[SearchDirectory, ...] = ()
    binds: Annotated[tuple[tuple[str, tuple[BindSpec, ...]], ...], Items(Name, tuple[BindItem, ...])] = ()
    env: ContainerEnv = ()
    host_env: HostEnv = ()
    runscript_env: RunscriptEnv = ()
    gpu_selection: GpuSelection = "slurm"
    gpus_per_node: Annotated[int, Field(ge=1, le=64), BeforeValidator(whole_number)] = 4
    mpi: MpiUse = "image"
    mpi_profile: Name | None = None
    cpus_per_gpu: Annotated[int, Field(ge=0, le=1024), BeforeValidator(whole_number)] = 0
    cpu_bind: Annotated[Line, _CPU_BIND] = ""
    cache_directory: Annotated[Line, expecting("(/[^$]*)?", "an absolute path without variables")] = ""
    scratch: tuple[
        Annotated[Line, expecting(r"(/(\$USER|[^/$,:\"\\]+))+", "an absolute path, in which $USER may stand")], ...
    ] = ()
    module_syntax: Literal["auto", "lua", "tcl", "both"] = "auto"
    link: Link = "copy"
    lock_lease: Annotated[float, Field(ge=1, le=3600), BeforeValidator(_seconds)] = 30.0
    sharing: Sharing | None = None
    umask: Umask | None = None
    group: Name | None = None
    stores: tuple[BindPath, ...] | None = None
    mark_days: Annotated[float, Field(ge=0, le=36500), BeforeValidator(_seconds)] = MARK_DAYS
    arch: Literal["auto", "amd64", "arm64"] = "auto"
    compression: Annotated[Line, _COMPRESSION] = "auto"
    connections: Annotated[int, Field(ge=1, le=32), BeforeValidator(whole_number)] = 4
    processors: Annotated[int | None, Field(ge=1, le=256), BeforeValidator(whole_number)] = None
    memory: Annotated[int | None, Field(ge=64 << 20), BeforeValidator(size_in_bytes)] = None
    mirrors: Annotated[tuple[tuple[str, tuple[Place, ...]], ...], Items(Place, tuple[Place, ...])] = ()
    insecure_registries: tuple[Place, ...] = ()
    token_servers: Annotated[tuple[tuple[str, tuple[Host, ...]], ...], Items(Host, tuple[Host, ...])] = ()
    protected: tuple[Package, ...] = PROTECTED
    package_indexes: Annotated[Pairs, Items(LocalVersion, Index)] = ()
    extensions: Annotated[tuple[Line, ...], BeforeValidator(_extensions)] = ("*",)
    stale_layer: StaleLayer = "warn"
    striping: StripingKeys | None = None
    signatures: Signatures = Signatures()
    warn_without_version: bool = False
    spider_cache: SpiderCache | None = None
    hooks: HookKeys = HookKeys()
    limits: Limits = Limits()
    detect: Detect = Detect()
