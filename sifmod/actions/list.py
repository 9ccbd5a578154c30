"""list: the installed modules."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.actions.installed import Installed, installed_data
from sifmod.config.name import ModuleName, fits
from sifmod.errors import InstallError, Problem
from sifmod.result import Described, Internal, Named, Number, Time
from sifmod.tree.history import held_since, in_utc, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.life import ModuleLife, NameLife, decided_names, read_life
from sifmod.tree.receipt import Installation, live_modules, read_receipt
from sifmod.tree.state import leftovers, missing

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
