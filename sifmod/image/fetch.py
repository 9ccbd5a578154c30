"""From a plan's image to an Artifact: the sources in order, until one works and verifies."""

from collections.abc import Callable

from sifmod.errors import FetchError, ImageError, PermissionsError, RuntimeMissingError
from sifmod.image import https, local, runtime
from sifmod.image.artifact import Artifact, Progress, Store, no_progress
from sifmod.image.disk import NoSpaceError
from sifmod.image.fetched import Fetched, Request
from sifmod.image.reference import Kind, Reference, parse
from sifmod.image.sif import check_sif
from sifmod.module.plan import ImagePlan, Plan

SOURCES: dict[Kind, Callable[[Request], Fetched]] = {
    "name": local.from_image_dirs,
    "path": local.from_path,
    "https": https.download,
    "http": https.download,
    "oci": runtime.pull,
    "oci-archive": runtime.pull,
    "docker-archive": runtime.pull,
    "docker": runtime.pull,
    "oras": runtime.pull,
    "library": runtime.pull,
    "build": runtime.build,
}
"""How each kind of source gives its image. Whatever it gives is checked here, in one place."""

_READY_MADE = ("name", "path", "https", "http", "oras", "library")  # the same bytes each time: a digest can be promised


def fetch_image(plan: Plan, store: Store, progress: Progress = no_progress) -> Artifact:
    """The image of `plan`, verified and in `store` (or where it is, when it is only referenced).

    An image that the store holds under the promised digest is taken as it is; otherwise the sources are tried in
    order and the first that works and verifies wins. Idempotent. On any failure the store is as before: FetchError
    names each source with its reason, NoSpaceError ends the search at once.
    """
    image, references = plan.image, _references(plan.image)
    if image.sha256 and (stored := store.find(image.sha256)):
        info = check_sif(stored, image.arch)
        return Artifact(stored, image.sha256, info.size, references[0].source, info.arch)
    failures: list[tuple[Reference, FetchError | RuntimeMissingError | PermissionsError]] = []
    for reference in references:
        try:
            return _fetch(reference, plan, store, progress)
        except NoSpaceError:
            raise
        except (FetchError, RuntimeMissingError, PermissionsError) as error:
            failures.append((reference, error))
    reasons = "\n".join(f"  {reference.source}: {error.message}" for reference, error in failures)
    hints = dict.fromkeys(error.hint for _, error in failures if error.hint)
    where = f"\nwhere it is: {' '.join(image.available.split())}" if image.available else ""
    raise FetchError(
        f"no source of the image {image.filename} worked; nothing was kept\n{reasons}{where}", "\n".join(hints)
    )


def _references(image: ImagePlan) -> tuple[Reference, ...]:
    """The sources, taken apart before any is tried: a misspelled one is told, not passed over."""
    if image.build is not None:
        return (Reference("build", image.build, image.build),)
    if not image.sources:
        raise FetchError(
            f"the easyconfig names no source of the image {image.filename}", "give one: --source PATH or URL"
        )
    return tuple(parse(source) for source in image.sources)


def _fetch(reference: Reference, plan: Plan, store: Store, progress: Progress) -> Artifact:
    image = plan.image
    if image.offline and not reference.is_local:
        raise FetchError("not tried: it needs the network, and --offline was given")
    with store.incoming() as incoming:
        request = Request(reference, image, plan.runtime, store, incoming, progress)
        fetched = SOURCES[reference.kind](request)
        info = check_sif(fetched.path, image.arch, image.filename)
        _check_digest(reference, image, fetched)
        path = fetched.path
        if path == incoming:
            path = store.add(incoming, fetched.sha256)
    notes = (*fetched.notes, *_unpromised(reference, image, fetched))
    return Artifact(path, fetched.sha256, fetched.size, reference.source, info.arch, notes)


def _check_digest(reference: Reference, image: ImagePlan, fetched: Fetched) -> None:
    if image.sha256 in (None, fetched.sha256):
        return
    likely = "the file was replaced at its source, or damaged on its way"
    if reference.kind not in _READY_MADE:
        likely = "the runtime makes another SIF each time; promise the image's manifest digest in the source instead"
    raise ImageError(
        f"the SHA-256 of {image.filename} is not the promised one, and nothing of it was kept\n"
        f"    expected {image.sha256}\n    got      {fetched.sha256}",
        f"{likely}; correct `sha256:` in the easyconfig only if you know why it changed",
    )


def _unpromised(reference: Reference, image: ImagePlan, fetched: Fetched) -> tuple[str, ...]:
    if image.sha256 is not None or reference.kind not in _READY_MADE:
        return ()
    return (f"the easyconfig promises no digest; to pin this image add to `image:`  sha256: {fetched.sha256}",)
