"""install: make the disk match one easyconfig, and publish what passes its checks."""

import os
from pathlib import Path

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.hooks import run_hooks
from sifmod.actions.install.choose_image import (
    ChosenImage,
    fetched_image,
    image_record,
    image_request,
    kept_image,
    released,
)
from sifmod.actions.install.current import (
    check_made_by,
    difference,
    is_complete,
    is_current,
    oddities,
    provenance,
    provenance_to_write,
)
from sifmod.actions.install.found_in_image import with_found, with_locked
from sifmod.actions.install.hold import check_hold
from sifmod.actions.install.past_checks import PastChecks
from sifmod.actions.install.request import InstallRequest, of_install, with_image
from sifmod.actions.install.sanity_check import Known, check_modules, sanity_check
from sifmod.actions.lock import check_files
from sifmod.actions.log import record
from sifmod.actions.references import referring, renew
from sifmod.actions.reporter import Reporter
from sifmod.errors import FetchError
from sifmod.module.plan import File, Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.generation import module_lock, publish, replace_provenance, restore, staged_generation, tidy
from sifmod.tree.layer import image_key
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Held
from sifmod.tree.log import Done
from sifmod.tree.mark import LINK
from sifmod.tree.provenance import ImageChoice
from sifmod.tree.receipt import Installation, live, live_number
from sifmod.tree.stage import Stage
from sifmod.tree.state import edited, edited_stubs, missing
from sifmod.tree.store import Store, stored_at


def install(request: InstallRequest, reporter: Reporter) -> tuple[Installation, bool]:
    """Make the disk match the plan; gives what is installed, and whether anything was changed for it. Idempotent.

    Raises LockError, InstallError, PermissionsError, SanityCheckError, and what fetching an image raises; HeldError for
    what was rolled back from. After an error the live generation is as before.
    """
    plan, site = request.plan, request.site.site
    layout, waiting = Layout(Path(plan.prefix)), reporter.waiting(plan.module)
    with changing_prefix(site):
        before = live(layout, plan.module)
        if before and is_complete(layout, before, request) and not provenance_to_write(before, request):
            renew(layout, before)
            return before, False  # no lock is needed, which a reader cannot take
        for oddity in oddities(before, request):
            reporter.say(oddity)
        tidy(layout, site.lock_lease, waiting)
        with module_lock(layout, plan.module, site.lock_lease, waiting) as held:
            before = live(layout, plan.module)  # another run may have done it while we waited
            if before and is_complete(layout, before, request):
                if made := provenance_to_write(before, request):
                    replace_provenance(before, made, held)
                return before, False
            if before and _restored(layout, before, request, held, reporter):
                return before, True
            check_made_by(before, request)
            check_hold(layout, before, request)
            return _new_generation(layout, before, request, held, reporter)


def install_with_layers(request: InstallRequest, reporter: Reporter) -> tuple[Installation, bool]:
    """As `install`, and the layers that the request's lock names. Raises what `bring_layers` raises too."""
    installation, changed = install(request, reporter)
    if (locked := request.options.locked) and locked.layers:
        from sifmod.actions.layer.places import bring_layers

        bring_layers(installation, locked, request.options.stores, request.site.site, reporter)
    return installation, changed


def _restored(layout: Layout, before: Installation, request: InstallRequest, held: Held, reporter: Reporter) -> bool:
    """Whether only links and stubs were missing, which are there again; what was changed needs a new generation."""
    if request.options.rebuild or not is_current(before, request):
        return False
    changed = edited(before)
    for path in changed:
        reporter.say(f"{path} was changed or removed; it is restored in a new generation")
    if changed or (before.image and not Path(before.image.path).is_file()):
        return False
    reporter.say(f"restoring: {'; '.join((*missing(layout, before), *edited_stubs(layout, before)))}")
    restore(layout, before, held)
    record(layout, _done("restored", before, before.generation), held, reporter)
    return True


def _new_generation(
    layout: Layout, before: Installation | None, request: InstallRequest, held: Held, reporter: Reporter
) -> tuple[Installation, bool]:
    options, site, plan = request.options, request.site.site, request.plan
    run_hooks(site, "before_install", of_install(request), reporter.say)
    waiting = reporter.waiting(plan.image.filename if plan.image else plan.module)
    store = Store(layout, held, waiting, others=(*options.stores, *site.stores))
    image: ChosenImage | None = None
    if plan.image:
        image = kept_image(before, request, store, reporter) or fetched_image(request, layout, store, reporter)
        request = with_image(request, image.artifact)
        plan, image, found = with_found(request.plan, before, image)
        check_hold(layout, before, request, plan, image.artifact.sha256)
        notes = (*(f"quirk {quirk}" for quirk in request.loaded.quirks), *found)
    else:
        notes = check_modules(layout, plan, request.site, os.environ)
    another = options.if_different and before and before.generation != options.if_different
    if another and before and before.provenance.site == site.name and not difference(before, plan):
        return before, False  # another run has done it while we waited
    for told in notes:
        reporter.say(told)
    own = own_files(plan, request, image.artifact.sha256 if image else "")
    if options.locked:
        check_files(options.locked, plan, own, request.differing)
    # where its user released the image (see image.kept_image) the site's copy stays in use
    gone = image and options.module_only and before and released(before, plan)
    path = image.artifact.path if image and not gone else None
    if path and not path.is_file():
        raise FetchError(f"{path} was removed by a gc meanwhile", "repeat the command")
    with referring(layout, plan.module, path, reporter) as mark:
        with staged_generation(layout, plan.module, held) as stage:
            stage.write((*render(plan, stage.number), *own))
            stage.write_stubs(render_stub(plan))
            if image:
                stage.link(plan.own_image.filename, image.artifact.path)
                if mark:
                    stage.link(LINK, mark)
                stage.link_user_software()
            _carry_over(stage, reporter)
            # its digest is of the request's plan, without the wrappers that were found in the image
            made = provenance(request, image.choice if image else ImageChoice(image_request(plan)))
            installation = stage.record(made, image_record(plan, image.artifact) if image else None, plan.modules)
            if image and not path:
                stage.unlink(plan.own_image.filename)
        if options.asked.checked and path:
            with store.workspace() as workspace:
                known = Known(PastChecks(options.checked_since), options.beside)
                sanity_check(installation, plan, workspace, reporter.say, known=known)
        return _published(layout, installation, request, held, reporter), True


def _published(
    layout: Layout, installation: Installation, request: InstallRequest, held: Held, reporter: Reporter
) -> Installation:
    number, what = live_number(layout, installation.module), "rendered" if request.options.module_only else "installed"
    site, data = request.site.site, of_install(request, done=installation)
    run_hooks(site, "after_install", data, reporter.say)
    run_hooks(site, "before_publish", data, reporter.say)
    before = live(layout, installation.module)
    same = before is not None and (request.options.module_only or is_current(before, request))
    publish(layout, installation, held, same_content=same and not request.options.despite_hold)
    record(layout, _done(what, installation, number), held, reporter)
    run_hooks(site, "after_publish", data, reporter.say)
    return installation


def own_files(plan: Plan, request: InstallRequest, sha256: str) -> tuple[File, ...]:
    """What a generation has beside what is rendered: its easyconfig, and by what its layers are found.

    Layers are made for one image, which is known by the beginning of its digest; and the runtime that takes them.
    """
    easyconfig = File("easyconfig.yaml", request.loaded.path.read_text(encoding="utf-8"))
    if not plan.layers:
        return (easyconfig,)
    return easyconfig, File("share/image", f"{image_key(sha256)}\n{plan.runtime.path}\n")


def check_locked(before: Installation | None, request: InstallRequest) -> bool:
    """Raise InstallError unless an install as the request says gives the files of its lock.

    False where that shows only when its image is here: nothing here says which commands and which MPI are in it.
    """
    locked = request.options.locked
    if locked is None:
        return True
    plan: Plan | None = request.plan
    if image := locked.image:
        request, site = with_image(request, image), request.site.site
        places = (site.prefix, *request.options.stores, *site.stores)
        stored = next(filter(None, (stored_at(place, image.sha256) for place in places)), None)
        plan = with_locked(request.plan, image, before, stored)
    if plan:
        check_files(locked, plan, own_files(plan, request, locked.digest), request.differing)
    return plan is not None


def _carry_over(stage: Stage, reporter: Reporter) -> None:
    taken = stage.carry_over()
    if taken.carried:
        reporter.say(f"your own files come along: {', '.join(taken.carried[:10])}")
    if taken.left:
        reporter.say(f"your own files stay in the last generation: {', '.join(taken.left[:10])}")


def _done(what: str, installation: Installation, before: int | None) -> Done:
    return Done(what, installation.module, before, installation.generation, installation.image_sha256 or None)
