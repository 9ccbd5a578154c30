"""An image into the store, also where the one that is there turns out to be damaged."""

from sifmod.actions.reporter import Reporter
from sifmod.errors import ImageError, UnstartableError
from sifmod.image.artifact import Artifact
from sifmod.image.fetch import fetch_image
from sifmod.image.settings import Settings
from sifmod.module.plan import ImagePlan, Runtime
from sifmod.tree.store import Store


def into_store(image: ImagePlan, runtime: Runtime, store: Store, reporter: Reporter, settings: Settings) -> Artifact:
    """As `fetch_image`; with `fresh` settings nothing that the store has is taken, though it be the promised one.

    Where the promised one is there and is refused, it is read: if it is damaged, it is brought again and replaced.
    """
    if settings.fresh:
        return fetch_image(image, runtime, store.refetching(), reporter.progress, settings)
    try:
        return fetch_image(image, runtime, store, reporter.progress, settings)
    except UnstartableError:
        raise
    except ImageError:
        if image.sha256 is None or not store.damaged(image.sha256):
            raise
    reporter.say(f"the stored image {image.sha256[:12]}… is damaged, and is fetched again")
    return fetch_image(image, runtime, store, reporter.progress, settings)
