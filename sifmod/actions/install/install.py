"""install: make the disk match one easyconfig."""

from pathlib import Path

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.install.current import is_complete, is_current, noted, oddities, provenance
from sifmod.actions.install.file_diff import difference
from sifmod.actions.install.image import fetched_image, image_record, kept_image, released
from sifmod.actions.install.mpi import with_found_mpi
from sifmod.actions.install.request import Request, with_image
from sifmod.actions.install.sanity import sanity_check
from sifmod.actions.install.wrappers import with_found_wrappers
from sifmod.actions.log import record
from sifmod.actions.reference import referring, renew
from sifmod.actions.reporter import Reporter
from sifmod.module.plan import File, Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.generation import module_lock, note, publish, restore, staged_generation, tidy
from sifmod.tree.layer import image_key
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held
from sifmod.tree.log import Done
from sifmod.tree.mark import LINK
from sifmod.tree.receipt import Installation, live, live_number
from sifmod.tree.stage import Stage
from sifmod.tree.state import edited, edited_stubs, missing
from sifmod.tree.store import Store


def install(request: Request, reporter: Reporter) -> tuple[Installation, bool]:
    """Make the disk match the plan; gives what is installed, and whether anything was changed for it. Idempotent.

    Raises LockError, InstallError, PermissionsError, SanityCheckError, and what fetching an image raises. After an
    error the live generation is as before.
    """
    plan, site = request.plan, request.site.site
    layout, waiting = Layout(Path(plan.prefix)), reporter.waiting(plan.module)
    with changing_prefix(site):
        before = live(layout, plan.module)
        if before and is_complete(layout, before, request) and not noted(before, request):
            renew(layout, before)
            return before, False  # no lock is needed, which a reader cannot take
        for oddity in oddities(before, request):
            reporter.say(oddity)
        tidy(layout, site.lock_lease, waiting)
        with module_lock(layout, plan.module, site.lock_lease, waiting) as held:
            before = live(layout, plan.module)  # another run may have done it while we waited
            if before and is_complete(layout, before, request):
                if made := noted(before, request):
                    note(layout, before, made, held)
                return before, False
            if before and _restored(layout, before, request, held, reporter):
                return before, True
            return _new_generation(layout, before, request, held, reporter)


def _restored(layout: Layout, before: Installation, request: Request, held: Held, reporter: Reporter) -> bool:
    """Whether only links and stubs were missing, which are there again; what was changed needs a new generation."""
    if request.options.rebuild or not is_current(before, request.plan):
        return False
    changed = edited(before)
    for path in changed:
        reporter.say(f"{path} was changed or removed; it is restored in a new generation")
    if changed or not Path(before.image.path).is_file():
        return False
    reporter.say(f"restoring: {'; '.join((*missing(layout, before), *edited_stubs(layout, before)))}")
    restore(layout, before, held)
    record(layout, _done("restored", before, before.generation), held, reporter)
    return True


def _new_generation(
    layout: Layout, before: Installation | None, request: Request, held: Held, reporter: Reporter
) -> tuple[Installation, bool]:
    options, site = request.options, request.site.site
    store = Store(layout, held, reporter.waiting(request.plan.image.filename), others=site.stores)
    image = kept_image(before, request, store, reporter) or fetched_image(request, layout, store, reporter)
    request = with_image(request, image.artifact)
    plan, image, found = with_found_wrappers(request.plan, before, image)
    plan, image, mpi = with_found_mpi(plan, before, image)
    if options.if_different and before and before.provenance.site == site.name and not difference(before, plan):
        return before, False  # another run has done it while we waited
    for told in (*(f"quirk {quirk}" for quirk in request.loaded.quirks), found, f"MPI: {mpi}" if mpi else ""):
        if told:
            reporter.say(told)
    # where its user released the image (see image.kept_image) the site's copy stays in use
    own = image.artifact.path.is_file() and not (options.module_only and before and released(before, plan))
    with referring(layout, plan.module, image.artifact.path if own else None, reporter) as mark:
        with staged_generation(layout, plan.module, held) as stage:
            stage.write((*render(plan, stage.number), _easyconfig(request), *_image_key(plan, image.artifact.sha256)))
            stage.write_stubs(render_stub(plan))
            stage.link(plan.image.filename, image.artifact.path)
            if mark:
                stage.link(LINK, mark)
            stage.link_user_software()
            _carry_over(stage, reporter)
            # its digest is of the request's plan, without the wrappers that were found in the image
            installation = stage.record(provenance(request, image.choice), image_record(plan, image.artifact))
            if not own:
                stage.unlink(plan.image.filename)
        if options.asked.checked and own:
            with store.workspace() as workspace:
                sanity_check(installation, plan, workspace, reporter.say)
        number = live_number(layout, plan.module)
        publish(layout, installation, held)
    record(layout, _done("rendered" if options.module_only else "installed", installation, number), held, reporter)
    return installation, True


def _easyconfig(request: Request) -> File:
    return File("easyconfig.yaml", request.loaded.path.read_text(encoding="utf-8"))


def _image_key(plan: Plan, sha256: str) -> tuple[File, ...]:
    """By which the module's layers are found, since they are made for one image; and the runtime that takes them."""
    return (File("share/image", f"{image_key(sha256)}\n{plan.runtime.path}\n"),) if plan.layers else ()


def _carry_over(stage: Stage, reporter: Reporter) -> None:
    taken = stage.carry_over()
    if taken.carried:
        reporter.say(f"your own files come along: {', '.join(taken.carried[:10])}")
    if taken.left:
        reporter.say(f"your own files stay in the last generation: {', '.join(taken.left[:10])}")


def _done(what: str, installation: Installation, before: int | None) -> Done:
    return Done(what, installation.module, before, installation.generation, installation.image.sha256)
