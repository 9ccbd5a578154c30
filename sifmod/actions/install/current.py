"""Compare the live generation with the decision: whether to install, and what an install would do."""

import os
from collections.abc import Iterator
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from sifmod import __version__
from sifmod.actions import sharing
from sifmod.actions.install.decision import Decision
from sifmod.actions.install.found_in_image import recorded, recorded_commands
from sifmod.actions.layer.places import OutgoingLayer, layer_warnings, outgoing
from sifmod.config.redact import shown
from sifmod.config.version import version_key
from sifmod.errors import InstallError
from sifmod.image.program import probe_runtime
from sifmod.module.plan import Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.durable import content
from sifmod.tree.history import read_history
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import Provenance
from sifmod.tree.receipt import Installation, live, numbers
from sifmod.tree.stage import STUBS
from sifmod.tree.state import edited, edited_stubs, missing


class Compared(NamedTuple):
    """The live generation, compared with the decision."""

    before: Installation | None  # None: no generation is live
    current: bool = False  # made from this plan and the requested image; False with `rebuild`
    edited: tuple[str, ...] = ()  # if it is current: changed files, which need a new generation
    missing: tuple[str, ...] = ()  # if it is current: links and stubs to restore, a few words each
    # if it is complete: a new provenance for its receipt, so that the next run needs no parsing; None: no change
    receipt: Provenance | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing has to be made or restored."""
        return self.current and not self.edited and not self.missing


def compare(layout: Layout, decision: Decision) -> Compared:
    """Compare the decision with the live generation."""
    before = live(layout, decision.plan.module)
    if before is None or decision.options.rebuild:
        return Compared(before)
    made = before.provenance
    current = (made.image.request, made.plan_digest) == (decision.image.request, decision.digest)
    if not current or (decision.locked and before.image_sha256 != decision.locked.digest):
        return Compared(before)
    found = Compared(before, True, edited(before), (*missing(layout, before), *edited_stubs(layout, before)))
    if not found.complete or not os.access(before.root, os.W_OK):
        return found
    # the new receipt still says how the image was chosen, and whether the module was checked
    image = made.image._replace(directories=decision.image.directories)
    asked = decision.options.asked._replace(checked=made.asked.checked)
    receipt = decision.provenance._replace(image=image, asked=asked)
    return found._replace(receipt=receipt if receipt != made else None)


def check_installed_from(before: Installation | None, decision: Decision) -> None:
    """Raise InstallError if a later sifmod made the installation, unless `rebuild`."""
    made = before.provenance.sifmod if before else ""
    if made and not decision.options.rebuild and version_key(made) > version_key(__version__):
        which = f"sifmod {made} has installed {decision.plan.module}, and this is {__version__}"
        raise InstallError(
            f"{which}, which would render different files",
            "update this sifmod; --rebuild installs the module with this one",
        )


def outgoing_layers(before: Installation | None, decision: Decision) -> tuple[OutgoingLayer, ...]:
    """The user's layers that will not fit the new image, or may not, if that image is unknown yet."""
    image, options = decision.plan.image, decision.options
    if before is None or image is None or options.module_only:
        return ()
    if decision.locked:
        return outgoing(before, decision.locked.digest, os.environ, decision.locked.layers)
    if not options.force and before.provenance.image.request == decision.image.request:
        return ()
    return outgoing(before, None if image.conversion else image.sha256, os.environ)


def plan_warnings(before: Installation | None, decision: Decision) -> Iterator[str]:
    """Warnings for the user before the install."""
    plan = decision.plan
    yield from (f"warning: {oddity}" for oddity in sharing.sharing_warnings(decision.site.site))
    if before and os.path.realpath(before.provenance.easyconfig) != os.path.realpath(decision.loaded.path):
        yield f"{plan.module} was installed from a different easyconfig before: {before.provenance.easyconfig}"
    yield from layer_warnings(outgoing_layers(before, decision))
    if why := plan.help.driver:
        yield f"warning: {plan.module} has {why}: expect it to fail on a GPU"
    if not plan.runtime.path:
        yield (
            f"the site's runtime (apptainer or singularity) was not found: {plan.module} can be installed and loaded, "
            "but not run on this machine"
        )
    elif plan.image and (program := probe_runtime(plan.runtime.path)) and program.unbound:
        yield f"warning: {plan.runtime.path}: {program.unbound}"


class Diff(NamedTuple):
    """A diff of a module's files, and its counts; the text is "" if nothing changes."""

    text: str
    files: int
    added: int  # lines
    removed: int


def difference(installation: Installation, plan: Plan) -> Diff:
    """The diff from the installed files, without the stubs, to those that the plan renders now."""
    root = Path(installation.root)
    after = {file.path: file.text for file in render(plan, installation.generation)}
    ours = [file.path for file in installation.files if not file.path.startswith(f"{STUBS}/")]
    before = {path: _text(root / path) for path in ours if path not in ("easyconfig.yaml", "share/image")}
    lines: list[str] = []
    files = added = removed = 0
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        name = f"{installation.module}/{path}"
        old, new = (texts.get(path, "").splitlines() for texts in (before, after))
        ends = (name if path in before else "/dev/null", name if path in after else "/dev/null")
        found = list(unified_diff(old, new, *ends, lineterm=""))
        body = found[2:]  # after the two names
        lines += found
        files += 1
        added += sum(line.startswith("+") for line in body)
        removed += sum(line.startswith("-") for line in body)
    return Diff("\n".join(lines), files, added, removed)


def _text(path: Path) -> str:
    with suppress(OSError):
        return (content(path) or b"").decode(errors="replace")
    return ""  # the install restores it


def overview(decision: Decision) -> tuple[str, ...]:
    """The decisions to show before an install, one per line."""
    plan = decision.plan
    layout = Layout(Path(plan.prefix))
    runtime = f"{plan.runtime.kind} ({plan.runtime.path or 'not found here'})"
    before = live(layout, plan.module)
    return (
        f"site         {decision.site.site.name}, accelerator {plan.accelerator}, runtime {runtime}",
        f"variant      {decision.loaded.variant or '-'}",
        f"modulefile   {', '.join(str(layout.module_file(plan.module, syntax)) for syntax in plan.syntaxes)}",
        f"software     {layout.switch(plan.module)}",
        *_image(plan),
        *(f"bind         {bind}{' (optional)' if bind.optional else ''}" for bind in plan.binds),
        *((f"wrappers     {_wrappers(decision, before)}",) if plan.image else ()),
        *layer_warnings(outgoing_layers(before, decision)),
    )


def _image(plan: Plan) -> tuple[str, ...]:
    """The image's sources, or the modules that a view loads."""
    image = plan.image
    if image is None:
        return tuple(f"loads        {module}" for module in plan.modules)
    sources = tuple(map(shown, image.sources)) or (f"build {image.build}",)
    promise = image.sha256 or "not given: install prints it"
    return (*(f"image        {source}" for source in sources), f"sha256       {promise}")


def _wrappers(decision: Decision, before: Installation | None) -> str:
    """The wrapper names; for `auto`, those found in the installed image."""
    plan = decision.plan
    known = decision.plan_with(recorded(plan, before))
    there = before and recorded_commands(plan, before.image_sha256, (before.provenance.image,))
    open_yet = plan.wrappers_auto and not there
    later = ("(auto: commands found in the image)",) if open_yet else ()
    return " ".join((*(wrapper.name for wrapper in known.wrappers), *later, *known.packers))


def texts(decision: Decision) -> tuple[tuple[str, str], ...]:
    """Every rendered file that an install would write, as (absolute path, text).

    Exact, except for what an image decides that no receipt describes yet: `auto` wrappers, its MPI, quirks for its
    digest.
    """
    layout = Layout(Path(decision.plan.prefix))
    before = live(layout, decision.plan.module)
    plan = decision.plan_with(recorded(decision.plan, before))
    used = {event.generation or 0 for event in read_history(layout, plan.module)}
    number = 1 + max((*used, *numbers(layout, plan.module)), default=0)
    root = layout.generation(plan.module, number)
    files = [(str(root / file.path), file.text) for file in render(plan, number)]
    stubs = [(str(layout.modules / file.path), file.text) for file in render_stub(plan)]
    return tuple(files + stubs)
