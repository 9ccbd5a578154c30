"""The modules that a view loads."""

from collections import deque
from collections.abc import Mapping

from sifmod.actions.start import installed
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.receipt import Installation, matches


def loaded_by(
    view: Installation, modules: Mapping[ModuleName, Layout]
) -> tuple[tuple[Installation, ...], tuple[str, ...]]:
    """The modules with images that a view loads, directly or through other views; and the names that match none.

    `modules` are the installed ones. Raises ModuleError for a receipt that cannot be read.
    """
    found: dict[ModuleName, Installation] = {}
    missing: list[str] = []
    views, wanted = {view.module}, deque(view.modules)
    while wanted:
        name = wanted.popleft()
        there = sorted(module for module in modules if matches(name, str(module)))
        if not there:
            missing.append(name)
            continue
        default = (one for one in there if one.version == read_life(modules[one], one.name).default)
        module = there[0] if str(there[0]) == name else next(default, there[-1])
        one = installed(modules[module], module)
        if one.image:
            found[module] = one
        elif module not in views:
            views.add(module)
            wanted.extend(one.modules)
    return tuple(found.values()), tuple(missing)
