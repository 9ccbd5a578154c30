"""The easyconfig: what its author wrote, checked."""

from typing import Annotated, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from sifmod.config.bind import BindItem
from sifmod.config.model import Model
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
    SearchDirectory,
    Sha256,
    SifName,
    Text,
    Version,
    VersionSuffix,
    WrapperName,
)

Accelerator = Literal["rocm", "cuda", "none"]
Arch = Literal["amd64", "arm64"]
Runscript = Literal["conda-python-simple", "conda-python-distributed", "get-master", "list-packages", "start-shell"]
Pairs = tuple[tuple[str, str], ...]


class Image(Model):
    """Which SIF, and where it comes from: `sources` or `build`."""

    filename: SifName
    sources: tuple[Line, ...] = ()
    build: Line | None = None
    sha256: Sha256 | None = None
    arch: Arch
    available: Text = ""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.build is not None and self.sources:
            raise PydanticCustomError("combination", "give sources or build, not both")
        if self.build is None and not self.sources:
            raise PydanticCustomError("combination", "expected sources, a list of places to fetch from, or build")
        return self


class Conda(Model):
    """A conda environment inside the image, activated by variables."""

    prefix: Absolute
    env: Name = "base"


class SanityCheck(Model):
    """Commands run inside the image, and paths that must exist: inside the image, or relative to the generation."""

    commands: tuple[Line, ...] = ()
    paths: tuple[Line, ...] = ()


_OWN_VARIABLES = (
    *("PATH", "MODULEPATH", "LOADEDMODULES", "_LMFILES_", "SIF", "RUNSCRIPTS", "CONTAINERROOT", "WITH_CONDA"),
    *("SINGULARITY_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BIND", "APPTAINER_BINDPATH"),
)
_OWN_PREFIXES = ("_SIFMOD_", "SIFMOD_", "LMOD_", "__LMOD_", "_ModuleTable", "MODULES_", "__MODULES_")


def _container_variable(name: str) -> None:
    if name in ("PATH", "PREPEND_PATH", "APPEND_PATH"):
        raise ValueError(f"{name} is made from the key path: write the directories there")
    if name == "WITH_CONDA":
        raise ValueError("WITH_CONDA is made from the keys activate, conda and venv: write it there")


def _host_variable(name: str) -> None:
    if name.startswith(("SINGULARITYENV_", "APPTAINERENV_")):
        raise ValueError(f"write {name.partition('_')[2]} under env: it is handed into the container from there")
    if name in _OWN_VARIABLES or name.startswith(_OWN_PREFIXES):
        raise ValueError(f"{name} belongs to the module itself or to the module system and cannot be set here")


ContainerEnv = Annotated[Pairs, Items(EnvName, EnvValue, _container_variable)]
HostEnv = Annotated[Pairs, Items(EnvName, EnvValue, _host_variable)]
RunscriptEnv = Annotated[Pairs, Items(EnvName, EnvValue)]


class Easyconfig(Model):
    """One module, with its preset, what it extends, its variant and the command line merged in.

    Nothing in here says "not decided": `image.filename`, `image.arch` and `accelerator` are filled in by loading.
    Paths in `image.sources` and `image.build` are absolute; a bare name in `sources` is looked up in image_dirs.
    """

    name: Name
    version: Version
    versionsuffix: VersionSuffix = ""
    description: Text = ""
    homepage: Line = ""
    docurls: tuple[Line, ...] = ()
    whatis: tuple[Line, ...] = ()
    moduleclass: Name = "base"
    license: Line = ""
    contents: Annotated[Pairs, Items(Name, Version)] = ()
    accelerator: Accelerator
    image: Image
    activate: Line | None = None
    conda: Conda | None = None
    venv: Absolute | None = None
    binds: tuple[BindItem, ...] = ()
    env: ContainerEnv = ()
    host_env: HostEnv = ()
    runscript_env: RunscriptEnv = ()
    path: tuple[SearchDirectory, ...] = ()
    wrappers: tuple[WrapperName, ...] = ()
    runscripts: tuple[Runscript, ...] = ()
    conflict: tuple[ModuleSpec, ...] = ()
    family: Family | None = None
    sanity_check: SanityCheck = SanityCheck()

    @property
    def module(self) -> ModuleName:
        """`<name>/<version><versionsuffix>`."""
        return ModuleName(self.name, self.version + self.versionsuffix)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if ".." in self.module.version:
            raise PydanticCustomError("combination", "version and versionsuffix together hold '..'")
        if self.activate is not None and (self.conda is not None or self.venv is not None):
            raise PydanticCustomError("combination", "give activate, or conda and venv, not both")
        return self


class EasyconfigFile(Easyconfig):
    """What a file may hold: an easyconfig's keys, any of them left out, and what loading uses up."""

    extends: Line = ""
    preset: Name | None = None
    variants: Annotated[tuple[tuple[str, Easyconfig], ...], Items(Name, Easyconfig)] = ()

