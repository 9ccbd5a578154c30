"""gc: carry out a GcPlan, as far as a second check under the locks agrees."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.garbage import DAYS, Candidate, GcPlan, OldGeneration, old_generations, plan_gc
from sifmod.actions.image_marks import release
from sifmod.actions.log import record, record_beside
from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.tree.durable import take
from sifmod.tree.explain import reported
from sifmod.tree.generation import module_lock, tidy, tidy_all_nodes, tidy_place, unpublish
from sifmod.tree.layer import layers_in
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock, Tree
from sifmod.tree.log import Done
from sifmod.tree.mark import forget
from sifmod.tree.old_layer import OldLayer, remove_layers
from sifmod.tree.partial import Partial, discard_partial, lock_name
from sifmod.tree.receipt import live_number, numbers, read_receipt
from sifmod.tree.removal import prune, remove_tree
from sifmod.tree.stack_record import locked_images
from sifmod.tree.store import GC, discard
from sifmod.tree.stored_image import StoredImage, entries

if TYPE_CHECKING:
    from sifmod.actions.disk_usage import DiskUsage


class Collected(NamedTuple):
    """What a gc removed, and the size of its images, downloads and layers."""

    generations: tuple[OldGeneration, ...]
    images: tuple[StoredImage, ...]
    partials: tuple[Partial, ...]
    size: int  # bytes
    layers: tuple[OldLayer, ...] = ()


def candidates(plan: GcPlan, rooms: Iterable["DiskUsage"] = ()) -> list[Candidate]:
    """A row for each thing in the plan, not yet removed, and for each of `rooms`, which other commands remove."""
    rows = [Candidate("generation", old.root, old.keep, None, old.module, old.number) for old in plan.generations]
    rows += [Candidate("image", old.image.path, old.keep, old.image.size) for old in plan.images]
    rows += [Candidate("download", old.partial.path, old.keep, old.partial.size) for old in plan.partials]
    rows += [Candidate("layer", old.root, old.keep, old.size) for old in plan.layers]
    return rows + [*plan.stays] + [Candidate(room.kind, room.path, room.way_out, room.size) for room in rooms]


@dataclass(frozen=True)
class GcRequest:
    """What gc may remove, and whether it removes anything."""

    days: float = DAYS
    rollbacks: bool = False  # also the generations that `rollback` would restore
    marks: bool = True  # a mark of another tree keeps an image, as long as the site says
    ask_jobs: bool = True  # ask Slurm for jobs, which may use what would go
    rooms: bool = False  # this user's caches and temporary files are listed too
    remove: bool = False  # False: only the plan is made


class Garbage(NamedTuple):
    """The plan of a gc, and what was removed."""

    plan: GcPlan
    rooms: tuple["DiskUsage", ...] = ()
    removed: Collected | None = None  # None: the request was not to remove anything

    @property
    def rows(self) -> list[Candidate]:
        """A row for each thing that was looked at."""
        rows = candidates(self.plan, self.rooms)
        if not self.removed:
            return rows
        return [replace(row, removed=not row.keep and not os.path.lexists(row.path)) for row in rows]


def collect_garbage(
    request: GcRequest, site: Site, reporter: Reporter, begin: Callable[[Garbage], None] = lambda _: None
) -> Garbage:
    """Find what is no longer used, and remove it if requested; `begin` receives the plan before that.

    Before a removal it cleans up after dead runs, on other nodes too, since they keep images. Raises what `plan_gc` and
    `apply_gc` raise.
    """
    if request.remove:
        with changing_prefix(site):
            tidy_all_nodes(tree := reporter.tree(site))
            tidy_place(tree, layers_in(tree.layout))
    plan = plan_gc(
        Layout(site.prefix),
        request.days,
        ask_jobs=request.ask_jobs,
        rollbacks=request.rollbacks,
        mark_days=site.mark_days if request.marks else 0.0,
    )
    rooms: tuple[DiskUsage, ...] = ()
    if request.rooms:
        from sifmod.actions.disk_usage import disk_usage as rooms_of  # only imported when needed

        rooms = rooms_of(site)
    found = Garbage(plan, rooms)
    begin(found)
    if not request.remove:
        return found
    with changing_prefix(site):
        return found._replace(removed=apply_gc(reporter.tree(site), plan, reporter))


def apply_gc(tree: Tree, plan: GcPlan, reporter: Reporter) -> Collected:
    """Carry out `plan`, as far as a second check under the locks agrees. Idempotent.

    If it is killed, each generation and image is either complete or gone.
    """
    layout = tree.layout
    tidy(tree)
    wanted = {generation.root for generation in plan.generations if not generation.keep}
    removed: list[OldGeneration] = []
    receipts = [read_receipt(root) for root in wanted]
    for module in sorted({generation.module for generation in plan.generations if not generation.keep} | {*plan.empty}):
        with module_lock(tree, module) as mine:
            for old in old_generations(layout, module, (plan.jobs, plan.days, plan.rollbacks)):
                if not old.keep and old.root in wanted:
                    if old.number == live_number(layout, module):  # of a retired module
                        unpublish(mine, retired=True)
                        record(layout, Done("uninstalled", module, old.number), mine.held, reporter)
                    _remove_generation(layout, old, mine.held)
                    record(layout, Done("removed", module, old.number), mine.held, reporter)
                    removed.append(old)
            _remove_history(layout, module, mine.held)
    release(layout, [known.image for known in receipts if known])
    going = [old.image for old in plan.images if not old.keep]
    images = []
    if going:
        with tree.lock(GC, "the tree") as held:
            with reported("cannot read the locks"):
                named = locked_images(layout)  # also by a lock that was written meanwhile
            for image in going:
                if image.sha256 not in named and discard(layout, image, held, plan.mark_days):
                    images.append(image)
                    done = Done("removed", sha256=image.sha256, size=image.size)
                    record_beside(tree, done, reporter)
    forget(layout, {image.sha256 for image in entries(layout)})
    gone = []
    for partial in (old.partial for old in plan.partials if not old.keep):
        with tree.lock(lock_name(partial.key), "the tree") as held:
            if discard_partial(layout, partial, held):
                gone.append(partial)
                record_beside(tree, Done("removed", size=partial.size), reporter)
    layers = remove_layers(tree, [old for old in plan.layers if not old.keep])
    size = sum(image.size for image in images) + sum(partial.size for partial in gone) + sum(old.size for old in layers)
    return Collected(tuple(removed), tuple(images), tuple(gone), size, tuple(layers))


def _remove_generation(layout: Layout, old: OldGeneration, held: HeldLock) -> None:
    with held.changing(f"cannot remove {old.root}"):
        gone = held.path("collected")
        held.check()
        take(old.root, gone, layout.prefix)
        remove_tree(gone, layout.prefix)
        prune(old.root.parent, layout.prefix)


def _remove_history(layout: Layout, module: ModuleName, held: HeldLock) -> None:
    """Remove the history of a module that is not installed and has no generations."""
    history = layout.history(module)
    if live_number(layout, module) is None and not numbers(layout, module) and history.exists():
        with held.changing(f"cannot remove {history}"):
            take(history, held.path("collected"), layout.prefix)
            prune(history.parent, layout.prefix)
