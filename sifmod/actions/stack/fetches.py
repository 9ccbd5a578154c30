"""How much an apply is to fetch, and how much room that takes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.image import image_request
from sifmod.actions.install.request import Request
from sifmod.actions.stack.plan import StackPlan, keeps_image
from sifmod.errors import SifmodError
from sifmod.image.fetch import announced_size
from sifmod.tree.layout import Workplace
from sifmod.tree.lock import lock
from sifmod.tree.store import Store


class Fetches(NamedTuple):
    """What an apply has to fetch."""

    images: int
    size: int  # bytes, of those whose size is known
    unknown: int  # images whose size no server says before
    room: int  # bytes on the disk: the images, and what is downloaded of as many as are converted at the same time


def fetches(plan: StackPlan, jobs: int) -> Fetches:
    """How much is to be fetched, as the servers say; an image that cannot be asked for is one of unknown size."""
    wanted: dict[str, Request] = {}
    for step in plan.steps:
        if step.request and not keeps_image(step, step.request):
            wanted.setdefault(image_request(step.request.plan), step.request)
    with TemporaryDirectory(prefix="sifmod-") as place, lock(Workplace(Path(place)), "plan", 60, print) as held:
        store = Store(plan.layout, held)
        with ThreadPoolExecutor(8) as threads:
            sizes = tuple(threads.map(lambda request: _size(request, store), wanted.values()))
    known = sorted(size for size in sizes if size is not None)
    loads = sum(known[-jobs:])
    return Fetches(sum(size != 0 for size in sizes), sum(known), len(sizes) - len(known), sum(known) + loads)


def _size(request: Request, store: Store) -> int | None:
    plan = request.plan
    try:
        return announced_size(plan.image, plan.runtime, store, fetch_settings(request.site.site))
    except SifmodError:
        return None  # the apply tells
