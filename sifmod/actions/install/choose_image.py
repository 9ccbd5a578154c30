"""The image of an install: reuse the installed one, or fetch it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.fetch import ask_home, into_store
from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.hooks import of_image, run_hooks
from sifmod.actions.install.decision import Decision
from sifmod.actions.lock import LockedImage, check_image
from sifmod.actions.log import record_fetched
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Link
from sifmod.errors import FetchError, ImageError, ModuleError, UnstartableError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.fetch import announced_size
from sifmod.image.signature.signatures import check_policy
from sifmod.image.sources.source_kinds import parse
from sifmod.image.startable import refusal_here
from sifmod.module.plan import ImagePlan, Plan
from sifmod.module.quote import shell
from sifmod.tree.generation import module_lock, tidy
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree
from sifmod.tree.provenance import ImageChoice
from sifmod.tree.receipt import ImageRecord, Installation
from sifmod.tree.store import Store
from sifmod.tree.stored_image import is_whole, read_stored


class ChosenImage(NamedTuple):
    """The image of an install, and how it was chosen."""

    artifact: Artifact
    choice: ImageChoice


def reuse_image(
    before: Installation | None, decision: Decision, store: Store, reporter: Reporter
) -> ChosenImage | None:
    """The image of the live generation if the plan asks for the same one; None if it must be fetched.

    `--module-only` keeps it unless the plan has a different expected digest; the recorded `request` does not change, so
    that the next install fetches what the plan asks for. If the user removed the image's link (`released`),
    `--module-only` keeps the image without a link. Raises ModuleError if `--module-only` has no image to keep,
    SignatureError if the site's policy now rejects the image, UnstartableError if the site's runtime cannot start the
    image that `--module-only` would keep.
    """
    plan, options = decision.plan, decision.options
    if options.force or (decision.locked and before and before.image_sha256 != decision.locked.digest):
        return None
    if before is not None and before.image:
        record = before.image
        path = Path(record.path) if record.link == "reference" else store.find(record.sha256)
        choice = before.provenance.image
        same = choice.request == decision.image.request and record.link == plan.required_image.link
        promised = plan.required_image.sha256 in (None, record.sha256)
        choice = choice._replace(kept=not same, directories=decision.image.directories)
        if path is not None and path.is_file() and promised and (same or options.module_only):
            if not _passes(path, record, decision, store, reporter) or not _starts(path, decision, reporter):
                return None
            return ChosenImage(replace(recorded_image(before), path=path), choice)
        if options.module_only and promised and released(before, plan):
            return ChosenImage(recorded_image(before), choice)
    if options.module_only:
        raise ModuleError(
            f"{plan.module} has no installed image that --module-only could keep",
            f"install it once without --module-only: {plan.reinstall(shell(plan.prefix))}",
        )
    return None


def recorded_image(installation: Installation) -> Artifact:
    record = installation.required_image
    return Artifact(Path(record.path), record.sha256, record.size, record.source, record.arch, (), record.origin)


def released(installation: Installation, plan: Plan) -> bool:
    """Whether the user removed the link to the image in favour of the site's copy, as on LUMI."""
    own = Path(installation.root, installation.required_image.filename)
    copies = (f"{directory}/{plan.required_image.filename}" for directory in plan.required_image.image_dirs)
    return not os.path.lexists(own) and any(map(os.path.isfile, copies))


def _passes(path: Path, record: ImageRecord, decision: Decision, store: Store, reporter: Reporter) -> bool:
    """Check the kept image against the site's present signature policy; False if it is damaged. Raises ImageError."""
    site, name = decision.site.site, decision.plan.required_image.filename
    if site.signatures.policy == "off":
        return True
    try:
        notes = check_policy(path, name, read_sif(path, name), fetch_settings(site))
    except ImageError:
        if decision.options.module_only or record.link == "reference" or not store.damaged(record.sha256):
            raise
        reporter.say(f"the stored image {record.sha256[:12]}… is damaged, and is fetched again")
        return False
    for note in notes:
        reporter.say(note)
    return True


def _starts(path: Path, decision: Decision, reporter: Reporter) -> bool:
    """Whether the site's runtime, perhaps a new one, starts the image; raises UnstartableError with `--module-only`."""
    plan = decision.plan
    try:
        why = refusal_here(read_sif(path), plan.runtime)
    except ImageError:
        return True  # damaged: the sanity check and `verify` report it
    if why and decision.options.module_only:
        raise UnstartableError(
            f"the image of {plan.module} cannot be started here: {why}",
            f"fetch it again, without --module-only: {plan.reinstall(shell(plan.prefix))}",
        )
    if why:
        reporter.say(f"the installed image cannot be started here ({why}) and is fetched again")
    return not why


def fetch_image_for(decision: Decision, tree: Tree, store: Store, reporter: Reporter) -> ChosenImage:
    """The image of the plan, or of its lock, fetched into the store if it is missing.

    Raises the errors of `fetch_image` and `ask_home`, HookError, InstallError if the image's origin is not the lock's.
    """
    plan, options, site = decision.plan, decision.options, decision.site.site
    settings = fetch_settings(site, keep_blobs=options.keep_blobs, fresh=options.force, startable=True)
    settings = replace(settings, shared=options.shared)
    image, locked = plan.required_image, decision.locked.image if decision.locked else None
    if locked:
        image = _as_locked(image, locked)
        settings = replace(settings, compression=locked.origin.compression or settings.compression)
    if not options.into_home:
        what = f"the image of {plan.module}"
        ask_home(what, site, lambda: announced_size(image, plan.runtime, store, settings), reporter)
    run_hooks(site, "before_fetch", decision.hooked, reporter.say)
    if site.hooks:
        decision = replace(decision)  # a copy reads local files of the image again, which the hooks may have changed
    choice = decision.image
    name = f"image-{plan.required_image.sha256 or choice.request}"
    with tree.lock(name, plan.required_image.filename):
        try:
            artifact = into_store(image, plan.runtime, store, reporter, settings)
        except FetchError as error:
            error.message += "".join(f"\n  {each}" for each in _unusable(image.sha256, options.stores))
            raise
    if decision.locked and locked:
        check_image(decision.locked, plan.required_image, filter(None, (read_stored(tree.layout, locked.sha256),)))
        artifact = replace(artifact, source=locked.source, origin=locked.origin, notes=())
    for note in artifact.notes:
        reporter.say(note)
    facts = decision.hooked.copy()
    facts["image"] = of_image(plan.required_image, artifact)
    run_hooks(site, "after_fetch", facts, reporter.say)
    return ChosenImage(artifact, choice)


def _unusable(sha256: str | None, trees: Iterable[Path]) -> Iterator[str]:
    """Why the image was not taken from `trees`, for each that has it."""
    for place in trees if sha256 else ():
        with suppress(OSError):
            known = read_stored(Layout(place), sha256 or "")
            if known and not is_whole(known):
                yield f"{known.path}: damaged; `sifmod verify --prefix {shell(str(place))}` tells more"


def _as_locked(image: ImagePlan, locked: LockedImage) -> ImagePlan:
    """The image that the lock names: with its expected digest, from its recorded origin."""
    digest = locked.origin.index or locked.origin.manifest
    sources = tuple(_pinned(source, digest) for source in image.sources)
    link: Link = "hardlink" if image.link == "hardlink" else "copy"
    return replace(image, sources=sources, sha256=locked.sha256, conversion=None, link=link)


def _pinned(source: str, digest: str) -> str:
    reference = parse(source)
    in_registry = reference.kind.location == "repository" and digest and not reference.digest
    return f"{reference.kind.name}://{reference.location}@{digest}" if in_registry else source


def image_record(plan: Plan, made: Artifact) -> ImageRecord:
    link, name, path = plan.required_image.link, plan.required_image.filename, str(made.path)
    return ImageRecord(made.sha256, made.size, made.source, made.arch, link, name, path, made.origin)


def fetch_only(decision: Decision, tree: Tree, reporter: Reporter) -> Artifact:
    """Fetch the image of the plan into the store and nothing else.

    An image that the store already has is used, unless `--force`.
    """
    plan, site = decision.plan, decision.site.site
    name = plan.required_image.filename  # raises for a view before anything is done
    with changing_prefix(site):
        tidy(tree)
        with module_lock(tree, plan.module) as mine:
            store = Store(tree.layout, mine.held, reporter.waiting(name), others=decision.stores)
            artifact = fetch_image_for(decision, tree, store, reporter).artifact
            record_fetched(tree, store, reporter)
            return artifact
