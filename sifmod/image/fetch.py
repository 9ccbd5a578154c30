"""From an ImagePlan to an Artifact: the sources in order, until one works and verifies."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from sifmod.digest import sha256_bytes
from sifmod.errors import (
    FetchError,
    ImageError,
    PermissionsError,
    RuntimeMissingError,
    SignatureError,
    UnstartableError,
)
from sifmod.image.artifact import Artifact, Progress, Store, no_progress
from sifmod.image.convert import oci_to_sif
from sifmod.image.convert.sif.header import check_sif
from sifmod.image.disk import NoSpaceError
from sifmod.image.promise import check_promise
from sifmod.image.registry.mirrors import mirrors_of, own_place, source_of
from sifmod.image.settings import DEFAULT, Settings
from sifmod.image.signature.policy import check_policy, refuse_unsigned_kind
from sifmod.image.sources import https, local, oras
from sifmod.image.sources.fetched import Fetched, Request
from sifmod.image.sources.reference import Kind, Reference, parse
from sifmod.image.sources.runtime import build, pull
from sifmod.image.startable import check_startable
from sifmod.module.plan import ImagePlan, Runtime

SOURCES: dict[Kind, Callable[[Request], Fetched]] = {
    "name": local.from_image_dirs,
    "path": local.from_path,
    "https": https.download,
    "http": https.download,
    "oras": oras.download,
    "docker": oci_to_sif.convert,
    "oci": oci_to_sif.convert,
    "oci-archive": oci_to_sif.convert,
    "docker-archive": oci_to_sif.convert,
    "library": pull,
    "build": build,
}
"""How each kind of source gives its image. Whatever it gives is checked here, in one place."""

_PINNED: dict[Kind, Callable[[Request], Fetched | None]] = {"docker": oci_to_sif.pinned, "oras": oras.pinned}
"""What a digest names is taken from the store, where it is there, without asking anybody."""

_RESUMED = ("https", "http", "oras", "docker")  # what arrived stays for the next run


def fetch_image(
    image: ImagePlan,
    runtime: Runtime,
    store: Store,
    progress: Progress = no_progress,
    settings: Settings = DEFAULT,
) -> Artifact:
    """The image that `image` asks for, verified and in `store` (or where it is, when it is only referenced).

    An image that the store holds under the promised digest, or was given before for the digest in a docker or oras
    source, is taken as it is and nobody is asked; otherwise the sources are tried in order and the first that works and
    verifies wins. Idempotent.
    On any failure the store is as before, but for what had arrived, with which the next run goes on: FetchError names
    each source with its reason, NoSpaceError ends the search at once.
    """
    references = _references(image)
    if promised := _promised(Request(references[0], image, runtime, store, progress, settings)):
        return promised
    failures: list[tuple[Reference, FetchError | RuntimeMissingError | PermissionsError]] = []
    for reference in references:
        try:
            return _fetch_past_mirrors(Request(reference, image, runtime, store, progress, settings))
        except NoSpaceError:
            raise
        except (FetchError, RuntimeMissingError, PermissionsError) as error:
            failures.append((reference, error))
    reasons = "\n".join(f"  {reference.shown}: {error.message}" for reference, error in failures)
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


def _promised(request: Request) -> Artifact | None:
    """The promised SIF, where the store has it. One that does not start is passed over if it can be converted anew."""
    image = request.image
    stored = request.store.find(image.sha256) if image.sha256 else None
    if image.sha256 is None or stored is None:
        return None
    info = check_sif(stored, image.arch)
    notes = check_policy(stored, image.filename, info, request.settings)
    try:
        notes += check_startable(stored, info, request)
    except UnstartableError:
        if image.conversion is None:
            raise
        return None
    return Artifact(stored, image.sha256, info.size, request.reference.shown, info.arch, notes)


def _fetch_past_mirrors(request: Request) -> Artifact:
    """As `_fetch`; where a mirror gave something that is not the image, its own registry is asked."""
    try:
        return _fetch(request)
    except (SignatureError, UnstartableError):
        raise
    except ImageError as error:
        reference, settings = request.reference, request.settings
        mirrors = mirrors_of(reference, settings.mirrors)
        if not mirrors:
            raise
        names = ", ".join(str(mirror) for mirror in mirrors)
        try:
            artifact = _fetch(replace(request, settings=replace(settings, mirrors=())))
        except FetchError as second:
            second.message += f"\n    before that, with the mirror {names}: {error.message}"
            raise
        note = f"taken from {own_place(reference).host}, for with the mirror {names}: {error.message}"
        return replace(artifact, notes=(note, *artifact.notes))


def _fetch(request: Request) -> Artifact:
    reference, image, store = request.reference, request.image, request.store
    refuse_unsigned_kind(reference.kind, request.settings)
    there = _PINNED[reference.kind](request) if reference.kind in _PINNED else None
    if there is None and image.offline and not reference.is_local:
        raise FetchError("not tried: it needs the network, and --offline was given")
    with ExitStack() as stack:
        resumed = there is None and reference.kind in _RESUMED
        partial = stack.enter_context(store.partial(_key(reference, image))) if resumed else None
        incoming = stack.enter_context(store.incoming())
        request = replace(request, incoming=incoming, partial=partial or incoming)
        fetched = there or SOURCES[reference.kind](request)
        info = check_sif(fetched.path, image.arch, image.filename)
        notes = (*fetched.notes, *check_promise(reference, image, fetched))
        notes += check_policy(fetched.path, reference.shown, info, request.settings)
        notes += check_startable(fetched.path, info, request)
        path = fetched.path
        if path == incoming:
            path = store.add(incoming, fetched.sha256, fetched.origin, source_of(reference))
        if partial is not None and not request.settings.keep_blobs:
            store.finished(partial)
    return Artifact(path, fetched.sha256, fetched.size, reference.shown, info.arch, notes, fetched.origin)


def _key(reference: Reference, image: ImagePlan) -> str:
    """What a download is resumed under: the same reference for the same architecture."""
    parts = (reference.kind, reference.location, reference.tag, reference.digest, image.arch)
    return sha256_bytes("\n".join(parts).encode())[:32]
