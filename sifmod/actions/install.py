"""install: make the disk match one easyconfig."""

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sifmod import __version__
from sifmod.actions.ownership import ownership
from sifmod.actions.sanity import sanity_check
from sifmod.actions.sources import announced_size, check_sources, local_files
from sifmod.actions.unchanged import KEPT, Options, file_state
from sifmod.config.input import Input, read_input
from sifmod.config.load import LoadedEasyconfig, Overrides, load_easyconfig
from sifmod.config.settings import LoadedSite
from sifmod.digest import sha256_bytes
from sifmod.errors import ModuleError
from sifmod.image.artifact import Artifact, Progress, no_progress
from sifmod.image.fetch import fetch_image
from sifmod.module.decide import Choices, make_plan
from sifmod.module.file import File
from sifmod.module.plan import Plan, Syntax
from sifmod.module.render import render, render_stub
from sifmod.tree.generation import module_lock, publish, restore, staged_generation, tidy
from sifmod.tree.layout import Layout
from sifmod.tree.lock import lock
from sifmod.tree.receipt import ImageRecord, Installation, Provenance, live
from sifmod.tree.stage import Stage
from sifmod.tree.state import missing
from sifmod.tree.store import Store

IMAGE_REQUEST = "image request"


@dataclass(frozen=True)
class InstallOptions:
    """What the command line asks of one install."""

    variant: str | None = None
    source: str | None = None
    rebuild: bool = False  # a new generation even where nothing has changed
    force: bool = False  # the same, and the image is fetched again
    module_only: bool = False  # render again, with the image that is there
    offline: bool = False
    sanity: bool = True
    recorded: Options = ()  # the command line, as the receipt keeps it


@dataclass(frozen=True)
class Listener:
    """Whoever is told what is going on."""

    say: Callable[[str], None]
    progress: Progress = no_progress
    # asked before an image of this many bytes (None: not known) goes where the user has not said it may
    may_fetch: Callable[[Plan, int | None], None] = field(default=lambda plan, size: None)  # noqa: ARG005


@dataclass(frozen=True)
class Request:
    """An install that has been decided: what to do, for what, from what."""

    plan: Plan
    loaded: LoadedEasyconfig
    site: LoadedSite
    options: InstallOptions


def decide(easyconfig: Path, site: LoadedSite, options: InstallOptions) -> Request:
    """Load and plan, without touching the tree; raises ConfigError, VariantError, OptionError."""
    source: Overrides = {"image.sources": (options.source,)} if options.source is not None else {}
    loaded = load_easyconfig(easyconfig, site, options.variant, source, os.environ)
    check_sources(loaded)
    again = _again(loaded, site, options)
    plan = make_plan(loaded.easyconfig, site.site, Choices(again, site.site.link, options.offline))
    layout = Layout(Path(plan.prefix))  # a prefix that cannot be one is refused before anything is done
    return Request(replace(plan, syntaxes=_syntaxes(layout, plan)), loaded, site, options)


def _syntaxes(layout: Layout, plan: Plan) -> tuple[Syntax, ...]:
    """The plan's syntaxes and those installed already, so that a shell can unload after a reinstall what it loaded."""
    before = live(layout, plan.module)
    there = {"lua" if stub.path.endswith(".lua") else "tcl" for stub in before.stubs} if before else set()
    known: tuple[Syntax, ...] = ("lua", "tcl")
    return tuple(syntax for syntax in known if syntax in there or syntax in plan.syntaxes)


def _again(loaded: LoadedEasyconfig, site: LoadedSite, options: InstallOptions) -> str:
    """The words after `sifmod install` that bring this module back: a name where that finds the file, else its path."""
    path = Path(os.path.realpath(loaded.path))
    found = any(path.is_relative_to(os.path.realpath(directory)) for directory in site.site.robot_paths)
    given = {"--variant": loaded.variant, **dict(options.recorded)}
    words = [path.name if found else str(path)]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)


def install(request: Request, listener: Listener) -> tuple[Installation, bool]:
    """Make the disk match the plan; gives what is installed, and whether anything was changed for it."""
    prefix = Path(request.plan.prefix)
    made_here = tuple(place for place in (prefix, *prefix.parents) if not place.exists())
    try:
        with ownership(request.site.site):
            return _install(request, listener)
    except BaseException:
        if made_here:
            _remove_empty(Layout(prefix), made_here)
        raise


def _remove_empty(layout: Layout, made_here: tuple[Path, ...]) -> None:
    """Take away the places of a tree that this run began and in which nothing came to be."""
    for place in (layout.staging, layout.locks, layout.images, layout.images.parent, *made_here):
        with suppress(OSError):
            place.rmdir()


def _install(request: Request, listener: Listener) -> tuple[Installation, bool]:
    plan, options, site = request.plan, request.options, request.site.site
    layout = Layout(Path(plan.prefix))
    tidy(layout, site.lock_lease, _waiting(listener, str(plan.module)))
    with module_lock(layout, plan.module, site.lock_lease, _waiting(listener, str(plan.module))) as held:
        before = live(layout, plan.module)
        if before and not options.rebuild and _is_current(before, plan):
            if not (lacks := missing(layout, before)):  # another run may have done it while we waited
                return before, False
            if Path(before.image.path).is_file():
                listener.say(f"restoring: {'; '.join(lacks)}")
                restore(layout, before, held)
                return before, True
        store = Store(layout, held)
        image = _kept_image(before, request, store) or _fetched(request, layout, store, listener)
        with staged_generation(layout, plan.module, held) as stage:
            installation = _fill(stage, request, image, listener)
        if options.sanity:
            with store.workspace() as workspace:
                sanity_check(installation, plan, workspace, listener.say)
        publish(layout, installation, held)
    return installation, True


def _is_current(before: Installation, plan: Plan) -> bool:
    made = before.provenance
    return made.plan_digest == plan_digest(plan) and (IMAGE_REQUEST, _image_request(plan)) in made.options


def _fill(stage: Stage, request: Request, image: tuple[Artifact, Options], listener: Listener) -> Installation:
    """Write a generation: what the plan renders, the links, what the user had added to the last one, the receipt."""
    plan, (artifact, asked) = request.plan, image
    easyconfig = File("easyconfig.yaml", request.loaded.path.read_text(encoding="utf-8"))
    stage.write((*render(plan, stage.root), easyconfig))
    stage.stubs(render_stub(plan))
    stage.link(plan.image.filename, artifact.path)
    stage.user_software()
    taken = stage.carry_over()
    if taken.carried:
        listener.say(f"your own files come along: {', '.join(taken.carried[:10])}")
    if taken.left:
        listener.say(f"your own files stay in the last generation: {', '.join(taken.left[:10])}")
    return stage.record(_provenance(request, asked), _image_record(plan, artifact))


def plan_digest(plan: Plan) -> str:
    """One digest of everything that decides the installed files: the plan and what this sifmod renders from it."""
    return sha256_bytes(repr((_image_request(plan), plan, render(plan, "/"), render_stub(plan))).encode())


def _waiting(listener: Listener, what: str) -> Callable[[str], None]:
    return lambda who: listener.say(f"waiting for {what}, which {who} is working on")


def _image_request(plan: Plan) -> str:
    """What decides which image is fetched, and the state of a local one; the same text means the same image."""
    image = plan.image
    local = [file_state(path) for path in local_files(image)]
    return sha256_bytes(repr((image.sources, image.build, image.sha256, image.arch, local)).encode())


def _kept_image(before: Installation | None, request: Request, store: Store) -> tuple[Artifact, Options] | None:
    """The image of the live generation and how it was asked for, when the plan asks the same; None: it is fetched.

    `--module-only` keeps it whatever the plan asks, but for another promise; how it was asked for stays as it was, so
    that the next install fetches what the plan asks. Raises ModuleError where it has nothing to keep.
    """
    plan, options = request.plan, request.options
    if options.force:
        return None
    if before is not None:
        record = before.image
        path = Path(record.path) if record.link == "reference" else store.find(record.sha256)
        same = (IMAGE_REQUEST, _image_request(plan)) in before.provenance.options and record.link == plan.image.link
        promised = plan.image.sha256 in (None, record.sha256)
        if path is not None and path.is_file() and promised and (same or options.module_only):
            asked = tuple(pair for pair in before.provenance.options if not pair[0].startswith("--") and pair != KEPT)
            asked = asked if same else (*asked, KEPT)
            return Artifact(path, record.sha256, record.size, record.source, record.arch), asked
    if options.module_only:
        raise ModuleError(
            f"{plan.module} has no image installed that --module-only could keep",
            f"install it once without --module-only: sifmod install {plan.easyconfig}",
        )
    return None


def _fetched(request: Request, layout: Layout, store: Store, listener: Listener) -> tuple[Artifact, Options]:
    plan = request.plan
    stored = plan.image.sha256 and store.find(plan.image.sha256)
    listener.may_fetch(plan, 0 if stored else announced_size(plan.image))
    # before the fetch: what changes meanwhile is noticed by the next install
    asked = ((IMAGE_REQUEST, _image_request(plan)), *(file_state(path) for path in local_files(plan.image)))
    name = f"image-{plan.image.sha256 or _image_request(plan)}"
    with lock(layout, name, request.site.site.lock_lease, _waiting(listener, plan.image.filename)):
        artifact = fetch_image(plan, store, listener.progress)
    for note in artifact.notes:
        listener.say(note)
    return artifact, asked


def _image_record(plan: Plan, artifact: Artifact) -> ImageRecord:
    return ImageRecord(
        sha256=artifact.sha256,
        size=artifact.size,
        source=artifact.source,
        arch=artifact.arch,
        link=plan.image.link,
        filename=plan.image.filename,
        path=str(artifact.path),
    )


def _nearer_places(request: Request) -> tuple[Input, ...]:
    """The directories where a name is looked for before this easyconfig is found: a new file there may hide it."""
    path = request.loaded.path
    places: list[Input] = []
    for directory in request.site.site.robot_paths:
        if path.is_relative_to(directory):
            break
        places += (read_input(f"{place}/", os.environ) for place in (directory, directory / request.plan.module.name))
    return tuple(places)


def _provenance(request: Request, asked: Options) -> Provenance:
    plan = request.plan
    return Provenance(
        sifmod=__version__,
        easyconfig=os.path.realpath(request.loaded.path),
        version=plan.version,
        variant=request.loaded.variant,
        site=request.site.site.name,
        accelerator=plan.accelerator,
        inputs=(*request.site.inputs, *request.loaded.inputs, *_nearer_places(request)),
        facts=request.site.facts,
        options=(*request.options.recorded, *asked),
        plan_digest=plan_digest(plan),
    )
