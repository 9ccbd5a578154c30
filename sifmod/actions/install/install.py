"""install: make the disk match one decision; a new generation is published after its checks."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.hooks import of_image, run_hooks
from sifmod.actions.image_marks import referring, renew
from sifmod.actions.install.choose_image import ChosenImage, fetch_image_for, image_record, released, reuse_image
from sifmod.actions.install.current import Compared, check_installed_from, compare, difference, plan_warnings
from sifmod.actions.install.decision import Decision, with_image
from sifmod.actions.install.found_in_image import find_in_image, found_by_lock, recorded
from sifmod.actions.install.hold import check_hold, has_files
from sifmod.actions.install.install_easyconfigs import InstallOutcome
from sifmod.actions.install.past_checks import PastChecks
from sifmod.actions.install.sanity_check import sanity_check
from sifmod.actions.layer.places import outgoing
from sifmod.actions.lock import check_files
from sifmod.actions.log import record, record_layer
from sifmod.actions.reporter import Reporter
from sifmod.actions.sharing import closed_image, rights
from sifmod.actions.view_modules import check_modules
from sifmod.errors import FetchError, SifmodError
from sifmod.module.plan import File, Plan
from sifmod.module.render import render, render_stub
from sifmod.system import abbreviated
from sifmod.tree.generation import (
    HeldModule,
    module_lock,
    publish,
    replace_provenance,
    restore,
    staged_generation,
    tidy,
)
from sifmod.tree.history import Past, read_past
from sifmod.tree.layer import image_key
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done
from sifmod.tree.mark import LINK
from sifmod.tree.receipt import Installation, live, live_number
from sifmod.tree.stage import Stage
from sifmod.tree.store import Store
from sifmod.tree.stored_image import stored_at

_LONG = 200  # characters of a path in a message


def install(decision: Decision, tree: Tree, reporter: Reporter) -> InstallOutcome:
    """Make the disk match the decision. Idempotent.

    Raises LockError, InstallError, PermissionsError, ModuleError, SanityCheckError, errors of a fetch; HeldError for
    content that was rolled back. Except by a hook `after_publish`, an error leaves the live generation unchanged.
    """
    module, site, layout = decision.plan.module, decision.site.site, tree.layout
    with changing_prefix(site):
        there = compare(layout, decision)
        if there.before and there.complete and not there.receipt:
            renew(layout, there.before)
            return InstallOutcome(there.before, "unchanged")  # no lock is needed; readers cannot take one
        for oddity in plan_warnings(there.before, decision):
            reporter.say(oddity)
        tidy(tree)
        with module_lock(tree, module) as mine:
            there = compare(layout, decision)  # another run may have installed it while this one waited
            if there.before and there.complete:
                if there.receipt:
                    replace_provenance(mine, there.before, there.receipt)
                return InstallOutcome(there.before, "unchanged")
            if there.before and _restored(mine, there, reporter):
                return InstallOutcome(there.before, "restored")
            check_installed_from(there.before, decision)
            past = read_past(mine.layout, mine.module)
            check_hold(past, decision)  # before a fetch; `_chosen` checks again, knowing the image
            return _new_generation(mine, past, decision, reporter)


def install_with_layers(decision: Decision, tree: Tree, reporter: Reporter) -> InstallOutcome:
    """Like `install`, with the layers of the decision's lock. Also raises the errors of `bring_layers`.

    The layers of another image than the live one are there before the module is published; an error removes them.
    """
    locked, stores, site = decision.locked, decision.options.stores, decision.site.site
    if not locked or not locked.layers:
        return install(decision, tree, reporter)
    from sifmod.actions.layer.locked_layers import BroughtLayer, bring_layers, check_layers, take_back

    check_layers(site.prefix, locked, stores, hashed=True)  # or the module would be published without them
    before, brought = live(tree.layout, locked.module), list[BroughtLayer]()
    unseen = before is None or before.image_sha256 != locked.digest
    with changing_prefix(site):
        try:
            if unseen:
                brought += bring_layers(locked, stores, site, tree)
            outcome = install(decision, tree, reporter)
        except BaseException:
            now = live(tree.layout, locked.module)  # after a failed hook `after_publish` the new one, which needs them
            if now is None or now.image_sha256 != locked.digest:
                with suppress(SifmodError):  # the error that led here is the one to report
                    take_back(brought, tree)
            raise
        if not unseen:
            brought += bring_layers(locked, stores, site, tree)
    for layers, made, replaced in brought:
        record_layer(layers, made, replaced, tree, reporter)
    return outcome._replace(state="restored") if brought and not outcome.changed else outcome


def _restored(mine: HeldModule, there: Compared, reporter: Reporter) -> bool:
    """Restore missing links and stubs; returns whether that was enough. Changed files need a new generation."""
    before = there.before
    if before is None or not there.current:
        return False
    for path in there.edited:
        reporter.say(f"{path} was changed or removed; a new generation restores it")
    if there.edited or (before.image and not Path(before.image.path).is_file()):
        return False
    reporter.say(f"restoring: {'; '.join(there.missing)}")
    restore(mine, before)
    done = Done("restored", mine.module, before.generation, before.generation, before.image_sha256 or None)
    record(mine.layout, done, mine.held, reporter)
    return True


class _Chosen(NamedTuple):
    """The parts of a new generation, once its image is in the store and was searched."""

    decision: Decision
    plan: Plan
    image: ChosenImage | None  # None for a view
    notes: tuple[str, ...]


def _new_generation(mine: HeldModule, past: Past, decision: Decision, reporter: Reporter) -> InstallOutcome:
    options, site, layout, before = decision.options, decision.site.site, mine.layout, past.live
    run_hooks(site, "before_install", decision.hooked, reporter.say)
    if site.hooks:
        decision = replace(decision)  # a copy reads local files of the image again, which the hooks may have changed
    waiting = reporter.waiting(decision.plan.image.filename if decision.plan.image else mine.module)
    store = Store(layout, mine.held, waiting, others=decision.stores)
    decision, plan, image, notes = chosen = _chosen(mine, past, decision, store, reporter)
    # `rerender` sets `if_different`: the generation that was live when it decided
    another = before and options.if_different not in (None, before.generation)
    if another and before and before.provenance.site == site.name and not difference(before, plan).text:
        return InstallOutcome(before, "unchanged")  # another run installed it while this one waited
    for note in notes:
        reporter.say(note)
    # the user removed the image's link in favour of the site's copy, which stays in use (see `reuse_image`)
    gone = image and options.module_only and before and released(before, plan)
    path = image.artifact.path if image and not gone else None
    own = own_files(plan, decision, image.artifact.sha256 if image else "")
    if decision.locked:
        check_files(decision.locked, plan, own, decision.differing)
    if path and not path.is_file():
        raise FetchError(f"{path} was removed meanwhile, as by gc", "repeat the command")
    if path and plan.required_image.link == "reference" and (wanted := rights(site)):
        for closed in closed_image(wanted, path, plan.module):
            reporter.say(f"warning: {closed}")
    with referring(layout, plan.module, path, reporter) as mark:
        with staged_generation(mine) as stage:
            installation = _write(stage, chosen, own, mark, reporter)
            if image and not path:
                stage.unlink(plan.required_image.filename)
        if options.asked.checked and path:
            with store.workspace() as workspace:
                known = PastChecks(options.checked_since, options.beside)
                skipped = lambda why: reporter.say(f"sanity check: {why}")  # noqa: E731
                sanity_check(installation, plan, workspace, skipped, known=known)
        _publish(mine, past, installation, decision, reporter)
    brought = decision.locked.layers if decision.locked else ()
    left = outgoing(before, installation.image_sha256, os.environ, brought) if before else ()
    return InstallOutcome(installation, "installed", left)


def _chosen(mine: HeldModule, past: Past, decision: Decision, store: Store, reporter: Reporter) -> _Chosen:
    """The image, and the plan with the results from it. Raises HeldError for content that was rolled back."""
    if decision.plan.image is None:
        return _Chosen(decision, decision.plan, None, check_modules(decision, mine.layout, os.environ))
    image = reuse_image(past.live, decision, store, reporter) or fetch_image_for(decision, mine.tree, store, reporter)
    # hooks changed local files of the image: a copy reads them again; a `kept` image has another request anyway
    if image.choice.request != decision.image.request and not image.choice.kept:
        decision = replace(decision)
    decision = with_image(decision, image.artifact)
    found, image, said = find_in_image(decision.plan, past.live, image)
    plan = decision.plan_with(found)
    check_hold(past, decision, plan, image.artifact)
    return _Chosen(decision, plan, image, (*(f"quirk {quirk}" for quirk in decision.loaded.quirks), *said))


def _write(stage: Stage, chosen: _Chosen, own: tuple[File, ...], mark: Path | None, reporter: Reporter) -> Installation:
    """Write the rendered files, the `own` files (see `own_files`), links and receipt."""
    decision, plan, image, _ = chosen
    stage.write((*render(plan, stage.number), *own))
    stage.write_stubs(render_stub(plan))
    if image:
        stage.link(plan.required_image.filename, image.artifact.path)
        if mark:
            stage.link(LINK, mark)
        stage.link_user_software()
    _carry_over(stage, reporter)
    made = decision.provenance._replace(image=image.choice if image else decision.image)
    return stage.record(made, image_record(plan, image.artifact) if image else None, plan.modules)


def _publish(mine: HeldModule, past: Past, installation: Installation, decision: Decision, reporter: Reporter) -> None:
    number = live_number(mine.layout, mine.module)
    site, facts = decision.site.site, decision.hooked.copy()
    facts["generation"], facts["path"] = installation.generation, installation.root
    if decision.plan.image:
        facts["image"] = of_image(decision.plan.image, installation.image)
    run_hooks(site, "after_install", facts, reporter.say)
    run_hooks(site, "before_publish", facts, reporter.say)
    same = (
        not decision.options.despite_hold and bool(past.held) and _has_same_content(past.last, installation, decision)
    )
    publish(mine, installation, same_content=same)
    what = "rendered" if decision.options.module_only else "installed"
    done = Done(what, mine.module, number, installation.generation, installation.image_sha256 or None)
    record(mine.layout, done, mine.held, reporter)
    run_hooks(site, "after_publish", facts, reporter.say)


def _has_same_content(before: Installation | None, installation: Installation, decision: Decision) -> bool:
    """Whether an installation keeps the holds: no new image, and no new easyconfig except its path and description.

    What the site or another sifmod changes does not end them, nor what is only rendered again; nor is anything known to
    be new without `before`.
    """
    if before is None or decision.options.if_different is not None:
        return True
    was, now = before.provenance, installation.provenance
    if (decision.locked or decision.options.force) and before.image_sha256 != installation.image_sha256:
        return False  # such as what a moved tag names now
    if (was.image.request, was.plan_digest) == (now.image.request, now.plan_digest):
        return True
    if before.image_sha256 != installation.image_sha256:
        return False
    asked = (was.variant, was.asked.options) == (now.variant, now.asked.options)
    if asked and {*decision.loaded.inputs} <= {*was.inputs}:
        return True
    return has_files(before, decision.plan_with(recorded(decision.plan, before)), words=False)


def own_files(plan: Plan, decision: Decision, sha256: str) -> tuple[File, ...]:
    """The files of a generation that are not rendered: its easyconfig, and the key for its layers.

    Layers belong to one image, identified by the start of its digest, and to the runtime that reads them.
    """
    easyconfig = File("easyconfig.yaml", decision.loaded.path.read_text(encoding="utf-8"))
    if not plan.layers:
        return (easyconfig,)
    return easyconfig, File("share/image", f"{image_key(sha256)}\n{plan.runtime.path}\n")


def check_locked(before: Installation | None, decision: Decision) -> bool:
    """Raise InstallError unless the decided install gives the files of its lock.

    False if only the image itself can tell, because its commands or MPI are unknown here.
    """
    locked, plan = decision.locked, decision.plan
    if locked is None:
        return True
    if image := locked.image:
        decision = with_image(decision, image)
        places = (decision.site.site.prefix, *decision.stores)
        stored = next(filter(None, (stored_at(place, image.sha256) for place in places)), None)
        found = found_by_lock(decision.plan, image, before, stored)
        if found is None:
            return False
        plan = decision.plan_with(found)
    check_files(locked, plan, own_files(plan, decision, locked.digest), decision.differing)
    return True


def _carry_over(stage: Stage, reporter: Reporter) -> None:
    taken = stage.carry_over()
    if taken.carried:
        reporter.say(f"your own files were carried over: {_paths(taken.carried)}")
    if taken.left:
        reporter.say(f"your own files stay in the previous generation: {_paths(taken.left)}")


def _paths(paths: tuple[str, ...]) -> str:
    return abbreviated([path if len(path) <= _LONG else f"{path[:_LONG]}…" for path in paths], 10)
