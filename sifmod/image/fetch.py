"""From an ImagePlan to an Artifact: try the sources in order until one works and verifies."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import (
    FetchError,
    ImageError,
    PermissionsError,
    RuntimeMissingError,
    SignatureError,
    UnstartableError,
)
from sifmod.image.artifact import Artifact, Fetched, Fetching, FetchRequest, ImageStore, Progress, no_progress
from sifmod.image.convert.sif.header import SifInfo, check_sif
from sifmod.image.disk import NoSpaceError
from sifmod.image.inspect.rootfs import tree_digest
from sifmod.image.reference import Reference
from sifmod.image.registry.mirrors import Place, mirrors_of, own_place, source_of
from sifmod.image.registry.network import reporting_waits
from sifmod.image.settings import DEFAULT, Settings
from sifmod.image.signature.signatures import check_policy, refuse_unsigned_kind
from sifmod.image.sources.file import take_file
from sifmod.image.sources.source_kinds import references
from sifmod.image.startable import check_startable
from sifmod.image.stored import bytes_to_copy, from_other_store
from sifmod.module.plan import ImagePlan, Runtime

Failure = tuple[Reference, FetchError | RuntimeMissingError | PermissionsError]


def fetch_image(
    image: ImagePlan,
    runtime: Runtime,
    store: ImageStore,
    progress: Progress = no_progress,
    settings: Settings = DEFAULT,
) -> Artifact:
    """Fetch the image that `image` describes, verified, into `store` (or in place, if it is only referenced).

    An image comes from the store, without a request, if the store has the promised digest, or fetched an image for the
    digest that a docker or oras source has. Else the sources are tried in order, and the first that works wins.
    Idempotent. The base of a built image is fetched before it, in the same way. On failure the image is not stored (its
    base may be); partial downloads stay, and the next run resumes them. FetchError names each source with its reason;
    NoSpaceError ends the search at once.
    """
    wanted = references(image)
    if not wanted:
        raise FetchError(
            f"the easyconfig names no source of the image {image.filename}", "give one: --source PATH or URL"
        )
    build, base = image.build, None
    # no source is used; messages and the receipt name the first one
    if promised := _promised(FetchRequest(wanted[0], image, runtime, store, progress, settings)):
        return promised
    if build and build.base:
        refuse_unsigned_kind(wanted[0], settings)
        base = fetch_image(build.base, runtime, store, progress, settings)
    failures: list[Failure] = []
    for reference in wanted:
        try:
            with reporting_waits(lambda text: progress(text, 0, None)):
                return _fetch_past_mirrors(
                    FetchRequest(reference, image, runtime, store, progress, settings, base=base)
                )
        except NoSpaceError:  # a FetchError too, but another source would not help
            raise
        except (FetchError, RuntimeMissingError, PermissionsError) as error:
            failures.append((reference, error))
    raise _none_worked(image, failures)


def announced_size(
    image: ImagePlan, runtime: Runtime, store: ImageStore, settings: Settings = DEFAULT, missing: int | None = 0
) -> int | None:
    """The bytes to fetch from the first source that can work; None if unknown before the fetch.

    For an image that is built on a base, the bytes of the base. 0 if nothing will be fetched: the SIF is only
    referenced, or already stored. `missing` if all sources are on this machine and none is there. If no server has the
    image, raises FetchError as `fetch_image` does.
    """
    wanted = references(image)
    if image.sha256 and wanted and not settings.fresh:
        if store.find(image.sha256):
            return 0
        request = FetchRequest(wanted[0], image, runtime, store, no_progress, settings)
        if there := from_other_store(request, image.sha256):
            return bytes_to_copy(there, request)
    if image.build and image.build.base:
        return announced_size(replace(image.build.base, link=image.link), runtime, store, settings, missing)
    failures: list[Failure] = []
    for reference in wanted:
        kind = reference.kind
        if image.offline and not kind.is_local:
            continue
        try:
            size = kind.announced(FetchRequest(reference, image, runtime, store, no_progress, settings))
        except (FetchError, PermissionsError) as error:
            failures.append((reference, error))
            continue
        if size is not None or not kind.is_local:
            return size
        failures.append((reference, FetchError("not found on this machine")))
    if all(reference.kind.is_local for reference, _ in failures):
        return missing  # the fetch will report the failure
    raise _none_worked(image, failures)


def _none_worked(image: ImagePlan, failures: Sequence[Failure]) -> FetchError:
    reasons = "\n".join(f"  {reference.shown}: {error.message}" for reference, error in failures)
    hints = dict.fromkeys(error.hint for _, error in failures if error.hint)
    where = f"\nwhere it is: {' '.join(image.available.split())}" if image.available else ""
    what = f"no source of the image {image.filename} worked"
    if image.build and image.build.base:
        what = f"the image {image.filename} could not be built"
    return FetchError(f"{what}; it was not stored\n{reasons}{where}", "\n".join(hints))


def _promised(request: FetchRequest) -> Artifact | None:
    """The promised SIF, if it is stored, and starts here or cannot be converted again; else None."""
    image = request.image
    stored = request.store.find(image.sha256) if image.sha256 else None
    if image.sha256 is None or stored is None:
        return None
    info = check_sif(stored, image.arch)
    try:
        notes = _checked(stored, image.filename, info, request)
    except UnstartableError:
        if image.conversion is None:
            raise
        return None
    return Artifact(stored, image.sha256, info.size, request.reference.shown, info.arch, notes)


def _checked(path: Path, name: str, info: SifInfo, request: FetchRequest) -> tuple[str, ...]:
    """The notes on the image. Raises SignatureError or UnstartableError if it must not be used here."""
    return (*check_policy(path, name, info, request.settings), *check_startable(info, request))


def _fetch_past_mirrors(request: FetchRequest) -> Artifact:
    """As `_fetch`; after wrong content again without the first mirror, until only the original registry is left."""
    reference, settings = request.reference, request.settings
    failed, left = list[Place](), list(mirrors_of(reference, settings.mirrors))
    wrong: ImageError | None = None
    while True:
        names = ", ".join(map(str, failed))
        try:
            artifact = _fetch(request)
        except (SignatureError, UnstartableError):
            raise
        except FetchError as error:
            if not left or not isinstance(error, ImageError):
                error.message += f"\n    before that, with the mirror {names}: {wrong.message}" if wrong else ""
                raise
            wrong = error
            failed.append(left.pop(0))
            mirrors = ((str(own_place(reference)), tuple(map(str, left))),)
            request = replace(request, settings=replace(settings, mirrors=mirrors))
        else:
            if artifact is None:
                continue  # each round excludes one damaged image of another store
            if wrong is None:
                return artifact
            hosts = " or ".join((*(mirror.host for mirror in left), own_place(reference).host))
            note = f"taken from {hosts}, since the mirror {names} failed: {wrong.message}"
            return replace(artifact, notes=(note, *artifact.notes))


def _fetch(request: FetchRequest) -> Artifact | None:
    """The image; None if the copy in another store was damaged, which the next call skips. Raises FetchError."""
    reference, image, store = request.reference, request.image, request.store
    kind = reference.kind
    refuse_unsigned_kind(reference, request.settings)
    there = from_other_store(request, image.sha256) or kind.pinned(request)
    if there is None and image.offline and not kind.is_local:
        raise FetchError("skipped: it needs the network, and --offline was given")
    with ExitStack() as stack:
        resumed = there is None and kind.resumable
        partial = stack.enter_context(store.partial(_key(reference, image))) if resumed else None
        incoming = stack.enter_context(store.incoming())
        fetching = Fetching(**vars(request), incoming=incoming, partial=partial or incoming)
        fetched = there or kind.fetch(fetching)
        if fetched.from_other_store:
            taken = take_file(fetched.path, fetching)
            if taken.sha256 != fetched.sha256:
                if store.damaged(fetched.sha256):
                    return None
                raise FetchError(f"{fetched.path} was changed while it was read", "repeat the command")
            fetched = replace(taken, origin=fetched.origin)
        info = check_sif(fetched.path, image.arch, image.filename)
        notes = (*fetched.notes, *_check_promise(reference, image, fetched))
        notes += _checked(fetched.path, reference.shown, info, request)
        path = fetched.path
        if path == incoming:
            path = store.add(incoming, fetched.sha256, fetched.origin, source_of(reference))
        if partial is not None and not request.settings.keep_blobs:
            store.finished(partial)
    return Artifact(path, fetched.sha256, fetched.size, reference.shown, info.arch, notes, fetched.origin)


def _key(reference: Reference, image: ImagePlan) -> str:
    """The key for resuming a download: reference and architecture."""
    parts = (reference.kind.name, reference.location, reference.tag, reference.digest, image.arch)
    return sha256_bytes("\n".join(parts).encode())[:32]


def _check_promise(reference: Reference, image: ImagePlan, fetched: Fetched) -> tuple[str, ...]:
    """Raise ImageError unless `fetched` is what `image` promises; return notes, such as what to pin.

    Converting a docker or oci image with other tool versions or another processor may give a different SIF; if its
    bytes differ, its files are compared.
    """
    if image.sha256 is None:
        return _to_pin(reference, fetched)
    if image.sha256 == fetched.sha256:
        return ()
    promised = image.conversion
    if reference.kind.ready_made:
        raise _broken(image, fetched, "the file was replaced at its source or damaged in transit")
    if promised is None:
        raise _broken(image, fetched, "a SIF made elsewhere has other bytes; `sifmod fetch` prints the digest to pin")
    found = tree_digest(fetched.path)
    if found != promised.tree:
        raise ImageError(
            f"the files in {image.filename} differ from the expected ones; the image was discarded\n    expected "
            f"{promised.tree}\n    got      {found}",
            "the image was replaced at its source; correct `conversion:` only if you know why it changed",
        )
    made = fetched.origin
    same = (made.compression, sorted(made.tools)) == (promised.compression, sorted(promised.tools))
    what = "the same tools on another machine" if same else "other versions of the tools"
    return (f"{what} made a SIF with another digest than expected; its files are the same",)


def _broken(image: ImagePlan, fetched: Fetched, likely: str) -> ImageError:
    return ImageError(
        f"{image.filename} has a wrong SHA-256 and was refused\n    expected {image.sha256}\n    got      "
        f"{fetched.sha256}",
        f"{likely}; correct `sha256:` in the easyconfig only if you know why it changed",
    )


def _to_pin(reference: Reference, fetched: Fetched) -> tuple[str, ...]:
    if reference.kind.ready_made:
        return (f"no digest is pinned; to pin this image add to `image:`  sha256: {fetched.sha256}",)
    if reference.kind.location == "repository" and not reference.digest:
        digest = fetched.origin.index or fetched.origin.manifest
        pinned = f"{reference.kind.name}://{reference.location}@{digest}"
        return (f"no digest is pinned; to pin this image write its source as  {pinned}",)
    return ()
