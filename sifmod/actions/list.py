"""list: what is installed."""

from typing import NamedTuple

from sifmod.config.name import ModuleName, fits
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live_modules, read_receipt
from sifmod.tree.state import missing


class Listed(NamedTuple):
    """One installed module."""

    module: ModuleName
    generation: int
    installation: Installation | None  # None: its receipt cannot be read
    problems: tuple[str, ...]  # what it lacks to be usable; () when all is well


def list_modules(layout: Layout, pattern: str = "") -> tuple[Listed, ...]:
    """Installed modules whose name holds `pattern`, or matches it when it has wildcards; case does not matter."""
    return tuple(_look(layout, module, number) for module, number in live_modules(layout) if fits(str(module), pattern))


def _look(layout: Layout, module: ModuleName, number: int) -> Listed:
    root = layout.generation(module, number)
    installation = read_receipt(root)
    if installation is None:
        return Listed(module, number, None, (f"the receipt in {root} is missing or cannot be read",))
    return Listed(module, number, installation, missing(layout, installation))
