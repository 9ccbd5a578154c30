"""uninstall: remove a module from view; its files stay until gc, the user's own files for good."""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.garbage import Candidate, plan_gc
from sifmod.actions.gc import Garbage, apply_gc
from sifmod.actions.image_marks import release
from sifmod.actions.life import forget_life
from sifmod.actions.list import HeldGeneration
from sifmod.actions.log import record
from sifmod.actions.reporter import Reporter
from sifmod.actions.start import resolve_own
from sifmod.actions.view_modules import broken_views
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import Error, InstallError, ModuleError, SifmodError, as_result, error_of
from sifmod.result import Beside, Described, Internal, Number, PathText
from sifmod.tree.generation import module_lock, tidy, unpublish
from sifmod.tree.history import held_since, in_utc, read_history, recorded
from sifmod.tree.kernelspec import kernels_directory, our_kernelspecs
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done
from sifmod.tree.receipt import known_modules, live_number, read_receipt


class Uninstalled(NamedTuple):
    """A module that was uninstalled."""

    module: ModuleName
    generation: Annotated[Number | None, Described("the generation that was live; null: none was")]
    user_software: Annotated[PathText | None, Described("path of the user's own files, which stay")]
    user_layers: Annotated[PathText | None, Described("directory of the module's layers, which stay")]
    default: Annotated[bool, Described("whether the module was the default for its name")]
    views: Annotated[tuple[ModuleName, ...], Described("views that load the module, and no longer load")]
    kernels: Annotated[tuple[str, ...], Described("commands that remove the module's kernels from Jupyter")]
    held: Annotated[tuple[HeldGeneration, ...], Described("what a rollback holds, until its files are removed")]


class NotUninstalled(NamedTuple):
    """A module that could not be uninstalled."""

    module: ModuleName
    error: Beside[Error]


@dataclass(frozen=True)
class UninstallRequest:
    """The modules to uninstall."""

    names: tuple[str, ...]  # each in full, or its beginning
    purge: bool = False  # free their space at once
    ask_jobs: bool = True  # ask Slurm for jobs, which may use what would be freed


class Uninstalls(NamedTuple):
    """The result of `uninstall_modules`."""

    uninstalled: tuple[Uninstalled | NotUninstalled, ...]
    freed: Internal[Garbage | None]  # None without `purge`, or if no module was uninstalled

    @property
    def purged(
        self,
    ) -> Annotated[tuple[Candidate, ...], Described("with --purge: the files that were considered for removal")]:
        return tuple(self.freed.rows) if self.freed else ()


def uninstall_modules(
    request: UninstallRequest,
    site: Site,
    reporter: Reporter,
    ended: Callable[[Uninstalled | NotUninstalled], None] = lambda _: None,
) -> Uninstalls:
    """Uninstall each module, even if others fail; with `purge` then free their space.

    `ended` receives the result of each. Raises ModuleError if a name matches no module or several, and for `purge`
    what `apply_gc` raises. Idempotent like `uninstall`.
    """
    layout = Layout(site.prefix)
    known = known_modules(layout)
    rows: list[Uninstalled | NotUninstalled] = []
    for module in [resolve_own(name, known, site) for name in request.names]:
        try:
            rows.append(_uninstalled(module, site, reporter))
        except (SifmodError, OSError) as error:
            rows.append(NotUninstalled(module, as_result(error_of(error))))
        ended(rows[-1])
    gone = [row.module for row in rows if isinstance(row, Uninstalled)]
    freed = None
    if request.purge and gone:
        with changing_prefix(site):
            freed = _purge(layout, gone, site, reporter, ask_jobs=request.ask_jobs)
    return Uninstalls(tuple(rows), freed)


def uninstall_module(name: str, site: Site, reporter: Reporter) -> Uninstalled:
    """Uninstall one module, named in full or by its beginning. Raises what `uninstall` raises."""
    return _uninstalled(resolve_own(name, known_modules(Layout(site.prefix)), site), site, reporter)


def _uninstalled(module: ModuleName, site: Site, reporter: Reporter) -> Uninstalled:
    with changing_prefix(site):
        return uninstall(reporter.tree(site), module, reporter)


def uninstall(tree: Tree, module: ModuleName, reporter: Reporter) -> Uninstalled:
    """Remove the modulefiles and the switch of `module`; shells and jobs that have it loaded keep working.

    The generations stay for `rollback` and `gc`. After a kill the module is there or not, and the next run completes
    it. Idempotent until `gc` has removed the last generation; after that, and for an unknown module, raises
    ModuleError. Raises InstallError if the modulefile was edited, PermissionsError.
    """
    layout = tree.layout
    tidy(tree)
    _check(layout, module)
    with module_lock(tree, module) as mine:
        _check(layout, module)
        events = read_history(layout, module)
        held = tuple(HeldGeneration(number, in_utc(since)) for number, since in held_since(events).items())
        before = next((event.generation for event in recorded(layout, module)[-1:]), live_number(layout, module))
        unpublish(mine)
        if before is not None:  # the live generation, or the one whose uninstall was killed
            record(layout, Done("uninstalled", module, before), mine.held, reporter)
            if known := read_receipt(layout.generation(module, before)):
                release(layout, (known.image,), live_only=True)
    default = forget_life(tree, module, reporter)
    stays = (layout.user_software(module), layout.prefix / "layers" / str(module))
    user_software, layers = (str(place) if os.path.exists(place) else None for place in stays)  # noqa: PTH110 (closed)
    kernels: tuple[str, ...] = ()
    with suppress(OSError):  # the module is already gone, even if these cannot be read
        kernels = tuple(one.removal for one in our_kernelspecs(kernels_directory(os.environ)) if one.module == module)
    return Uninstalled(module, before, user_software, layers, default, broken_views(layout, module), kernels, held)


def _purge(
    layout: Layout, modules: Collection[ModuleName], site: Site, reporter: Reporter, *, ask_jobs: bool
) -> Garbage:
    """Free the space of uninstalled modules unless it is in use; returns what stays and why, and what was removed.

    The age limit of `gc` does not apply; files that a Slurm job may use and users' changes stay.
    """
    tree = reporter.tree(site)
    plan = plan_gc(layout, 0.0, ask_jobs=ask_jobs, rollbacks=True, only=modules, mark_days=site.mark_days)
    receipts = (read_receipt(old.root) for old in plan.generations)
    digests = {receipt.image.sha256 for receipt in receipts if receipt and receipt.image}
    plan = plan._replace(
        images=tuple(old for old in plan.images if old.image.sha256 in digests),
        stays=tuple(one for one in plan.stays if one.path.stem in digests),
        partials=(),
        layers=(),
    )
    try:
        collected = apply_gc(tree, plan, reporter)
    except InstallError as error:  # a second purge does not know a module that only has an image left
        raise type(error)(
            error.message, f"`sifmod gc --now --yes` frees the rest{error.hint and f'; {error.hint}'}"
        ) from error
    with suppress(SifmodError, OSError):  # files that could not be removed; a second purge would not reach this
        tidy(tree)
    return Garbage(plan, removed=collected)


def _check(layout: Layout, module: ModuleName) -> None:
    if live_number(layout, module) is None and not layout.history(module).exists():
        raise ModuleError(f"{module} is not installed in {layout.prefix}", "`sifmod list` shows what is installed")
    read_life(layout, module.name)  # which `forget_life` changes: refuse an invalid one before anything is removed
