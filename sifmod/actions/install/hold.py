"""A rollback holds: which generation that was rolled back from an install would bring back."""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmod.actions.install.choose_image import image_request
from sifmod.actions.install.current import difference
from sifmod.actions.install.found_in_image import with_recorded
from sifmod.actions.install.request import InstallRequest
from sifmod.config.yaml.node import Node
from sifmod.config.yaml.parse import load_yaml
from sifmod.errors import ConfigError, HeldError
from sifmod.module.plan import Plan
from sifmod.tree.history import held_since, in_words, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, read_receipt


def check_hold(
    layout: Layout, before: Installation | None, request: InstallRequest, plan: Plan | None = None, image: str = ""
) -> None:
    """Raise HeldError where the install would bring back what is held; nothing is fetched to know that.

    `image` is the digest of the image that was found, and `plan` what became of the request by it.
    """
    if before is None or request.options.despite_hold:
        return
    module = before.module
    for number, since in held_since(read_history(layout, module)).items():
        held = read_receipt(layout.generation(module, number))
        if held is None or _brings_back(held, before, request, plan or with_recorded(request.plan, held), image):
            why = "" if held else ", and its receipt cannot be read, so nothing is known to differ from it"
            raise HeldError(
                f"{module} was rolled back from this content: {in_words({number: since})}{why}",
                f"`sifmod rollback --release {module}` releases it",
            )


def _brings_back(held: Installation, before: Installation, request: InstallRequest, plan: Plan, image: str) -> bool:
    """Whether it would have the image of `held`, and its files or its easyconfig.

    The easyconfig tells where it is what `held` differs in from the live generation: then neither a comment, nor a
    site that has changed, nor another sifmod makes it other content.
    """
    if not _has_image(held, before, request, image):
        return False
    if _has_files(held, plan):  # nor is it held where what is live is just that
        return before.image_sha256 != held.image_sha256 or not _has_files(before, plan)
    asked, was = _content(request.loaded.path), _content(Path(held.root, "easyconfig.yaml"))
    same = asked is not None and asked == was and request.loaded.variant == held.provenance.variant
    live = _content(Path(before.root, "easyconfig.yaml"))
    return same and (before.image_sha256 != held.image_sha256 or live != was)


def _has_files(installation: Installation, plan: Plan) -> bool:
    """Whether the plan renders its files, whatever they say of where easyconfig and image were found."""
    made = installation.provenance
    options = [word for name, value in made.asked.options if value for word in (name, value)]
    options = [*(("--variant", made.variant) if made.variant else ()), *options]
    path = os.path.realpath(made.easyconfig)
    typed = [shlex.join((name, *options)) for name in (path, Path(path).name)]  # a name where it was found by that
    about = replace(plan.help, origin=_origin(installation))
    return any(
        not difference(installation, each)
        for place in _as_placed(plan, installation)
        for each in (place, *(replace(place, easyconfig=words, help=about) for words in typed))
    )


def _as_placed(plan: Plan, installation: Installation) -> Iterator[Plan]:
    """The plan, and as it would be with the image of `installation` under the name and from the place of there."""
    yield plan
    if plan.image and (image := installation.image):
        yield replace(plan, image=replace(plan.image, filename=image.filename, sources=(image.source,)))


def _origin(installation: Installation) -> str:
    """Where the module says that its image is from."""
    try:
        return str(json.loads(Path(installation.root, "share/job.json").read_bytes())["about"]["origin"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _has_image(held: Installation, before: Installation, request: InstallRequest, image: str) -> bool:
    plan, options = request.plan, request.options
    if plan.image is None or held.image is None:
        return plan.image is None and held.image is None
    if image or options.locked:
        return held.image_sha256 == (image or (options.locked.digest if options.locked else ""))
    if options.module_only:
        return held.image_sha256 == before.image_sha256
    if options.force:
        return False  # it is fetched, and then known
    return held.image_sha256 == plan.image.sha256 or held.provenance.image.request == image_request(plan)


def _content(path: Path) -> object:
    """What an easyconfig says, without its comments; None where it cannot be read."""
    try:
        return _plain(load_yaml(path).node)
    except ConfigError:
        return None


def _plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: _plain(one) for key, one in node.value.items()}
    return [_plain(one) for one in node.value] if isinstance(node.value, tuple) else node.value
