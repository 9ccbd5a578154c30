"""Modules: installed, listed, or about to be."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.error import Error, Problem
from sifmod.cli.outputs.image import MadeFrom
from sifmod.cli.outputs.life import LifeData
from sifmod.cli.outputs.words import Arch, Easyconfig, ModuleName, Notes, Number, Path, Sha256, Size, Source, Variant


class Input(TypedDict):
    """A file that was read, or looked for."""

    path: Path
    sha256: Annotated[Sha256 | None, Field(description="null where there was none")]


class Provenance(TypedDict):
    """What an installation was made from."""

    sifmod: Annotated[str, Field(description="version")]
    easyconfig: Easyconfig
    version: Annotated[str, Field(description="of the easyconfig, without its versionsuffix")]
    variant: Variant | None
    site: str
    accelerator: str
    mpi: Annotated[str, Field(description="which MPI, and how srun starts it; empty without one")]
    facts: Annotated[dict[str, str], Field(description="what was found on the machine")]
    options: Annotated[dict[str, str], Field(description="of the command line, those that decide what is installed")]
    checked: Annotated[bool, Field(description="by the sanity check")]
    inputs: list[Input]


class Image(TypedDict):
    """The SIF of an installation."""

    path: Path
    sha256: Sha256
    size: Size
    arch: Arch
    source: Source
    link: Annotated[str, Field(description="copy, hardlink or reference")]
    filename: Annotated[str, Field(description="of the link in the generation")]
    made_from: MadeFrom


class File(TypedDict):
    """A file that sifmod wrote."""

    path: Path
    sha256: Sha256
    mode: Annotated[int, Field(description="permissions, as in chmod")]


class Link(TypedDict):
    """A symlink that sifmod made."""

    path: Path
    target: str


class Installed(TypedDict):
    """A generation of a module."""

    module: ModuleName
    generation: Number
    path: Annotated[Path, Field(description="of the generation")]
    provenance: Provenance
    image: Annotated[Image | None, Field(description="null for a view")]
    loads: Annotated[list[str], Field(description="those that a view loads")]
    files: list[File]
    links: list[Link]
    modulefiles: list[File]


class InstallDone(Installed):
    """A module that is installed now."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    changed: Annotated[bool, Field(description="whether this run installed it")]


class EasyconfigError(Error):
    """An easyconfig that could not be installed or fetched."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]


class DryRun(TypedDict):
    """What would be done."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]
    module: ModuleName
    mark: Annotated[Literal[" ", "x", "R", "F"], Field(description="x installed, R rebuilt, F fetched again")]


class FetchedFor(TypedDict):
    """The image of an easyconfig in the store."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    module: ModuleName
    path: Path
    sha256: Sha256


class ModuleError(Error):
    """A module with which it could not be done."""

    module: ModuleName


class Reapplied(TypedDict):
    """An installed module, and what `--module-only --installed` changes in it."""

    module: ModuleName
    diff: str
    notes: Notes


class ReappliedError(ModuleError):
    """A module that could not be decided about, or changed."""

    diff: str
    notes: Notes


class Listed(TypedDict):
    """An installed module."""

    module: ModuleName
    generation: Number
    life: LifeData
    problems: Annotated[list[Problem], Field(description="what it lacks to be usable")]
    installation: Annotated[Installed | None, Field(description="null where the receipt cannot be read")]
