"""install: make the disk match one easyconfig."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmod import __version__
from sifmod.actions.install.difference import difference
from sifmod.actions.install.image import IMAGE_REQUEST, fetched_image, image_record, image_request, kept_image, released
from sifmod.actions.install.request import Request, with_image
from sifmod.actions.install.sanity import sanity_check
from sifmod.actions.install.unchanged import ASKED, IMAGE_DIRS, UNCHECKED, Options
from sifmod.actions.install.wrappers import with_found_wrappers
from sifmod.actions.listener import Listener
from sifmod.actions.log import record
from sifmod.actions.nothing_begun import nothing_begun
from sifmod.actions.ownership import ownership
from sifmod.config.find import own_path, places_before
from sifmod.config.input import Input, read_input
from sifmod.digest import sha256_bytes
from sifmod.image.artifact import Artifact
from sifmod.module.plan import File, Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.generation import module_lock, note, publish, restore, staged_generation, tidy
from sifmod.tree.layout import Layout
from sifmod.tree.log import Done
from sifmod.tree.receipt import Installation, Provenance, live, live_number
from sifmod.tree.stage import Stage
from sifmod.tree.state import edited, edited_stubs, missing
from sifmod.tree.store import Store


def install(request: Request, listener: Listener) -> tuple[Installation, bool]:
    """Make the disk match the plan; gives what is installed, and whether anything was changed for it."""
    site = request.site.site
    with nothing_begun(Layout(site.prefix)), ownership(site):
        return _install(request, listener)


def _install(request: Request, listener: Listener) -> tuple[Installation, bool]:
    plan, options, site = request.plan, request.options, request.site.site
    layout = Layout(Path(plan.prefix))
    before = live(layout, plan.module)
    if before and _is_complete(layout, before, request) and not _may_note(before, request):
        return before, False  # no lock is needed, which a reader cannot take
    for oddity in _odd(before, request):
        listener.say(oddity)
    tidy(layout, site.lock_lease, listener.waiting(plan.module))
    with module_lock(layout, plan.module, site.lock_lease, listener.waiting(plan.module)) as held:
        before = live(layout, plan.module)
        if before and _is_complete(layout, before, request):  # another run may have done it while we waited
            if _may_note(before, request):
                note(layout, before, _noted(before, request), held)
            return before, False
        if before and not options.rebuild and _is_current(before, plan):
            lacks, changed = (*missing(layout, before), *edited_stubs(layout, before)), edited(before)
            if not changed and Path(before.image.path).is_file():
                listener.say(f"restoring: {'; '.join(lacks)}")
                restore(layout, before, held)
                record(layout, _done("restored", before, before.generation), held, listener)
                return before, True
            for path in changed:
                listener.say(f"{path} was changed or removed; it is restored in a new generation")
        store = Store(layout, held, listener.waiting(plan.image.filename))
        image = kept_image(before, request, store, listener) or fetched_image(request, layout, store, listener)
        plan = (request := with_image(request, image[0])).plan
        plan, image, found = with_found_wrappers(plan, before, image)
        if options.if_different and before and before.provenance.site == site.name and not difference(before, plan):
            return before, False  # another run has done it while we waited
        for told in (*(f"quirk {quirk}" for quirk in request.loaded.quirks), *((found,) if found else ())):
            listener.say(told)
        # where its user gave the image up (see image.kept_image) the site's copy stays in use
        own = image[0].path.is_file() and not (options.module_only and before and released(before, plan))
        with staged_generation(layout, plan.module, held) as stage:
            installation = _fill(stage, request, plan, image, listener)
            if not own:
                (stage.directory / plan.image.filename).unlink()
        if options.sanity and own:
            with store.workspace() as workspace:
                sanity_check(installation, plan, workspace, listener.say)
        number = live_number(layout, plan.module)
        publish(layout, installation, held)
        record(layout, _done("rendered" if options.module_only else "installed", installation, number), held, listener)
    return installation, True


def _is_complete(layout: Layout, before: Installation, request: Request) -> bool:
    """Nothing is to be done: it is what the plan asks for, and all of it is there."""
    if request.options.rebuild or not _is_current(before, request.plan):
        return False
    return not (missing(layout, before) or edited(before) or edited_stubs(layout, before))


def _noted(before: Installation, request: Request) -> Provenance:
    """What the same generation would say if it were made now; whether it was checked stays as it was."""
    made = _provenance(request, before.provenance.options)
    unchecked = (UNCHECKED,) if UNCHECKED in before.provenance.options else ()
    return made._replace(options=(*unchecked, *(pair for pair in made.options if pair != UNCHECKED)))


def _may_note(before: Installation, request: Request) -> bool:
    """The next run would look at less if the receipt said what this one has looked at, and it can be written."""
    made = _noted(before, request)
    return before.made_for is None and made != before.provenance and os.access(before.root, os.W_OK)


def _odd(before: Installation | None, request: Request) -> Iterator[str]:
    """What a user should know before anything is done."""
    plan = request.plan
    if before and os.path.realpath(before.provenance.easyconfig) != os.path.realpath(request.loaded.path):
        yield f"another easyconfig has given {plan.module} before: {before.provenance.easyconfig}"
    if not plan.runtime.path:
        yield f"neither apptainer nor singularity is here: {plan.module} can be installed and loaded, but not used here"


def _done(what: str, installation: Installation, before: int | None) -> Done:
    return Done(what, installation.module, before, installation.generation, installation.image.sha256)


def _is_current(before: Installation, plan: Plan) -> bool:
    made = before.provenance
    return made.plan_digest == plan_digest(plan) and (IMAGE_REQUEST, image_request(plan)) in made.options


def _fill(
    stage: Stage, request: Request, plan: Plan, image: tuple[Artifact, Options], listener: Listener
) -> Installation:
    """Write a generation: what the plan renders, the links, what the user had added to the last one, the receipt.

    `plan` is the request's with the wrappers that were found in the image; the receipt has the digest of the request's.
    """
    artifact, asked = image
    easyconfig = File("easyconfig.yaml", request.loaded.path.read_text(encoding="utf-8"))
    stage.write((*render(plan, stage.number), easyconfig))
    stage.stubs(render_stub(plan))
    stage.link(plan.image.filename, artifact.path)
    stage.user_software()
    taken = stage.carry_over()
    if taken.carried:
        listener.say(f"your own files come along: {', '.join(taken.carried[:10])}")
    if taken.left:
        listener.say(f"your own files stay in the last generation: {', '.join(taken.left[:10])}")
    return stage.record(_provenance(request, asked), image_record(plan, artifact))


def plan_digest(plan: Plan) -> str:
    """One digest of everything that decides the installed files: the plan and what this sifmod renders from it.

    The prefix decides none of them, so that a tree that was moved has what its easyconfigs ask for.
    """
    anywhere = replace(plan, prefix="")
    return sha256_bytes(repr((image_request(plan), anywhere, render(plan, 0), render_stub(plan))).encode())


def _nearer_places(request: Request) -> tuple[Input, ...]:
    """The files that the name it was asked by would have meant rather than this easyconfig."""
    places = places_before(request.loaded.path, request.options.asked, request.site.site.robot_paths)
    return tuple(read_input(str(place), os.environ) for place in places)


def _provenance(request: Request, asked: Options) -> Provenance:
    plan = request.plan
    # of the last generation
    asked = tuple(pair for pair in asked if pair[0] not in (ASKED, IMAGE_DIRS) and not pair[0].startswith("--"))
    name = ((ASKED, request.options.asked),) if request.options.asked else ()
    places = ((IMAGE_DIRS, ":".join(plan.image.image_dirs)),) if plan.image.image_dirs else ()
    return Provenance(
        sifmod=__version__,
        easyconfig=own_path(request.loaded.path),
        version=plan.version,
        variant=request.loaded.variant,
        site=request.site.site.name,
        accelerator=plan.accelerator,
        inputs=tuple(
            dict.fromkeys(
                (*request.site.inputs, *request.site.quirk_inputs, *request.loaded.inputs, *_nearer_places(request))
            )
        ),
        facts=request.site.facts,
        options=(*request.options.recorded, *name, *asked, *places),
        plan_digest=plan_digest(plan),
    )
