"""The modules that a view loads: whether they exist, and which they are."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sifmod.actions.start import installed, is_readable
from sifmod.config.name import ModuleName
from sifmod.config.version import version_key
from sifmod.errors import ModuleError
from sifmod.tree.layout import Layout
from sifmod.tree.life import Life, read_life, retirement, today
from sifmod.tree.receipt import Installation, live_modules, matches, views_of

if TYPE_CHECKING:
    from sifmod.actions.install.decision import Decision

_SHOWN = 3  # commands


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
        there = [module for module in modules if matches(name, str(module))]
        if not there:
            missing.append(name)
            continue
        module = max(there, key=lambda one: _preference(one, name, modules[one]))
        one = installed(modules[module], module)
        if one.image:
            found[module] = one
        elif module not in views:
            views.add(module)
            wanted.extend(one.modules)
    return tuple(found.values()), tuple(missing)


def _preference(module: ModuleName, name: str, layout: Layout) -> tuple[object, ...]:
    """The sort key of modules that `name` may mean: a module system loads the greatest."""
    life = read_life(layout, module.name)
    shown = _is_shown(life.of(module.version))
    return str(module) == name, shown, life.default == module.version, version_key(module.version), module


def _is_shown(life: Life) -> bool:
    return not (life.hidden or life.retired or _is_refused(life))


def _is_refused(life: Life) -> bool:
    return life.refused_from is not None and life.refused_from <= today()


def broken_views(layout: Layout, module: ModuleName) -> tuple[ModuleName, ...]:
    """The installed views that load this module, and can no longer be loaded: neither it nor another one is found."""
    found = views_of(layout, module)
    if not found:
        return ()
    life = read_life(layout, module.name)
    there = [one for one, _ in live_modules(layout) if one.name == module.name]

    broken = (view for view, name in found if not any(_loads(name, one, life.of(one.version)) for one in there))
    return tuple(dict.fromkeys(broken))


def _loads(name: str, module: ModuleName, life: Life) -> bool:
    return not _is_refused(life) if name == str(module) else matches(name, str(module)) and _is_shown(life)


def lost_modules(view: Installation, trees: Sequence[Layout], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The modules that a view loads, also through other views, and that do not load any more; each with what is there.

    A name that no tree has had is of another tool, whose directories may not be on this MODULEPATH: not reported.
    Raises ModuleError or InstallError for a receipt or decisions that cannot be read, OSError.
    """
    here = _nearest(filter(is_readable, trees))
    views, wanted = {view.module}, deque(view.modules)
    while wanted:
        name = wanted.popleft()
        there = [one for one in here if matches(name, str(one))]
        if loaded := [one for one in there if _loads(name, one, read_life(here[one], one.name).of(one.version))]:
            module = max(loaded, key=lambda one: _preference(one, name, here[one]))
            if module not in views:
                views.add(module)
                wanted.extend(installed(here[module], module).modules)
        elif there:
            yield name, "only retired or hidden modules"
        elif not _is_on_path(name, environ) and any(map(partial(_had, name), trees)):
            yield name, f"nothing in {', '.join(str(tree.prefix) for tree in trees)} or on MODULEPATH"


def _nearest(trees: Iterable[Layout]) -> dict[ModuleName, Layout]:
    """The first of the trees that has each module."""
    return {one: tree for tree in reversed([*trees]) for one, _ in live_modules(tree)}


def _had(wanted: str, tree: Layout) -> bool:
    """Whether a tree has or had modules of this name, or cannot be read."""
    name = wanted.partition("/")[0]
    return not is_readable(tree) or any(map(os.path.lexists, (tree.software / name, tree.logs / "modules" / name)))


def check_modules(decision: "Decision", layout: Layout, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about each module of a view that is not in the site's trees or on MODULEPATH, or does not load there.

    Raises ModuleError for modules that these trees have in another version, or that an easyconfig here can install.
    """
    trees = (layout, *filter(is_readable, map(Layout, decision.site.site.trees)))
    plan, here = decision.plan, _nearest(trees)
    problems: list[str] = []
    hints: list[str] = []
    doubts: list[str] = []
    for wanted in plan.modules:
        if there := [one for one in here if matches(wanted, str(one))]:
            if not any(_loads(wanted, one, read_life(here[one], one.name).of(one.version)) for one in there):
                doubts.append(f"warning: {wanted}, which {plan.module} loads, is retired or hidden, and does not load")
            continue
        if _is_on_path(wanted, environ):
            continue
        name = wanted.partition("/")[0]
        others = [str(one) for one in here if one.name == name]
        if (commands := decision.offered[wanted]) or others:
            gone = ModuleName(name, wanted.partition("/")[2])
            lives = (read_life(tree, name).of(gone.version) for tree in trees)
            retired = next((f"; {retirement(gone, life)}" for life in lives if _is_refused(life)), "")
            there_is = f" ({', '.join(others)} is)" if others else ""
            problems.append(f"{wanted} is not installed{there_is}{retired}")
            hints += commands[:_SHOWN]
        else:
            doubts.append(f"warning: {wanted}, which {plan.module} loads, is not in {layout.prefix} or on MODULEPATH")
    if problems:
        hint = "; ".join(hints) or "correct `modules`; `sifmod list` shows what is installed"
        raise ModuleError(f"{plan.module} cannot be installed: {'; '.join(problems)}", hint)
    return tuple(doubts)


def _is_on_path(wanted: str, environ: Mapping[str, str]) -> bool:
    """Whether a directory on MODULEPATH has the module, in this version or one with this prefix."""
    name, _, version = wanted.rpartition("/")
    for directory in filter(None, environ.get("MODULEPATH", "").split(":")):
        try:
            names = os.listdir(f"{directory}/{name}")  # noqa: PTH208 (plain names)
        except OSError:
            continue
        if any(matches(f"/{version}", f"/{file.removesuffix('.lua')}") for file in names):
            return True
    return False
