"""gc: remove old generations, images that nothing uses, and downloads that were given up; decided first, then done."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.tree.addition import changes, only_in
from sifmod.tree.disk import prune, removable, remove_tree, take
from sifmod.tree.generation import module_lock, tidy
from sifmod.tree.history import previous, read_history, superseded
from sifmod.tree.jobs import NO_JOBS, Jobs, ask_slurm
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held, lock
from sifmod.tree.partial import Partial, discard_partial, lock_name, partials
from sifmod.tree.receipt import Installation, known_modules, live, live_number, numbers, read_receipt
from sifmod.tree.store import GC, discard, entries
from sifmod.tree.stored_image import StoredImage
from sifmod.tree.use import used_images

DAYS = 14.0
_DAY = 86400.0
Rules = tuple[Jobs, float, bool]  # the jobs that count, days to keep for, whether what `rollback` goes back to may go


class OldGeneration(NamedTuple):
    """A generation that is not live. `keep` says why it stays; empty: it goes."""

    module: ModuleName
    number: int
    root: Path
    keep: str


class OldImage(NamedTuple):
    """An image that no generation which stays uses. `keep` says why it stays; empty: it goes."""

    image: StoredImage
    keep: str


class OldPartial(NamedTuple):
    """A download that did not come to its end. `keep` says why it stays; empty: it goes."""

    partial: Partial
    keep: str


class GcPlan(NamedTuple):
    """What a gc would do: everything that is not in use, with the reason to keep it or none."""

    generations: tuple[OldGeneration, ...]
    images: tuple[OldImage, ...]
    empty: tuple[ModuleName, ...]  # uninstalled modules of which only the history will be left
    partials: tuple[OldPartial, ...]
    jobs: Jobs
    days: float
    rollbacks: bool

    @property
    def size(self) -> int:
        """Bytes of the images and the downloads that go."""
        images = sum(old.image.size for old in self.images if not old.keep)
        return images + sum(old.partial.size for old in self.partials if not old.keep)


class Collected(NamedTuple):
    """What a gc did."""

    generations: tuple[OldGeneration, ...]
    images: tuple[StoredImage, ...]
    partials: tuple[Partial, ...]
    size: int  # bytes


def plan_gc(layout: Layout, days: float = DAYS, *, ask_jobs: bool = True, rollbacks: bool = False) -> GcPlan:
    """Decide what can go, and change nothing.

    A generation stays while it is live or the one to roll back to (but with `rollbacks`), for `days` after another took
    its place or the module was uninstalled, while a Slurm job submitted before that is known or Slurm cannot be asked,
    and while it holds anything that its receipt does not name or that was changed, unless the live generation has the
    same. Images stay as long as any generation that stays links to them; one that no receipt names, for `days`. Without
    `ask_jobs` no job counts.
    """
    jobs = ask_slurm(layout.prefix) if ask_jobs else NO_JOBS
    generations: list[OldGeneration] = []
    empty = []
    for module in known_modules(layout):
        old = _old_generations(layout, module, (jobs, days, rollbacks))
        generations += old
        if live_number(layout, module) is None and not any(generation.keep for generation in old):
            empty.append(module)
    going = {generation.root for generation in generations if not generation.keep}
    images = tuple(_old_images(layout, going, jobs, days))
    return GcPlan(tuple(generations), images, tuple(empty), tuple(_old_partials(layout, days)), jobs, days, rollbacks)


def apply_gc(layout: Layout, plan: GcPlan, lease: float, on_wait: Callable[[str], None]) -> Collected:
    """Remove what `plan` says, as far as a second look under the locks agrees. Idempotent.

    Killed on the way, a generation or an image is there whole or not at all.
    """
    tidy(layout, lease, on_wait)
    wanted = {generation.root for generation in plan.generations if not generation.keep}
    removed: list[OldGeneration] = []
    for module in sorted({generation.module for generation in plan.generations if not generation.keep} | {*plan.empty}):
        with module_lock(layout, module, lease, on_wait) as held:
            for old in _old_generations(layout, module, (plan.jobs, plan.days, plan.rollbacks)):
                if not old.keep and old.root in wanted:
                    _remove_generation(layout, old, held)
                    removed.append(old)
            _remove_history(layout, module, held)
    going = [old.image for old in plan.images if not old.keep]
    images = []
    if going:
        with lock(layout, GC, lease, on_wait) as held:
            images = [image for image in going if discard(layout, image, held)]
    gone = []
    for partial in (old.partial for old in plan.partials if not old.keep):
        with lock(layout, lock_name(partial.key), lease, on_wait) as held:
            gone += [partial] if discard_partial(layout, partial, held) else []
    size = sum(image.size for image in images) + sum(partial.size for partial in gone)
    return Collected(tuple(removed), tuple(images), tuple(gone), size)


def _old_generations(layout: Layout, module: ModuleName, rules: Rules) -> list[OldGeneration]:
    now = live_number(layout, module)
    old = []
    for number in numbers(layout, module):
        if number != now:
            root = layout.generation(module, number)
            old.append(OldGeneration(module, number, root, _why_keep(layout, module, number, rules)))
    return old


def _why_keep(layout: Layout, module: ModuleName, number: int, rules: Rules) -> str:
    jobs, days, rollbacks = rules
    events = read_history(layout, module)
    installation = read_receipt(layout.generation(module, number))
    if installation is None:
        return "it has no receipt that can be read"
    installed = live_number(layout, module) is not None
    if installed and not rollbacks and previous(events, numbers(layout, module)) == number:
        return "`sifmod rollback` goes back to it"
    since = superseded(events, number)
    if since is None:
        return "it is not known since when it is not in use"
    return _too_young(since, jobs, days) or _holds_others_files(layout, installation)


def _too_young(since: float, jobs: Jobs, days: float) -> str:
    if time.time() - since < days * _DAY:
        return f"out of use since {_date(since)}, kept for {days:g} days"
    if jobs.unknown:
        return f"it may be in use by a job: {jobs.unknown}"
    if jobs.earliest is not None and jobs.earliest < since:
        return f"it may be in use by a job submitted {_date(jobs.earliest)}, before another took its place"
    return ""


def _holds_others_files(layout: Layout, installation: Installation) -> str:
    try:
        added = only_in(installation, live(layout, installation.module))
        changed = changes(installation)
    except OSError as error:
        return f"it cannot be looked through: {error}"
    if not removable(Path(installation.root)):
        return "another user's directories in it are closed to you"
    if added:
        return f"it holds files that sifmod did not put there: {', '.join(added[:5])}"
    if changed:
        return f"files in it were changed by hand: {', '.join(changed[:5])}"
    return ""


def _old_images(layout: Layout, going: set[Path], jobs: Jobs, days: float) -> Iterator[OldImage]:
    roots = [root for root in _roots(layout) if root not in going]
    used = {sha256 for root in roots for sha256 in used_images(root)}
    released = {found.image.sha256 for root in roots if (found := read_receipt(root))}
    for image in entries(layout):
        if image.sha256 not in used:
            # Whoever removed the link of an installed module gave the image up; any other may be an install to come.
            yield OldImage(image, "" if image.sha256 in released else _too_young(image.added, jobs, days))


def _old_partials(layout: Layout, days: float) -> Iterator[OldPartial]:
    for partial in partials(layout):
        young = time.time() - partial.changed < days * _DAY
        keep = f"a fetch can go on with it; written {_date(partial.changed)}, kept for {days:g} days" if young else ""
        if not keep and not os.access(partial.path, os.W_OK | os.X_OK):
            keep = "it is another user's, and closed to others"
        yield OldPartial(partial, keep)


def _roots(layout: Layout) -> Iterator[Path]:
    for module in known_modules(layout):
        yield from (layout.generation(module, number) for number in numbers(layout, module))


def _remove_generation(layout: Layout, old: OldGeneration, held: Held) -> None:
    with held.changing(f"cannot remove {old.root}"):
        gone = held.path("collected")
        held.check()
        take(old.root, gone, layout.prefix)
        remove_tree(gone, layout.prefix)
        prune(old.root.parent, layout.prefix)


def _remove_history(layout: Layout, module: ModuleName, held: Held) -> None:
    """Remove what is left of a module that is not installed and has no generation any more."""
    history = layout.history(module)
    if live_number(layout, module) is None and not numbers(layout, module) and history.exists():
        with held.changing(f"cannot remove {history}"):
            take(history, held.path("collected"), layout.prefix)
            prune(history.parent, layout.prefix)


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
