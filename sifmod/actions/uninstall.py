"""uninstall: a module out of sight; its files stay until gc, the user's own for ever."""

import os
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from sifmod.actions.garbage import GcPlan, plan_gc
from sifmod.actions.gc import Collected, apply_gc
from sifmod.actions.life import forget_life
from sifmod.actions.log import record
from sifmod.actions.references import release
from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import InstallError, ModuleError, SifmodError
from sifmod.tree.generation import module_lock, tidy, unpublish
from sifmod.tree.history import recorded
from sifmod.tree.kernelspec import kernels_directory, our_kernelspecs
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done
from sifmod.tree.receipt import live_number, read_receipt, views_of


class Uninstalled(NamedTuple):
    """What was taken out of sight, and what is left."""

    module: ModuleName
    generation: int | None  # the one that was live; None: another run has uninstalled it, and gc has not come yet
    user_software: str | None  # the directory that holds the user's own additions, when there are any
    user_layers: str | None  # the same of layers
    default: bool  # it was what its name alone loads
    views: tuple[ModuleName, ...]  # those that load it, and have nothing to load in its place
    kernels: tuple[str, ...]  # the commands that remove those of this user's Jupyter, which start no more


def uninstall(tree: Tree, module: ModuleName, reporter: Reporter) -> Uninstalled:
    """Remove the modulefiles and the switch of `module`; what is loaded in shells and jobs goes on working.

    The generations stay for `rollback` and `gc`. Killed on the way, the module is there or not, and the next run
    completes it. Idempotent until `gc` has removed the last generation; then, and for a module that never was here,
    ModuleError. Raises InstallError when the modulefile was changed by hand.
    """
    layout = tree.layout
    tidy(tree)
    _check(layout, module)
    with module_lock(tree, module) as mine:
        _check(layout, module)
        before = next((event.generation for event in recorded(layout, module)[-1:]), live_number(layout, module))
        unpublish(mine)
        if before is not None:  # the live one, or that of a run that died on the way
            record(layout, Done("uninstalled", module, before), mine.held, reporter)
            if known := read_receipt(layout.generation(module, before)):
                release(layout, (known.image,), live_only=True)
    default = forget_life(tree, module, reporter)
    stays = (layout.user_software(module), layout.prefix / "layers" / str(module))
    user_software, layers = (str(place) if place.exists() else None for place in stays)
    kernels: tuple[str, ...] = ()
    with suppress(OSError):  # the module is out of sight, whatever can be seen of them
        kernels = tuple(one.removal for one in our_kernelspecs(kernels_directory(os.environ)) if one.module == module)
    return Uninstalled(module, before, user_software, layers, default, views_of(layout, module), kernels)


def purge(
    layout: Layout, modules: Collection[ModuleName], site: Site, reporter: Reporter, *, ask_jobs: bool
) -> tuple[GcPlan, Collected]:
    """Free the space of uninstalled modules at once, as far as nothing else uses it: what stays and why, what went.

    What `gc` keeps for its age goes; what a Slurm job may use and what the user added or changed stays.
    """
    tree = reporter.tree(site)
    plan = plan_gc(layout, 0.0, ask_jobs=ask_jobs, rollbacks=True, only=modules, mark_days=site.mark_days)
    receipts = (read_receipt(old.root) for old in plan.generations)
    digests = {receipt.image.sha256 for receipt in receipts if receipt and receipt.image}
    plan = plan._replace(
        images=tuple(old for old in plan.images if old.image.sha256 in digests),
        used=tuple(used for used in plan.used if used.path.stem in digests),
        partials=(),
        layers=(),
        closed=(),
    )
    try:
        collected = apply_gc(tree, plan, reporter)
    except InstallError as error:  # a second purge does not know a module of which only the image is left
        raise type(error)(
            error.message, f"`sifmod gc --now` frees what is left{error.hint and f'; {error.hint}'}"
        ) from error
    with suppress(SifmodError, OSError):  # what the disk has just refused to remove; a second purge would not get here
        tidy(tree)
    return plan, collected


def _check(layout: Layout, module: ModuleName) -> None:
    if live_number(layout, module) is None and not layout.history(module).exists():
        raise ModuleError(f"{module} is not installed in {layout.prefix}", "`sifmod list` shows what is")
