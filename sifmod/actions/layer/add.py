"""Resolve the packages of a layer against its image, build the layer, and switch to it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from sifmod.actions.finding import verify_layer
from sifmod.actions.layer.imports import tried_imports
from sifmod.actions.layer.inside import Inside, python_wrapper
from sifmod.actions.layer.layer_change import LayerChange, existing, requested
from sifmod.actions.layer.make import make
from sifmod.actions.layer.places import check_own
from sifmod.actions.layer.projects import Projects
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName, is_part
from sifmod.config.site import Site
from sifmod.errors import InstallError, ModuleError, NoPackageError, OptionError
from sifmod.image.packages.added import format_added, format_hidden
from sifmod.image.packages.git_tree import Checkouts, GitSource
from sifmod.image.packages.image_python import Distribution, ImagePython
from sifmod.image.packages.request import PackageRequest, name_of, path_of, project
from sifmod.image.packages.resolve import Resolved, followed, resolve
from sifmod.image.packages.torch_index import TorchIndex, torch_index
from sifmod.image.program import Program, limits, probe_runtime
from sifmod.module.scripts import PROTECTED
from sifmod.tree.durable import content, make_directory
from sifmod.tree.layer import (
    Layer,
    Layers,
    layers_lock,
    live_layer,
    publish_layer,
    remove_old,
    withdraw_layer,
)
from sifmod.tree.locking import HeldLock
from sifmod.tree.receipt import Installation
from sifmod.tree.removal import prune

Outcome = Literal["made", "unchanged", "removed", "already there"]  # already there: in the image
_KEPT_GENERATIONS = 3  # for programs that still run with an earlier generation


def make_layer(
    installation: Installation, layers: Layers, change: LayerChange, site: Site, reporter: Reporter
) -> tuple[Layer | None, Outcome]:
    """Make the layer match the change; returns the layer and the outcome. An empty layer is removed.

    The layer is None if there was none, and the image has all that is to be added. A layer changes completely or not at
    all. Raises ModuleError if there is no layer to remove, OptionError for a package to remove that the layer lacks,
    and for packages that do not fit the image, FetchError if an index cannot be reached, InstallError, PermissionsError
    or LockError if it cannot be written.
    """
    module, image = installation.module, installation.required_image.sha256
    tree = reporter.tree(site)
    with layers_lock(layers, module, tree) as held, _taken(layers, module, held):
        before = live_layer(layers, module, change.name, image)
        wanted = requested(before, change)
        if not (wanted.requirements or wanted.editable or change.add.unnamed or change.lock is not None):
            if before is None:
                raise ModuleError(f"{module} has no layer {change.name}", "`sifmod layer list` lists the existing ones")
            withdraw_layer(layers, before, held)
            record_layer(layers, None, before, tree, reporter)
            return before, "removed"
        directory = held.path("layer")
        with held.changing(f"cannot make the layer {change.name} of {module}"):
            try:
                made = _made(installation, change, before, directory, site, reporter)
            except RecursionError as error:  # of what goes through the files of a wheel
                raise InstallError("a package has directories that are nested too deep") from error
        if made is None:
            return before, "already there"
        if made is before:
            return made, "unchanged"
        layer = publish_layer(layers, made, directory, held)
        record_layer(layers, layer, before, tree, reporter)
        remove_old(layers, layer, _KEPT_GENERATIONS, held)
        return layer, "made"


@contextmanager
def _taken(layers: Layers, module: ModuleName, held: HeldLock) -> Iterator[None]:
    """Have the module's directory where the user has named one: another user may make it at any other time."""
    place = layers.prefix / module.name
    if layers.named:
        with held.changing(f"cannot write {place}"):
            make_directory(place, layers.top)
    check_own(layers, module)
    try:
        yield
    finally:
        prune(place, layers.prefix)


def _made(
    installation: Installation,
    change: LayerChange,
    before: Layer | None,
    directory: Path,
    site: Site,
    reporter: Reporter,
) -> Layer | None:
    """A new generation in `directory`, or the existing one if it matches the request.

    None if the image has all that is to be added.
    """
    wanted = requested(before, change)
    directory.mkdir()
    (directory / "work").mkdir()
    visible = (*existing((*wanted.local, *change.add.local)), *change.files)
    with Inside(python_wrapper(installation), directory, visible) as inside:
        inside.start()
        program = _program(installation, site)  # while the container starts
        python = inside.look(site.protected if (own := protected(Path(installation.root))) is None else own)
        projects = Projects(inside, python, Checkouts(directory / "work" / "git"))
        if change.add.unnamed:
            change = replace(change, add=projects.named(change.add))
            wanted = requested(before, change)
        inside.check_seen(tuple(map(project, wanted.editable)))
        index = torch_index(python, site.package_indexes)
        resolved, places = _resolved(wanted, change, before, projects, index)
        if _changes_nothing(change, before, resolved) and (held := _already(change.add, python, resolved)):
            reporter.say(f"{', '.join(f'{one.name} {one.version}' for one in held)}: already in the image")
            return None
        if linked := ", ".join(sorted(index.names & resolved.added.keys())):
            reporter.say(f"{linked}: taken from {index.url}, to match the image's torch +{index.local}")
        for line in format_added(python, resolved):
            reporter.say(line)
        layer = _layer(installation, change.name, wanted, python, resolved)
        binds = not (program and any(limit.subject == "image bind" for limit in limits(program)))
        layer = replace(layer, packed=binds and not (change.unpacked or wanted.editable))
        if before and _same(before, layer, resolved.lock) and not wanted.projects and not verify_layer(before):
            return before
        named = dict.fromkeys(map(name_of, change.add.requirements or resolved.requirements))
        names = tuple(name for name in named if name in resolved.added)

        def tried(lib: Path) -> None:
            for line in format_hidden(lib, python, resolved.added):
                reporter.say(line)
            for line in tried_imports(inside, python, resolved, names, index) if names and change.tried else ():
                reporter.say(line)

        built = (*wanted.projects, *((name, places[source]) for name, source in resolved.repositories))
        return make(layer, resolved, inside, wanted, (python, program, site), built, tried)


def _changes_nothing(change: LayerChange, before: Layer | None, resolved: Resolved) -> bool:
    """Whether the layer is intact and would keep its packages, and the change names no requirement of the layer."""
    if change.remove or change.replaces or change.upgrade or change.unpacked or change.lock is not None or change.model:
        return False
    if before is None:
        return not resolved.added
    named = set(map(name_of, before.requirements)) & set(map(name_of, change.add.requirements))
    return not named and dict(before.added) == dict(resolved.added) and not verify_layer(before)


def _already(wanted: PackageRequest, python: ImagePython, resolved: Resolved) -> tuple[Distribution, ...]:
    """The image's distributions, if they are all that was requested; () if a layer must add or keep something.

    A requirement that names a version goes into a layer, unless the image's package is protected and stays anyway.
    """
    if wanted.unnamed or wanted.editable or wanted.constraints is not None or wanted.digests:
        return ()
    found = tuple(_held(wanted, python, resolved))
    return found if len(found) == len(wanted.requirements) else ()


def _held(wanted: PackageRequest, python: ImagePython, resolved: Resolved) -> Iterator[Distribution]:
    for text in wanted.requirements:
        asked, name = Requirement(text), name_of(text)
        own = python.distributions.get(name)
        plain = path_of(text) is None and not (asked.url or asked.extras or asked.marker)
        if own and plain and name not in resolved.added and (name in python.protected or not asked.specifier):
            yield own


def _program(installation: Installation, site: Site) -> Program | None:
    """The runtime of the module's commands, as it answers, or None; the user's settings may name another one."""
    runtime = (content(Path(installation.root, "share", "image")) or b"").decode(errors="replace").splitlines()[1:2]
    return probe_runtime("".join(runtime) or site.runtime_path)


def _layer(
    installation: Installation, name: str, wanted: PackageRequest, python: ImagePython, resolved: Resolved
) -> Layer:
    return Layer(
        module=installation.module,
        name=name,
        image=installation.required_image.sha256,
        number=0,  # until it is published
        python=python.prefix,
        version=python.short,
        requirements=resolved.requirements,
        editable=wanted.editable,
        places=wanted.places,
        added=tuple(sorted(resolved.added.items())),
        kept=tuple((one.name, one.version) for one in python.protected.values()),
        packed=True,
        words=wanted.lasting,
        constraints=wanted.constraints or (),
        digests=wanted.digests,
    )


def _resolved(
    wanted: PackageRequest, change: LayerChange, before: Layer | None, projects: Projects, index: TorchIndex
) -> tuple[Resolved, Mapping[GitSource, str]]:
    """The packages to add, and the source trees of those in repositories. Raises OptionError, FetchError."""
    python = projects.python
    if change.lock is not None:
        resolved = followed(python, change.lock)
        return resolved, dict(projects.tree(source) for _, source in resolved.repositories)
    earlier = "" if before is None or change.upgrade else before.lock
    trees = projects.trees(wanted, earlier)
    newer = (f"--upgrade-package={name_of(text)}" for text in wanted.requirements if change.upgrade)
    # otherwise uv takes a Python from an environment variable or a parent directory
    words = ("--python", python.executable, *newer)

    named = set(map(name_of, wanted.requirements if change.replaces else change.add.requirements))

    def resolve_with(more: tuple[str, ...]) -> Resolved:
        asked = replace(wanted, words=(*words, *wanted.words, *more))
        return resolve(python, asked, earlier, projects.inside.resolver, trees, named)

    try:
        return index.resolved(python, wanted, resolve_with), dict(trees.values())
    except NoPackageError as error:
        asked = set(map(name_of, change.add.requirements))
        if of_layer := [name for name in error.names if before and name not in asked]:
            held = f"the layer holds {', '.join(of_layer)}, which this change must find again"
            raise OptionError(error.message, f"{held}: {error.hint}") from error
        raise


def check(installation: Installation, layer: str) -> None:
    """Raise OptionError for an invalid layer name, ModuleError for a module whose commands do not support layers."""
    if not is_part(layer):
        raise OptionError(f"{layer!r} is not a valid layer name", "use letters, digits, `.`, `_`, `+` and `-`")
    if not Path(installation.root, "share", "image").is_file():
        raise ModuleError(
            f"{installation.module} has no Python to add packages to",
            "add `wrappers: [python]` to its easyconfig, if the image has a Python",
        )


def protected(root: Path) -> tuple[str, ...] | None:
    """The packages that the generation's easyconfig protects; None if it has no such key."""
    said = root / PROTECTED
    return tuple(said.read_text().split()) if said.is_file() else None


def _same(before: Layer, layer: Layer, lock: str) -> bool:
    """Whether the live layer already matches the new one."""
    fields = ("requirements", "editable", "packed", "words", "constraints", "digests")
    return before.lock == lock and all(getattr(before, name) == getattr(layer, name) for name in fields)
