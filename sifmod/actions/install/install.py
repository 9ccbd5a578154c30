"""install: make the disk match one easyconfig; a module that does not do what that promises is not published."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.hooks import run_hooks
from sifmod.actions.install.current import (
    difference,
    is_complete,
    is_current,
    oddities,
    provenance,
    provenance_to_write,
)
from sifmod.actions.install.found_in_image import with_found, with_recorded
from sifmod.actions.install.image import ChosenImage, fetched_image, image_record, image_request, kept_image, released
from sifmod.actions.install.request import InstallRequest, of_install, with_image
from sifmod.actions.lock import check_files
from sifmod.actions.log import record
from sifmod.actions.reference import referring, renew
from sifmod.actions.reporter import Reporter
from sifmod.actions.search import find_all
from sifmod.config.find import name_of
from sifmod.config.load_site import LoadedSite
from sifmod.errors import ModuleError, SanityCheckError
from sifmod.image.child import LATE, Ended, run_child
from sifmod.module.plan import File, Plan
from sifmod.module.quote import shell
from sifmod.module.render import render, render_stub
from sifmod.tree.generation import module_lock, publish, replace_provenance, restore, staged_generation, tidy
from sifmod.tree.layer import image_key
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held
from sifmod.tree.log import Done
from sifmod.tree.mark import LINK
from sifmod.tree.provenance import ImageChoice
from sifmod.tree.receipt import Installation, live, live_modules, live_number, meant
from sifmod.tree.stage import Stage
from sifmod.tree.state import edited, edited_stubs, missing
from sifmod.tree.store import Store


def install(request: InstallRequest, reporter: Reporter) -> tuple[Installation, bool]:
    """Make the disk match the plan; gives what is installed, and whether anything was changed for it. Idempotent.

    Raises LockError, InstallError, PermissionsError, SanityCheckError, and what fetching an image raises. After an
    error the live generation is as before.
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
            return _new_generation(layout, before, request, held, reporter)


def install_with_layers(request: InstallRequest, reporter: Reporter) -> tuple[Installation, bool]:
    """As `install`, and the layers that the request's lock names. Raises what `bring_layers` raises too."""
    installation, changed = install(request, reporter)
    if (locked := request.options.locked) and locked.layers:
        from sifmod.actions.layer.places import bring_layers

        bring_layers(installation, dict(locked.layers), request.options.stores, request.site.site, reporter)
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
        check_files(options.locked, plan, own)
    # where its user released the image (see image.kept_image) the site's copy stays in use
    gone = image and options.module_only and before and released(before, plan)
    path = image.artifact.path if image and image.artifact.path.is_file() and not gone else None
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
                sanity_check(installation, plan, workspace, reporter.say)
        return _published(layout, installation, request, held, reporter), True


def _published(
    layout: Layout, installation: Installation, request: InstallRequest, held: Held, reporter: Reporter
) -> Installation:
    number, what = live_number(layout, installation.module), "rendered" if request.options.module_only else "installed"
    site, data = request.site.site, of_install(request, done=installation)
    run_hooks(site, "after_install", data, reporter.say)
    run_hooks(site, "before_publish", data, reporter.say)
    publish(layout, installation, held)
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


def check_locked(before: Installation, request: InstallRequest) -> None:
    """Raise InstallError unless what is installed as the request says is what its lock says."""
    plan = with_recorded(request.plan, before)
    if locked := request.options.locked:
        check_files(locked, plan, own_files(plan, request, before.image_sha256))


def _carry_over(stage: Stage, reporter: Reporter) -> None:
    taken = stage.carry_over()
    if taken.carried:
        reporter.say(f"your own files come along: {', '.join(taken.carried[:10])}")
    if taken.left:
        reporter.say(f"your own files stay in the last generation: {', '.join(taken.left[:10])}")


def _done(what: str, installation: Installation, before: int | None) -> Done:
    return Done(what, installation.module, before, installation.generation, installation.image_sha256 or None)


_SHOWN = 3  # commands


def check_modules(layout: Layout, plan: Plan, site: LoadedSite, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A warning for each module of a view that is neither in the prefix nor on MODULEPATH, and may be elsewhere.

    Raises ModuleError for those that are in the prefix in another version, or that an easyconfig here can install.
    """
    here = [str(module) for module, _ in live_modules(layout)]
    problems: list[str] = []
    hints: list[str] = []
    doubts: list[str] = []
    for wanted in plan.modules:
        if any(meant(wanted, module) for module in here) or _is_on_path(wanted, environ):
            continue
        name = wanted.partition("/")[0]
        others = [module for module in here if module.startswith(f"{name}/")]
        commands = list(_commands(wanted, site, environ))
        if commands or others:
            problems.append(f"{wanted} is not installed" + (f" ({', '.join(others)} is)" if others else ""))
            hints += commands[:_SHOWN]
        else:
            doubts.append(f"warning: {wanted}, which {plan.module} loads, is not in {layout.prefix} or on MODULEPATH")
    if problems:
        hint = "; ".join(hints) or "correct `modules`; `sifmod list` shows what is installed"
        raise ModuleError(f"{plan.module} cannot be installed: {'; '.join(problems)}", hint)
    return tuple(doubts)


def _is_on_path(wanted: str, environ: Mapping[str, str]) -> bool:
    """Whether a directory of MODULEPATH has it, in this version or in one that begins so."""
    name, _, version = wanted.rpartition("/")
    for directory in filter(None, environ.get("MODULEPATH", "").split(":")):
        try:
            names = os.listdir(f"{directory}/{name}")  # noqa: PTH208 (plain names)
        except OSError:
            continue
        if any(meant(f"/{version}", f"/{file.removesuffix('.lua')}") for file in names):
            return True
    return False


def _commands(wanted: str, site: LoadedSite, environ: Mapping[str, str]) -> Iterator[str]:
    for found in find_all(site.site.robot_paths, lambda: site, environ):
        for offered in found.variants:
            if meant(wanted, offered.module) and offered.fits(site.site.accelerator, site.site.arch):
                variant = f" --variant {shell(offered.variant)}" if offered.variant else ""
                yield f"sifmod install {shell(name_of(found.path, site.site.robot_paths))}{variant}"


Run = Callable[..., Ended]
# what a user may have set for his own runs
USERS = tuple(f"{prefix}_{name}" for prefix in ("SINGULARITY", "APPTAINER") for name in ("BIND", "NO_EVAL"))
MISSING = "not there: "
SHELL = "/bin/sh"  # by its path: an environment inside may have a `sh` of its own
# names what is missing; the words after it are the commands and the paths
LOOK = f'for c; do case $c in /*) [ -e "$c" ] ;; *) command -v "$c" >/dev/null ;; esac || echo "{MISSING}$c"; done'


def sanity_check(
    installation: Installation, plan: Plan, workspace: Path, say: Callable[[str], None], limit: float | None = None
) -> None:
    """Look for every wrapper's command and every path, and run the easyconfig's commands inside the image.

    The generation is in its place and need not be published; `workspace` is for the runtime's own files; `limit` is
    what a command may take, in seconds. Commands run in `/`, where Python imports no file of the user's. Without a
    runtime, or where it cannot start the image, what was not checked is said; commands that the easyconfig asks for
    then fail the check. Raises SanityCheckError.
    """
    directory = Path(installation.root)
    missing = [path for path in plan.sanity_check.paths if not path.startswith("/") and not (directory / path).exists()]
    if missing:
        raise SanityCheckError(f"sanity check of {plan.module}: the module has no {', '.join(missing)}")
    if not plan.runtime.path:
        if plan.sanity_check.commands:
            say(f"sanity check: no {plan.runtime.kind} here, so its commands were not run")
        return
    image, environment = directory / installation.own_image.filename, _environment(directory, workspace, plan)

    def run(*command: str) -> Ended:
        start = (plan.runtime.path, "-q", plan.verb, str(image), *plan.activation.activated(command))
        return run_child(start, cwd=Path("/"), env=environment, limit=limit)

    _look(run, plan, say)
    for command in plan.sanity_check.commands:
        result = run(SHELL, "-c", command)
        if result.code != 0:
            output = result.said.decode(errors="replace").strip()[-2000:]
            code = f"gave exit code {result.code}, expected 0"
            came = f"was not done after {limit:.0f} s" if limit and result.code == LATE else code
            raise SanityCheckError(
                f"sanity check of {plan.module}: `{command}` {came}\n{output}",
                "mend the easyconfig, or install without the check: --skip-sanity-check",
            )


def _look(run: Run, plan: Plan, say: Callable[[str], None]) -> None:
    commands = [wrapper.command[0] for wrapper in plan.wrappers]
    wanted = [*commands, *(path for path in plan.sanity_check.paths if path.startswith("/"))]
    if not wanted:
        return
    result = run(SHELL, "-c", LOOK, "sh", *wanted)
    lines = result.lines
    if result.code != 0:
        why = lines[-1:] or (f"exit code {result.code}",)
        say(f"sanity check: the image could not be started here, its commands were not looked at ({why[0]})")
        return
    if missing := [line.removeprefix(MISSING) for line in lines if line.startswith(MISSING)]:
        raise SanityCheckError(
            f"sanity check of {plan.module}: not in the image: {', '.join(missing)}",
            "take them out of `wrappers` or `sanity_check.paths`, or correct `conda`, `venv`, `activate` or `path`",
        )


def _environment(directory: Path, workspace: Path, plan: Plan) -> dict[str, str]:
    """The environment of a command: the module's own, without a bind whose source is missing here."""
    bound = [bind for bind in plan.binds_of(str(directory)) if Path(bind.source).exists()]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SINGULARITYENV_", "APPTAINERENV_", *USERS))
        and name not in ("PYTHONPATH", "LD_PRELOAD")
    }
    evaluated = plan.verb == "exec"
    path, variables = (plan.prepend_path, plan.container_env) if evaluated else (plan.path, plan.plain_env)
    for prefix in plan.runtime.prefixes:
        environment |= {f"{prefix}_{name}": str(workspace) for name in ("CONFIGDIR", "CACHEDIR", "TMPDIR")}
        environment[f"{prefix}_BINDPATH"] = ",".join(map(str, bound))
        if not evaluated:  # see launch.sh
            environment[f"{prefix}_NO_EVAL"] = "1"
        environment[f"{prefix}ENV_PREPEND_PATH"] = ":".join(path)
        environment |= {f"{prefix}ENV_{name}": value for name, value in variables}
    return environment
