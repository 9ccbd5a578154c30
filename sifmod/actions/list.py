"""list: what is installed."""

from typing import Annotated, NamedTuple

from sifmod.actions.installed import Installed, installed_from
from sifmod.config.name import ModuleName, fits
from sifmod.errors import InstallError, Problem
from sifmod.result import Described, Internal, Number, Time
from sifmod.tree.history import held_since, in_utc, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.life import ModuleLife, NameLife, decided_names, read_life
from sifmod.tree.receipt import Installation, live_modules, read_receipt
from sifmod.tree.state import missing


class HeldGeneration(NamedTuple):
    """A generation that was rolled back from, and is held."""

    generation: Number
    since: Time


class Listed(NamedTuple):
    """An installed module."""

    module: ModuleName
    generation: Number
    found: Internal[Installation | None]  # None: its receipt cannot be read
    lacks: Internal[tuple[str, ...]]  # what it lacks to be usable; () when all is well
    of_name: Internal[NameLife]  # what is decided of all modules of its name
    held_since: Internal[dict[int, float]]  # the generations that are held, and since when

    @property
    def held(
        self,
    ) -> Annotated[
        tuple[HeldGeneration, ...], Described("what was rolled back from, and is not installed again unasked")
    ]:
        return tuple(HeldGeneration(number, in_utc(since)) for number, since in self.held_since.items())

    @property
    def life(self) -> Annotated[ModuleLife, Described("what is decided about it")]:
        return self.of_name.of_module(self.module.version)

    @property
    def problems(self) -> Annotated[tuple[Problem, ...], Described("what it lacks to be usable")]:
        return tuple(Problem("", 0, 0, "", lack) for lack in self.lacks)

    @property
    def installation(self) -> Annotated[Installed | None, Described("null where the receipt cannot be read")]:
        return installed_from(self.found) if self.found else None


def list_modules(layout: Layout, pattern: str = "") -> tuple[Listed, ...]:
    """Installed modules whose name holds `pattern`, or matches it when it has wildcards; case does not matter."""
    found = [(module, number) for module, number in live_modules(layout) if fits(str(module), pattern)]
    lives = {name: _life(layout, name) for name in decided_names(layout) & {module.name for module, _ in found}}
    return tuple(_look(layout, module, number, lives.get(module.name, (NameLife(), ()))) for module, number in found)


def _life(layout: Layout, name: str) -> tuple[NameLife, tuple[str, ...]]:
    try:
        return read_life(layout, name), ()
    except InstallError as error:
        return NameLife(), (error.message,)


def _look(layout: Layout, module: ModuleName, number: int, decided: tuple[NameLife, tuple[str, ...]]) -> Listed:
    life, problems = decided
    held: dict[int, float] = {}
    try:
        held = held_since(read_history(layout, module))
    except OSError as error:
        problems = (*problems, f"its history cannot be read: {error.strerror or error}")
    root = layout.generation(module, number)
    installation = read_receipt(root)
    if installation is None:
        return Listed(
            module, number, None, (f"the receipt in {root} is missing or cannot be read", *problems), life, held
        )
    return Listed(module, number, installation, (*missing(layout, installation), *problems), life, held)
