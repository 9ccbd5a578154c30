"""uninstall: a module out of sight; its files stay until gc, the user's own for ever."""

from collections.abc import Callable
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.tree.generation import module_lock, tidy, unpublish
from sifmod.tree.history import recorded
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_number


class Uninstalled(NamedTuple):
    """What was taken out of sight, and what is left."""

    module: ModuleName
    generation: int | None  # None: an earlier run had got as far as that
    user_software: str | None  # the directory that holds the user's own additions, when there are any


def uninstall(layout: Layout, module: ModuleName, lease: float, on_wait: Callable[[str], None]) -> Uninstalled:
    """Remove the modulefiles and the switch of `module`; what is loaded in shells and jobs goes on working.

    The generations stay for `rollback` and `gc`. Killed on the way, the module is there or not, and the next run
    completes it. Raises ModuleError when the module is not installed, InstallError when its modulefile was changed.
    """
    tidy(layout, lease, on_wait)
    _check(layout, module)
    with module_lock(layout, module, lease, on_wait) as held:
        _check(layout, module)
        generation = live_number(layout, module)
        unpublish(layout, module, held)
    place = layout.user_software(module)
    return Uninstalled(module, generation, str(place) if place.exists() else None)


def _check(layout: Layout, module: ModuleName) -> None:
    events = recorded(layout, module)
    half_done = bool(events) and events[-1].generation is not None
    if live_number(layout, module) is None and not half_done:
        raise ModuleError(f"{module} is not installed in {layout.prefix}", "`sifmod list` shows what is")
