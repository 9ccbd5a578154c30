"""log: who changed what in a tree, and when."""

from collections.abc import Collection
from dataclasses import replace

from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName
from sifmod.errors import SifmodError
from sifmod.tree.generation import module_lock
from sifmod.tree.layer import Layer, Layers
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock, Tree
from sifmod.tree.log import STORE, Done, Log, append, entry, logged_modules, read_log
from sifmod.tree.store import Store


def record(layout: Layout, done: Done, held: HeldLock, reporter: Reporter) -> None:
    """Log a change; `held`: the lock of the module, or that of the store's log.

    A failure to write is only a warning, because the change is already made.

    A run that has lost the lock writes nothing, because others may write now.
    """
    try:
        held.check()
        append(layout, entry(done, reporter.command))
    except OSError as error:
        _warn(f"cannot write {layout.log(done.module)}: {error.strerror or error}", reporter)
    except SifmodError as error:
        _warn(error.short, reporter)


def record_beside(tree: Tree, done: Done, reporter: Reporter) -> None:
    """Like `record`, but takes the lock: the module's, or the log's for a change of the store."""
    try:
        if done.module:
            with module_lock(tree, done.module) as mine:
                record(tree.layout, done, mine.held, reporter)
        else:
            with tree.lock(STORE, "the log") as held:
                record(tree.layout, done, held, reporter)
    except SifmodError as error:
        _warn(error.short, reporter)


def record_layer(layers: Layers, now: Layer | None, before: Layer | None, tree: Tree, reporter: Reporter) -> None:
    """Log that a layer was made or removed, if it is in a prefix that has a log of its module."""
    layer, layout = now or before, Layout(layers.tree)
    if layer and layers.prefix == layers.tree / "layers" and layout.log(layer.module).is_file():
        done = Done("removed", layer.module, before.number if before else None, layer=layer.name)
        if now:
            done = done._replace(what="made", generation=now.number, sha256=now.image, size=now.size)
        record_beside(replace(tree, layout=layout), done, reporter)


def record_fetched(tree: Tree, store: Store, reporter: Reporter) -> None:
    """Log what a fetch added to the store."""
    for image, size in store.brought:
        record_beside(tree, Done("fetched", sha256=image, size=size), reporter)


def changes(layout: Layout, names: Collection[str] = ()) -> Log:
    """The recorded changes of the tree, newest last, and problems; with `names`, only of those modules.

    A name is a module with or without version (`PyTorch`), or the start of one (`PyTorch/2.2`).
    """
    modules, problems = logged_modules(layout)
    meant: dict[str, tuple[ModuleName, ...]] = {}
    for name in names:
        begins = (module for module in modules if "/" in name and str(module).startswith(name))
        meant[name] = tuple(module for module in modules if name in (module.name, str(module))) or tuple(begins)
    wanted = {module for found in meant.values() for module in found}
    logs = [read_log(layout, module) for module in (sorted(wanted) if names else (None, *modules))]
    entries = sorted((one for log in logs for one in log.entries), key=lambda one: one.time)
    unknown = (f"no change of {name} is recorded" for name, found in meant.items() if not found)
    return Log(tuple(entries), (*problems, *(problem for log in logs for problem in log.problems), *unknown))


def _warn(why: str, reporter: Reporter) -> None:
    reporter.warn_once("the log", f"the change was made but not logged: {why}")
