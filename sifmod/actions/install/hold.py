"""Refuse an install that would restore content that was rolled back."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmod.actions.install.current import difference
from sifmod.actions.install.decision import Decision
from sifmod.actions.install.found_in_image import recorded
from sifmod.actions.lock import LockedImage
from sifmod.config.yaml.parse import load_yaml
from sifmod.config.yaml.validate import plain
from sifmod.errors import ConfigError, HeldError
from sifmod.image.artifact import Artifact
from sifmod.module.jobscript import about_from_json
from sifmod.module.plan import Plan
from sifmod.tree.durable import parsed
from sifmod.tree.history import Past, format_held
from sifmod.tree.receipt import Installation


def check_hold(past: Past, decision: Decision, plan: Plan | None = None, image: Artifact | None = None) -> None:
    """Raise HeldError if the install would, or may, restore the content of a held generation; fetches nothing.

    `image` is the image, and `plan` includes the results from it, if it is there already.
    """
    if decision.options.despite_hold:
        return
    for number, since, held in past.held:
        if held is None or _brings_back(held, past.last, decision, plan, image):
            why = "" if held else ", and its receipt cannot be read, so no difference can be shown"
            module = decision.plan.module
            raise HeldError(
                f"{module} was rolled back from the same content: {format_held({number: since})}{why}",
                f"`sifmod rollback --release {module}` releases it",
            )


def _brings_back(
    held: Installation, before: Installation | None, decision: Decision, plan: Plan | None, image: Artifact | None
) -> bool:
    """Whether the install would restore what the rollback from `held` undid.

    The rollback undid the image of `held` if `before` has another one, whatever the module says about itself. Otherwise
    it undid what the module does with the image; if `before` does the same, what the module says about itself. An
    easyconfig that equals that of `held` but for comments counts too, so that a changed site or another sifmod version
    is no new content. Without `before` nothing says what the rollback undid: what equals `held` is held.
    """
    if not _has_image(held, before, decision, image):
        return False
    if held.image and before and before.image_sha256 != held.image_sha256:
        return True
    plan = plan or decision.plan_with(recorded(decision.plan, held))
    # with words: a description alone may be what was undone; without: a new description makes no new content
    for words in (True, False):
        if has_files(held, plan, words) and not (before and has_files(before, plan, words)):
            return True
    asked, was = _content(decision.loaded.path), _content(Path(held.root, "easyconfig.yaml"))
    if asked is None or asked != was or decision.loaded.variant != held.provenance.variant:
        return False
    return not before or (_content(Path(before.root, "easyconfig.yaml")) != was and not has_files(before, plan))


def has_files(installation: Installation, plan: Plan, words: bool = True) -> bool:
    """Whether the plan renders the installation's files, apart from where easyconfig and image were found.

    Without `words`, what the module says about itself, such as its description, may differ too.
    """
    made = installation.provenance
    options = [word for name, value in made.asked.options if value for word in (name, value)]
    options = [*(("--variant", made.variant) if made.variant else ()), *options]
    path = os.path.realpath(made.easyconfig)
    typed = [shlex.join((name, *options)) for name in (path, Path(path).name)]  # a name, if it was found by name
    # what the module says about itself and its image; None if that cannot be read
    said = parsed(Path(installation.root, "share/job.json"), about_from_json)
    about = replace(plan.help, origin=said.origin) if said else plan.help
    if said and not words:
        plan = replace(plan, help=replace(said, origin=plan.help.origin))
        about = said
    return any(
        not difference(installation, each).text
        for place in _as_placed(plan, installation)
        for each in (place, *(replace(place, easyconfig=command, help=about) for command in typed))
    )


def _as_placed(plan: Plan, installation: Installation) -> Iterator[Plan]:
    """The plan, and the plan with the image's file name and source from `installation`."""
    yield plan
    if plan.image and (image := installation.image):
        yield replace(plan, image=replace(plan.image, filename=image.filename, sources=(image.source,)))


def _has_image(held: Installation, before: Installation | None, decision: Decision, image: Artifact | None) -> bool:
    wanted, options, locked = decision.plan.image, decision.options, decision.locked
    if wanted is None or held.image is None:
        return wanted is None and held.image is None
    if image or locked:
        known = image or (locked.image if locked else None)
        return known is not None and (held.image_sha256 == known.sha256 or _is_made_from(known, held, before))
    if options.module_only:
        return before is None or held.image_sha256 == before.image_sha256
    if options.force:
        was = held.image.origin
        return options.moved_to in filter(None, (was.index, was.manifest))  # if unknown: known once it is fetched
    return held.image_sha256 == wanted.sha256 or held.provenance.image.request == decision.image.request


def _is_made_from(image: Artifact | LockedImage, held: Installation, before: Installation | None) -> bool:
    """Whether an image is that of `held`, converted otherwise or taken from another place; not if `before` has it too.

    A recipe with the same inputs may give another content, so it does not count.
    """
    manifest = image.origin.manifest
    if not manifest or image.source.startswith("build:"):
        return False
    was, then = held.image, before.image if before else None
    return was is not None and was.origin.manifest == manifest and not (then and then.origin.manifest == manifest)


def _content(path: Path) -> object:
    """The content of an easyconfig without comments; None if it cannot be read."""
    try:
        return plain(load_yaml(path).node)
    except ConfigError:
        return None
