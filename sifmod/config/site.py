"""A site: what is true of a machine, as its files say it and as it is resolved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sifmod.config.bind import BindItem, BindSpec
from sifmod.config.easyconfig import Accelerator, Arch, ContainerEnv, HostEnv, Pairs, RunscriptEnv
from sifmod.config.model import Model
from sifmod.config.node import Number
from sifmod.config.text import BindPath, Items, Line, Name, SearchDirectory, Text

Link = Literal["copy", "hardlink", "reference"]
RuntimeKind = Literal["apptainer", "singularity"]
Syntax = Literal["lua", "tcl"]


class Accelerators(Model):
    """What an easyconfig's accelerator becomes here: the runtime's flag, the bare devices, or nothing."""

    rocm: Literal["rocm", "devices", "none"] = "rocm"
    cuda: Literal["nv", "nvccli", "none"] = "nv"


class Detect(Model):
    """A site is this one when every path exists."""

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
    module_syntax: tuple[Syntax, ...]
    link: Link
    lock_lease: float  # seconds
    umask: int | None
    group: str | None
    arch: Arch


def _seconds(value: object) -> object:
    if isinstance(value, Number):
        try:
            return float(value.text)
        except ValueError:
            return value
    return value


def _octal(value: object) -> object:
    return value.text if isinstance(value, Number) else value


def _umask(text: str) -> str:
    if not (text.isascii() and text.isdigit() and 3 <= len(text) <= 4 and set(text) <= set("01234567")):
        raise ValueError(f"expected three or four octal digits such as '027', got {text!r}")
    if int(text, 8) & 0o700:
        raise ValueError(f"{text!r} would take their owner's rights from the files that sifmod writes")
    return text


def _runtime(text: str) -> str:
    if text in ("auto", "apptainer", "singularity") or text.startswith("/"):
        return text
    raise ValueError(f"expected auto, apptainer, singularity or an absolute path, got {text!r}")


Umask = Annotated[str, BeforeValidator(_octal, json_schema_input_type=str | int), AfterValidator(_umask)]


class SiteFile(Model):
    """What a site file, a settings file, the environment and the command line may say."""

    site: Line | None = None
    name: Name = "generic"
    description: Text = ""
    accelerator: Literal["auto", "rocm", "cuda", "none"] = "auto"
    accelerators: Accelerators = Accelerators()
    runtime: Annotated[Line, AfterValidator(_runtime)] = "auto"
    prefix: BindPath | None = None
    image_dirs: tuple[SearchDirectory, ...] = ()
    robot_paths: tuple[SearchDirectory, ...] = ()
    binds: Annotated[tuple[tuple[str, tuple[BindSpec, ...]], ...], Items(Name, tuple[BindItem, ...])] = ()
    env: ContainerEnv = ()
    host_env: HostEnv = ()
    runscript_env: RunscriptEnv = ()
    module_syntax: Literal["auto", "lua", "tcl", "both"] = "auto"
    link: Link = "copy"
    lock_lease: Annotated[float, Field(ge=1, le=3600), BeforeValidator(_seconds)] = 30.0
    umask: Umask | None = None
    group: Name | None = None
    arch: Literal["auto", "amd64", "arm64"] = "auto"
    detect: Detect = Detect()
