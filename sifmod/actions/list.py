"""list: the installed modules, and an installation as commands show it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.config.input import Input
from sifmod.config.name import ModuleName, fits
from sifmod.errors import InstallError, Problem
from sifmod.result import Described, Easyconfig, Internal, Named, Number, PathText, Sha256, Time, Variant
from sifmod.tree.history import held_since, in_utc, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.life import ModuleLife, NameLife, decided_names, read_life
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation, live_modules, read_receipt
from sifmod.tree.state import leftovers, missing

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


_HELD = "generations that were rolled back and are not installed again by default"


class HeldGeneration(NamedTuple):
    """A generation that is held after a rollback."""

    generation: Number
    since: Time


class Listed(NamedTuple):
    """An installed module."""

    module: ModuleName
    generation: Number
    installation: Internal[Installation | None]  # None if the receipt cannot be read
    problems: Internal[tuple[str, ...]]  # reasons why it is unusable; () if none
    life: Internal[NameLife]  # of all modules with its name
    held: Internal[dict[int, float]]  # held generations, and since when
    prefix: Annotated[Path, Described("prefix of the module's tree")]
    shadowed_by: Annotated[Path | None, Described("prefix of the tree whose module of this name comes first")] = None

    @property
    def rolled_back(self) -> Annotated[tuple[HeldGeneration, ...], Named("held"), Described(_HELD)]:
        return tuple(HeldGeneration(number, in_utc(since)) for number, since in self.held.items())

    @property
    def decided(self) -> Annotated[ModuleLife, Named("life")]:
        return self.life.of_module(self.module.version)

    @property
    def lacks(self) -> Annotated[tuple[Problem, ...], Named("problems"), Described("what is wrong with the module")]:
        return tuple(Problem("", 0, 0, "", problem) for problem in self.problems)

    @property
    def shown(
        self,
    ) -> Annotated[Installed | None, Named("installation"), Described("null if the receipt cannot be read")]:
        return installed_data(self.installation) if self.installation else None


def list_modules(layout: Layout, pattern: str = "") -> tuple[Listed, ...]:
    """Installed modules whose name contains `pattern`, or matches its wildcards; case-insensitive."""
    found = [(module, number) for module, number in live_modules(layout) if fits(str(module), pattern)]
    lives = {name: _life(layout, name) for name in decided_names(layout) & {module.name for module, _ in found}}
    left, none = leftovers(layout), (NameLife(), ())
    return tuple(_look(layout, left, module, number, lives.get(module.name, none)) for module, number in found)


def list_trees(trees: Iterable[Layout], pattern: str = "") -> tuple[Listed, ...]:
    """The installed modules of several trees; a module shadows those of the same name in later trees."""
    first: dict[ModuleName, Path] = {}
    found: list[Listed] = []
    for layout in trees:
        for one in list_modules(layout, pattern):
            place = first.setdefault(one.module, layout.prefix)
            found.append(one if place == layout.prefix else one._replace(shadowed_by=place))
    return tuple(found)


def _life(layout: Layout, name: str) -> tuple[NameLife, tuple[str, ...]]:
    try:
        return read_life(layout, name), ()
    except InstallError as error:
        return NameLife(), (error.message,)


def _look(
    layout: Layout,
    left: Collection[str],
    module: ModuleName,
    number: int,
    decided: tuple[NameLife, tuple[str, ...]],
) -> Listed:
    life, problems = decided
    held: dict[int, float] = {}
    try:
        held = held_since(read_history(layout, module))
    except OSError as error:
        problems = (*problems, f"its history cannot be read: {error.strerror or error}")
    root = layout.generation(module, number)
    installation = read_receipt(root)
    lacks = (
        (f"the receipt in {root} is missing or cannot be read",)
        if installation is None
        else missing(layout, installation, left)
    )
    return Listed(module, number, installation, (*lacks, *problems), life, held, layout.prefix)
