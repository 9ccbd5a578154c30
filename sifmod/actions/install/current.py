"""Whether what is installed is what a request asks for, what its receipt says of that, and what an install would do."""

import json
import os
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from sifmod import __version__
from sifmod.actions import sharing
from sifmod.actions.install.choose_image import image_request
from sifmod.actions.install.found_in_image import recorded_commands, with_recorded
from sifmod.actions.install.request import InstallRequest
from sifmod.actions.layer.outgoing import OutgoingLayer, in_words, outgoing
from sifmod.config.find import own_path, places_before
from sifmod.config.input import read_input
from sifmod.config.shown import shown
from sifmod.config.version import version_key
from sifmod.digest import sha256_bytes
from sifmod.errors import InstallError
from sifmod.image.program import ask
from sifmod.module.deciding import deciding
from sifmod.module.plan import Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.history import read_history
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import ImageChoice, Provenance
from sifmod.tree.receipt import Installation, live, numbers
from sifmod.tree.stage import STUBS
from sifmod.tree.state import edited, edited_stubs, missing


def plan_digest(plan: Plan) -> str:
    """One digest of all that decides an installation: what this sifmod renders from the plan, and what `deciding` says.

    The prefix decides nothing, so that a tree that was moved has what its easyconfigs ask for.
    """
    files = [(file.path, file.text, file.executable) for file in (*render(plan, 0), *render_stub(plan))]
    decided = {"image": image_request(plan), "files": files, **deciding(plan)}
    return sha256_bytes(json.dumps(decided, sort_keys=True).encode())


def is_current(before: Installation, request: InstallRequest) -> bool:
    """Whether `before` was made from this plan, with the image that it asks for; its files are not looked at."""
    made, plan, locked = before.provenance, request.plan, request.options.locked
    if locked and before.image_sha256 != locked.digest:
        return False
    return made.plan_digest == plan_digest(plan) and made.image.request == image_request(plan)


def check_made_by(before: Installation | None, request: InstallRequest) -> None:
    """Raise InstallError where a later sifmod has made what this one would replace; not with `rebuild`."""
    made = before.provenance.sifmod if before else ""
    if made and not request.options.rebuild and version_key(made) > version_key(__version__):
        told = f"sifmod {made} has installed {request.plan.module}, and this is {__version__}"
        raise InstallError(
            f"{told}, which would make other files",
            "update this sifmod; --rebuild installs the module with this one",
        )


def is_complete(layout: Layout, before: Installation, request: InstallRequest) -> bool:
    """Whether `before` is current and all its files, links and stubs are in place and unedited; not with `rebuild`."""
    if request.options.rebuild or not is_current(before, request):
        return False
    return not (missing(layout, before) or edited(before) or edited_stubs(layout, before))


def provenance(request: InstallRequest, choice: ImageChoice) -> Provenance:
    """What the receipt of an installation made now says."""
    plan, site, loaded = request.plan, request.site, request.loaded
    # the files that the name it was asked by would have meant rather than this easyconfig
    nearer = places_before(loaded.path, request.options.asked.name, site.site.robot_paths)
    inputs = (*request.inputs, *(read_input(str(place), os.environ) for place in nearer))
    return Provenance(
        sifmod=__version__,
        easyconfig=own_path(loaded.path),
        version=plan.version,
        variant=loaded.variant,
        site=site.site.name,
        accelerator=plan.accelerator,
        inputs=tuple(dict.fromkeys(inputs)),
        facts=site.facts,
        asked=request.options.asked,
        image=choice._replace(directories=tuple(plan.image.image_dirs if plan.image else ())),
        plan_digest=plan_digest(plan),
    )


def provenance_to_write(before: Installation, request: InstallRequest) -> Provenance | None:
    """The provenance that the receipt should hold now, so that the next run recognises it without parsing.

    None where the receipt is up to date, or cannot be rewritten. Whether the installation was checked stays as it was.
    """
    made = provenance(request, before.provenance.image)
    made = made._replace(asked=made.asked._replace(checked=before.provenance.asked.checked))
    writable = os.access(before.root, os.W_OK)
    return made if writable and made != before.provenance else None


def outgoing_layers(before: Installation | None, request: InstallRequest) -> tuple[OutgoingLayer, ...]:
    """Layers of this user's that the request leaves without their image, as far as that is known beforehand."""
    image, options = request.plan.image, request.options
    if before is None or image is None or options.module_only:
        return ()
    if options.locked:
        return outgoing(before, options.locked.digest, os.environ)
    if not options.force and before.provenance.image.request == image_request(request.plan):
        return ()
    return outgoing(before, None if image.conversion else image.sha256, os.environ)


def oddities(before: Installation | None, request: InstallRequest) -> Iterator[str]:
    """What a user should know before anything is done."""
    plan = request.plan
    yield from (f"warning: {oddity}" for oddity in sharing.oddities(request.site.site))
    if before and os.path.realpath(before.provenance.easyconfig) != os.path.realpath(request.loaded.path):
        yield f"another easyconfig has given {plan.module} before: {before.provenance.easyconfig}"
    yield from in_words(outgoing_layers(before, request))
    if not plan.runtime.path:
        yield f"neither apptainer nor singularity is here: {plan.module} can be installed and loaded, but not used here"
    elif plan.image and (program := ask(plan.runtime.path)) and program.unbound:
        yield f"warning: {plan.runtime.path}: {program.unbound}"


def difference(installation: Installation, plan: Plan) -> str:
    """A diff from the installed files to what the plan renders now; "" where nothing changes."""
    root = Path(installation.root)
    after = {file.path: file.text for file in render(plan, installation.generation)}
    ours = [file.path for file in installation.files if not file.path.startswith(f"{STUBS}/")]
    before = {path: _text(root / path) for path in ours if path not in ("easyconfig.yaml", "share/image")}
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        name = f"{installation.module}/{path}"
        old, new = (texts.get(path, "").splitlines() for texts in (before, after))
        ends = (name if path in before else "/dev/null", name if path in after else "/dev/null")
        lines += unified_diff(old, new, *ends, lineterm="")
    return "\n".join(lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""  # it comes back


def status_sign(request: InstallRequest) -> str:
    """EasyBuild's sign: `x` installed, `F` forced, `R` rebuilt, blank to install."""
    if request.options.force:
        return "F"
    layout = Layout(Path(request.plan.prefix))
    before = live(layout, request.plan.module)
    if before is None:
        return " "
    return "x" if is_complete(layout, before, request) else "R"


def overview(request: InstallRequest) -> tuple[str, ...]:
    """The decisions a user wants to see before an install, a line each."""
    plan = request.plan
    layout = Layout(Path(plan.prefix))
    runtime = f"{plan.runtime.kind} ({plan.runtime.path or 'not found here'})"
    before = live(layout, plan.module)
    return (
        f"site         {request.site.site.name}, accelerator {plan.accelerator}, runtime {runtime}",
        f"variant      {request.loaded.variant or '-'}",
        f"modulefile   {', '.join(str(layout.module_file(plan.module, syntax)) for syntax in plan.syntaxes)}",
        f"software     {layout.switch(plan.module)}",
        *_image(plan),
        *(f"bind         {bind}{' (optional)' if bind.optional else ''}" for bind in plan.binds),
        *((f"wrappers     {_wrappers(plan, before)}",) if plan.image else ()),
        *in_words(outgoing_layers(before, request)),
    )


def _image(plan: Plan) -> tuple[str, ...]:
    """Where the image comes from; of a view, what it loads."""
    image = plan.image
    if image is None:
        return tuple(f"loads        {module}" for module in plan.modules)
    sources = tuple(map(shown, image.sources)) or (f"build {image.build}",)
    promise = image.sha256 or "not stated: install prints it"
    return (*(f"image        {source}" for source in sources), f"sha256       {promise}")


def _wrappers(plan: Plan, before: Installation | None) -> str:
    """Their names; those that `auto` finds as they were found in the image that is installed."""
    known = with_recorded(plan, before)
    open_yet = plan.wrappers_auto and not (before and recorded_commands(plan, before, before.image_sha256))
    later = ("(auto: those found in the image)",) if open_yet else ()
    return " ".join((*(wrapper.name for wrapper in known.wrappers), *later, *known.packers))


def texts(request: InstallRequest) -> tuple[tuple[str, str], ...]:
    """Every file that would be written, as (path, text); exact, since rendering needs no image.

    Except for what an image decides that no receipt describes yet: the wrappers of `auto`, its MPI, quirks for its
    digest.
    """
    layout = Layout(Path(request.plan.prefix))
    before = live(layout, request.plan.module)
    plan = with_recorded(request.plan, before)
    used = {event.generation or 0 for event in read_history(layout, plan.module)}
    number = 1 + max((*used, *numbers(layout, plan.module)), default=0)
    root = layout.generation(plan.module, number)
    files = [(str(root / file.path), file.text) for file in render(plan, number)]
    stubs = [(str(layout.modules / file.path), file.text) for file in render_stub(plan)]
    return tuple(files + stubs)
