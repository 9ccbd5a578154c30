"""How much an apply will fetch, the disk space that it needs, and the layers that images share."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.decision import Decision
from sifmod.actions.stack.stack_plan import StackPlan
from sifmod.errors import SifmodError
from sifmod.image.fetch import announced_size
from sifmod.image.oci.image import open_image
from sifmod.image.sources.source_kinds import references
from sifmod.result import Described, Internal, Size
from sifmod.system import scratch_directory
from sifmod.tree.layout import LockRoot
from sifmod.tree.locking import lock
from sifmod.tree.store import Store

_MUCH = 10  # one part in this many


class Fetches(NamedTuple):
    """The images that an apply has to fetch."""

    images: Annotated[int, Described("number of images to fetch")]
    copies: Annotated[int, Described("images to copy from another tree or a bundle")]
    copied: Annotated[Size, Described("bytes of the images to copy")]
    # a layer that several images share counts once
    size: Annotated[Size, Described("bytes to fetch, for images of known size")]
    unknown: Annotated[int, Described("images of unknown size")]
    # kept until the last of the images is converted
    shared_size: Annotated[Size, Described("bytes of layers that several images share")]
    # the images, the shared layers, and what is downloaded at the same time
    room: Annotated[int, Described("bytes that the apply may take on the disk")]
    shared: Internal[Mapping[str, frozenset[str]]]  # of each image, by its request: the digests of layers shared
    together: Internal[tuple[frozenset[str], ...]]  # images, grouped if they share much
    despite: Internal[int]  # images to fetch, without a lock, though the command names other trees


class _ImageQuery(NamedTuple):
    size: int | None
    copied: int  # bytes to copy from another store
    layers: Mapping[str, int]  # digest → bytes, for images to convert


def fetches(plan: StackPlan, jobs: int) -> Fetches:
    """What an apply has to fetch, as the servers answer; without an answer the size is unknown."""
    wanted: dict[str, Decision] = {}
    for step in plan.steps:
        if step.todo and step.todo.image and step.todo.image not in wanted:
            wanted[step.todo.image] = plan.decide(step)
    with scratch_directory() as place, lock(LockRoot(place), "plan", 60, print) as held:
        others = [one for each in wanted.values() for one in (*each.options.stores, *each.site.site.stores)]
        store = Store(plan.layout, held, others=tuple(dict.fromkeys(others)))
        with ThreadPoolExecutor(8) as threads:
            asked = dict(zip(wanted, threads.map(lambda decision: _ask(decision, store), wanted.values()), strict=True))
    times = Counter(digest for one in asked.values() for digest in one.layers)
    shared = {key: frozenset(digest for digest in one.layers if times[digest] > 1) for key, one in asked.items()}
    sizes = {digest: size for one in asked.values() for digest, size in one.layers.items() if times[digest] > 1}
    twice = sum((times[digest] - 1) * size for digest, size in sizes.items())
    known = sorted(one.size for one in asked.values() if one.size is not None)
    copied = [one.copied for one in asked.values() if one.copied]
    return Fetches(
        images=sum(one.size != 0 for one in asked.values()),
        copies=len(copied),
        copied=sum(copied),
        size=sum(known) - twice,
        unknown=len(asked) - len(known),
        shared_size=sum(sizes.values()),
        room=sum(known) + sum(copied) + sum(sizes.values()) + sum(known[-jobs:]),
        shared={key: digests for key, digests in shared.items() if digests},
        together=_together(asked),
        despite=sum(asked[key].size != 0 for key, one in wanted.items() if one.options.stores and not one.locked),
    )


def _together(asked: Mapping[str, _ImageQuery]) -> tuple[frozenset[str], ...]:
    groups: list[frozenset[str]] = []
    for key, one in asked.items():
        mine = [group for group in groups if any(_share_much(one.layers, asked[other].layers) for other in group)]
        groups = [group for group in groups if group not in mine] + [frozenset((key,)).union(*mine)]
    return tuple(groups)


def _share_much(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether sharing saves a tenth or more of the smaller image's download."""
    common = sum(one[digest] for digest in one.keys() & other.keys())
    return 0 < min(sum(one.values()), sum(other.values())) <= _MUCH * common


def _ask(decision: Decision, store: Store) -> _ImageQuery:
    plan, settings, locked = decision.plan, fetch_settings(decision.site.site), decision.locked
    wanted = locked.digest if locked else plan.required_image.sha256
    if wanted and store.find(wanted):
        return _ImageQuery(0, 0, {})
    if wanted and plan.required_image.link != "reference" and (there := store.from_other_store(wanted)):
        return _ImageQuery(0, there[0].stat().st_size, {})
    try:
        size = announced_size(plan.required_image, plan.runtime, store, settings, missing=None)
        reference = next(iter(references(plan.required_image)), None)
        if not size or reference is None or reference.kind.open is None or reference.kind.is_local:
            return _ImageQuery(size, 0, {})
        layers = open_image(reference, plan.required_image.arch, settings).manifest.layers
        return _ImageQuery(size, 0, {layer.digest: layer.size for layer in layers})
    except SifmodError:
        return _ImageQuery(None, 0, {})  # the apply reports the error
