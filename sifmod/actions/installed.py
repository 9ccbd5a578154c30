"""An Installed: an installation as commands show it, with absolute paths and without internal fields."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.result import Described, Easyconfig, Number, PathText, Sha256, Variant
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation

Pairs = tuple[tuple[str, str], ...]


class Provenance(NamedTuple):
    """What an installation was made from: sifmod, easyconfig, site, facts, options and inputs."""

    sifmod: Annotated[str, Described("version of sifmod")]
    easyconfig: Easyconfig
    version: Annotated[str, Described("version of the easyconfig, without its versionsuffix")]
    variant: Variant | None
    site: str
    accelerator: str
    mpi: Annotated[str, Described("which MPI, and how srun starts it; empty without one")]
    facts: Annotated[Pairs, Described("properties of the machine")]
    options: Annotated[Pairs, Described("command-line options that decide the installation")]
    checked: Annotated[bool, Described("whether the install asked for the sanity check")]
    inputs: tuple[Input, ...]


class InstalledFile(NamedTuple):
    """A file that sifmod wrote."""

    path: PathText
    sha256: Sha256
    mode: Annotated[int, Described("permissions, as in chmod")]


class InstalledLink(NamedTuple):
    """A symlink that sifmod made."""

    path: PathText
    target: str


@dataclass(frozen=True)
class Installed:
    """A generation of a module."""

    module: ModuleName
    generation: Number
    path: Annotated[PathText, Described("directory of the generation")]
    provenance: Provenance
    image: Annotated[ImageRecord | None, Described("null for a view")]
    loads: Annotated[tuple[str, ...], Described("modules that a view loads")]
    files: tuple[InstalledFile, ...]
    links: tuple[InstalledLink, ...]
    modulefiles: tuple[InstalledFile, ...]


def installed_data(found: Installation) -> Installed:
    """The installation as commands show it."""
    made, root = found.provenance, found.root
    provenance = Provenance(
        made.sifmod,
        made.easyconfig,
        made.version,
        made.variant,
        made.site,
        made.accelerator,
        mpi=made.image.mpi.text if made.image.mpi else "",
        facts=made.facts,
        options=made.asked.options,
        checked=made.asked.checked,
        inputs=tuple(one for one in made.inputs if one.path.startswith("/") and not one.path.endswith("/")),
    )
    return Installed(
        module=found.module,
        generation=found.generation,
        path=root,
        provenance=provenance,
        image=found.image,
        loads=found.modules,
        files=_files(root, found.files),
        links=tuple(InstalledLink(f"{root}/{link.path}", link.target) for link in found.links),
        modulefiles=_files(Layout(found.prefix).modules, found.stubs),
    )


def _files(directory: object, records: Iterable[FileRecord]) -> tuple[InstalledFile, ...]:
    return tuple(InstalledFile(f"{directory}/{file.path}", file.sha256, file.mode) for file in records)
