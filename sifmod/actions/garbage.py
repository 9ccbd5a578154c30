"""What gc can remove: old generations and layers, unused images, abandoned downloads; and why the rest stays."""

import time
from collections.abc import Collection, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.slurm import NO_JOBS, Jobs, ask_slurm
from sifmod.config.name import ModuleName
from sifmod.config.site import MARK_DAYS
from sifmod.errors import InstallError
from sifmod.result import Described, Number, OrNull, Size
from sifmod.system import abbreviated, size_text
from sifmod.tree.durable import is_directory
from sifmod.tree.history import held_since, previous, read_history, superseded
from sifmod.tree.layout import Layout
from sifmod.tree.life import begins, read_life
from sifmod.tree.locking import closed_remains, is_held, left_over
from sifmod.tree.mark import in_force
from sifmod.tree.old_layer import OldLayer, old_layers
from sifmod.tree.partial import Partial, lock_name, partials
from sifmod.tree.receipt import Installation, known_modules, live, live_number, numbers, read_receipt
from sifmod.tree.removal import detachable, removable
from sifmod.tree.stack_record import locked_images
from sifmod.tree.state import changes, only_in
from sifmod.tree.store import foreign_files, pinned
from sifmod.tree.stored_image import StoredImage, entries, used_images

DAYS = 14.0
_DAY = 86400.0
_NAMED = 3  # users of an image
Rules = tuple[Jobs, float, bool]  # the jobs that count, days to keep, whether rollback targets may go


@dataclass(frozen=True)
class Candidate:
    """One thing that `gc` looked at: what it is, and why it stays."""

    kind: Literal["generation", "image", "download", "layer", "remains of a run", "cache", "temporary files"]
    path: Path
    keep: Annotated[OrNull[str], Described("reason to keep the path; null: gc removes it")]
    size: Annotated[Size | None, Described("bytes; of an image, a download, a layer, a cache or temporary files")] = (
        None
    )
    module: Annotated[ModuleName | None, Described("the module of a generation")] = None
    generation: Number | None = None
    removed: Annotated[bool, Described("whether this run removed it")] = False

    @property
    def text(self) -> str:
        """The module and generation, or the kind and size."""
        if self.module:
            return f"{self.module} generation {self.generation}"
        return self.kind if self.size is None else f"{self.kind} {size_text(self.size)}"


class OldGeneration(NamedTuple):
    """A generation that is not live, or of a retired module. `keep`: the reason to keep it; empty: gc removes it."""

    module: ModuleName
    number: int
    root: Path
    keep: str


class OldImage(NamedTuple):
    """An image that no remaining generation uses. `keep` is the reason to keep it; empty: gc removes it."""

    image: StoredImage
    keep: str


class OldPartial(NamedTuple):
    """An unfinished download. `keep` is the reason to keep it; empty: gc removes it."""

    partial: Partial
    keep: str


class GcPlan(NamedTuple):
    """The plan of a gc: old generations and layers, downloads and images, each with the reason to keep it, if any."""

    generations: tuple[OldGeneration, ...]
    images: tuple[OldImage, ...]
    stays: tuple[Candidate, ...]  # what no gc by this user removes: used images, and closed remains of others' runs
    empty: tuple[ModuleName, ...]  # uninstalled or retired modules that will only have a history left
    partials: tuple[OldPartial, ...]
    layers: tuple[OldLayer, ...]
    jobs: Jobs
    days: float
    rollbacks: bool
    mark_days: float = MARK_DAYS  # days for which a mark keeps an image

    @property
    def size(self) -> int:
        """Bytes of the images, downloads and layers to remove."""
        images = sum(old.image.size for old in self.images if not old.keep)
        layers = sum(old.size for old in self.layers if not old.keep)
        return images + layers + sum(old.partial.size for old in self.partials if not old.keep)


def plan_gc(
    layout: Layout,
    days: float = DAYS,
    *,
    ask_jobs: bool = True,
    rollbacks: bool = False,
    only: Collection[ModuleName] | None = None,
    mark_days: float = MARK_DAYS,
) -> GcPlan:
    """Decide what can be removed; changes nothing.

    A generation stays while it is live, held or the rollback target (unless `rollbacks`; of a retired module only a
    held one), for `days` after it was replaced or uninstalled, while Slurm has a job from before that time or cannot be
    asked, and while it has added or changed files that the live generation lacks. For a retired module the days count
    from the day on which it stopped loading. An image stays while a remaining generation links to it or a run works
    with it; if no generation's receipt names it, for `days`; if a module in a user's own tree refers to it, for
    `mark_days`; if a stack's lock names it, until the lock is forgotten. Without `ask_jobs` no job counts. `only`: keep
    the generations of all other modules.
    """
    jobs = ask_slurm(layout.prefix) if ask_jobs else NO_JOBS
    generations: list[OldGeneration] = []
    empty = []
    for module in known_modules(layout) if only is None else sorted(only):
        old = old_generations(layout, module, (jobs, days, rollbacks))
        generations += old
        ends = live_number(layout, module) is None or retired_since(layout, module) is not None
        if ends and not any(generation.keep for generation in old):
            empty.append(module)
    going = {generation.root for generation in generations if not generation.keep}
    users, named = _users(layout, going)
    images = tuple(_old_images(layout, users, named, (jobs, days, rollbacks), mark_days))
    return GcPlan(
        tuple(generations),
        images,
        tuple(_staying(layout, users)),
        tuple(empty),
        tuple(_old_partials(layout, days)),
        tuple(old_layers(layout, lambda since: _too_young(since, jobs, days))),
        jobs,
        days,
        rollbacks,
        mark_days,
    )


def old_generations(layout: Layout, module: ModuleName, rules: Rules) -> list[OldGeneration]:
    """Every generation of the module that is not live, or every one if the module is retired, oldest first."""
    now = None if retired_since(layout, module) else live_number(layout, module)
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
        return "its receipt is missing or cannot be read"
    retired = retired_since(layout, module)
    installed = live_number(layout, module) is not None and not retired
    held = number in held_since(events)
    if installed and not (rollbacks or held) and previous(events, numbers(layout, module)) == number:
        return "`sifmod rollback` would restore it"
    comes_back = retired or any(event.retired for event in events[-1:])
    if (installed or comes_back) and held:
        return f"it is held, until `sifmod rollback --release {module}` releases it"
    since = min(filter(None, (superseded(events, number), retired)), default=None)
    if since is None and number not in {event.generation for event in events} and is_held(layout, str(module)):
        return "another run is creating it"
    if since is None:
        return "it is not known when it went out of use"
    return _too_young(since, jobs, days) or _holds_others_files(layout, installation, retired is not None)


def retired_since(layout: Layout, module: ModuleName) -> float | None:
    """When the module stopped loading (seconds since 1970); None while it loads, or if that cannot be read.

    A retirement day may lie before the decision: then the file that refuses the load gives the time.
    """
    try:
        day = read_life(layout, module.name).of(module.version).refused_from
        written = (layout.lives(module.name) / module.version).lstat().st_mtime if day else 0.0
    except (InstallError, FileNotFoundError):  # then keep everything
        return None
    since = max(begins(day), written) if day else None
    return since if since and since <= time.time() else None


def _too_young(since: float, jobs: Jobs, days: float) -> str:
    if days and time.time() - since < days * _DAY:  # without days also what a clock that is ahead has dated
        return f"out of use since {_date(since)}, kept for {days:g} days"
    if jobs.unknown:
        return f"it may be in use by a job: {jobs.unknown}"
    if jobs.earliest is not None and jobs.earliest < since:
        return f"it may be in use by a job submitted {_date(jobs.earliest)}, before it went out of use"
    return ""


def _holds_others_files(layout: Layout, installation: Installation, retired: bool) -> str:
    try:
        added = only_in(installation, None if retired else live(layout, installation.module))
        changed = changes(installation)
        closed = not removable(Path(installation.root))
        Path(installation.root).lstat()  # raises if another run has removed the files, which also looks unchanged
    except OSError as error:
        return f"it cannot be read: {error}"
    if closed:
        return "it has directories of another user that you cannot read"
    if added:
        return f"it holds files that sifmod did not write: {', '.join(added[:5])}"
    if changed:
        return f"files in it were changed by hand: {', '.join(changed[:5])}"
    return ""


def _users(layout: Layout, going: set[Path]) -> tuple[dict[str, list[str]], set[str]]:
    """The users of each image, by its digest, and the digests that their receipts name.

    Users are the generations that stay; a live one is named by its module alone.
    """
    users: dict[str, list[str]] = {}
    named: set[str] = set()
    for module in known_modules(layout):
        now = live_number(layout, module)
        for number in numbers(layout, module):
            if (root := layout.generation(module, number)) not in going:
                for sha256 in used_images(root):
                    name = str(module) if number == now else f"{module} generation {number}"
                    users.setdefault(sha256, []).append(name)
                if (found := read_receipt(root)) and found.image:
                    named.add(found.image.sha256)
    return users, named


def _staying(layout: Layout, users: dict[str, list[str]]) -> Iterator[Candidate]:
    for image in entries(layout):
        if names := users.get(image.sha256):
            yield Candidate("image", image.path, f"used by {abbreviated(names, _NAMED)}", image.size)
    for path in foreign_files(layout):
        with suppress(FileNotFoundError):  # another gc has removed it and its receipt
            yield Candidate("image", path, "sifmod did not store it", path.lstat().st_size)
    for path in closed_remains(layout):
        yield Candidate("remains of a run", path, "another user's, and closed to you")


def _old_images(
    layout: Layout, users: Container[str], named: Container[str], rules: Rules, mark_days: float
) -> Iterator[OldImage]:
    jobs, days, _ = rules
    busy = pinned(layout, left_over(layout))
    unused = [image for image in entries(layout) if image.sha256 not in users]
    elsewhere = _used_elsewhere(layout, {image.sha256 for image in unused}, mark_days)
    for image in unused:
        keep = "another run is using it" if image.sha256 in busy else ""
        # an image that only a receipt names goes at once: its user removed the link; others may be for a later install
        if not keep and image.sha256 not in named:
            keep = _too_young(image.added, jobs, days)
        yield OldImage(image, keep or elsewhere.get(image.sha256, ""))


def _used_elsewhere(layout: Layout, images: set[str], days: float) -> dict[str, str]:
    """Reasons to keep images that no module here uses: a stack's lock names them, or users' trees refer to them."""
    why: dict[str, str] = {}
    try:
        for sha256, stacks in locked_images(layout).items():
            why[sha256] = f"the lock of {abbreviated(stacks, _NAMED)} names it, until `sifmod stack lock --forget`"
    except OSError as error:
        why |= dict.fromkeys(images, f"the locks cannot be read: {error}")
    try:
        for sha256, marks in in_force(layout, images, days).items():
            if who := abbreviated([f"{mark.user} (seen {_date(mark.since)})" for mark in marks], _NAMED):
                why[sha256] = f"used from trees of {who}, kept for {days:g} days after that"
    except OSError as error:
        why |= dict.fromkeys(images, f"the marks of its users cannot be read: {error}")
    return why


def _old_partials(layout: Layout, days: float) -> Iterator[OldPartial]:
    for partial in partials(layout):
        young = days > 0 and time.time() - partial.changed < days * _DAY
        keep = f"a fetch can resume it; written {_date(partial.changed)}, kept for {days:g} days" if young else ""
        if is_held(layout, lock_name(partial.key)):
            keep = "another run is using it"
        if not keep and not is_directory(partial.path):
            keep = "sifmod did not write it"
        if not keep and not _can_go(partial.path):
            keep = "only another user can remove it"
        yield OldPartial(partial, keep)


def _can_go(path: Path) -> bool:
    try:
        return detachable(path) and removable(path)
    except OSError:  # another run removes it
        return False


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
