"""add, remove and sync: what a layer is to hold, resolved against its image, made, and switched to."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sifmod.actions.layer.imports import tried_imports
from sifmod.actions.layer.inside import Inside, python_wrapper
from sifmod.actions.layer.make import make
from sifmod.actions.log import record_layer
from sifmod.actions.reporter import Reporter
from sifmod.actions.verify import verify_layer
from sifmod.config.name import ModuleName, is_part
from sifmod.config.site import Site
from sifmod.errors import ModuleError, OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.added import told
from sifmod.image.packages.resolve import followed, resolve
from sifmod.image.packages.wanted import Wanted, name_of, words_of
from sifmod.image.program import ask, limits
from sifmod.module.scripts import PROTECTED
from sifmod.tree.layer import Layer, Layers, live_layer, publish_layer, remove_old, withdraw_layer
from sifmod.tree.locking import lock
from sifmod.tree.receipt import Installation

Became = Literal["made", "unchanged", "removed"]
_KEPT_GENERATIONS = 3  # for what still runs with an earlier one


@dataclass(frozen=True)
class LayerChange:
    """What the command line asks of a layer."""

    name: str
    add: Wanted = field(default_factory=Wanted)
    remove: tuple[str, ...] = ()
    everything: bool = False  # is removed
    lock: str | None = None  # the text of a lock to follow, in the place of a resolution
    upgrade: bool = False  # take newer versions than those of the layer
    unpacked: bool = False
    tried: bool = True  # what is added is imported once


def change_layer(
    installation: Installation, layers: Layers, change: LayerChange, site: Site, reporter: Reporter
) -> tuple[Layer, Became]:
    """Make the layer what is asked for: the layer, and what became of it. Of an empty one nothing is left.

    It is there whole or as it was before. Raises ModuleError where there is none to remove, OptionError for what does
    not fit the image, FetchError where an index cannot be asked, InstallError, PermissionsError or LockError where it
    cannot be written.
    """
    module, image = installation.module, installation.own_image.sha256
    with lock(layers, str(module), site.lock_lease, reporter.waiting(f"the layers of {module}")) as held:
        before = live_layer(layers, module, change.name, image)
        wanted = _wanted(before, change)
        if not (wanted.requirements or wanted.editable or change.lock is not None):
            if before is None:
                raise ModuleError(f"{module} has no layer {change.name}", "`sifmod layers` lists those that there are")
            withdraw_layer(layers, before, held)
            record_layer(layers, None, before, site.lock_lease, reporter)
            return before, "removed"
        with held.changing(f"cannot make the layer {change.name} of {module}"):
            directory = held.path("layer")
            (directory / "work").mkdir(parents=True)
            inside = Inside(python_wrapper(installation), directory, (*wanted.editable, *wanted.places))
            python = inside.look(site.protected if (own := protected(Path(installation.root))) is None else own)
            inside.check_seen(wanted.editable)
            if change.lock is not None:
                resolved = followed(python, change.lock)
            else:
                earlier = "" if before is None or change.upgrade else before.lock
                # else uv takes one that an environment variable or a directory above names
                words = ("--python", python.executable, *wanted.words)
                resolved = resolve(python, replace(wanted, words=words), earlier, inside.resolver)
            for line in told(python, resolved):
                reporter.say(line)
            # that of the module's commands, which need not be that of this user's settings
            runtime = Path(installation.root, "share", "image").read_text().splitlines()[1:2]
            program = ask("".join(runtime) or site.runtime_path)
            binds = not (program and any(limit.subject == "image bind" for limit in limits(program)))
            kept = tuple((one.name, one.version) for one in python.protected.values())
            layer = Layer(
                module, change.name, image, 0,
                python.prefix, python.short, resolved.requirements, wanted.editable, wanted.places,
                tuple(sorted(resolved.added.items())), kept, packed=binds and not (change.unpacked or wanted.editable),
            )  # fmt: skip
            asked = (resolved.lock, layer.editable, layer.packed)
            if before and (before.lock, before.editable, before.packed) == asked and not verify_layer(before):
                return before, "unchanged"
            named = dict.fromkeys(map(name_of, change.add.requirements or resolved.requirements))
            names = tuple(name for name in named if resolved.added.get(name))

            def tried() -> None:
                for line in tried_imports(inside, python, resolved, names) if names and change.tried else ():
                    reporter.say(line)

            layer = make(layer, resolved.lock, inside, wanted, (python, program, site), tried)
        layer = publish_layer(layers, layer, inside.directory, held)
        record_layer(layers, layer, before, site.lock_lease, reporter)
        remove_old(layers, layer, _KEPT_GENERATIONS, held)
        return layer, "made"


def check(installation: Installation, layer: str) -> None:
    """Raise OptionError for what cannot be a layer's name, ModuleError for a module whose commands know no layers."""
    if not is_part(layer):
        raise OptionError(f"{layer!r} cannot be the name of a layer", "use letters, digits, `.`, `_`, `+` and `-`")
    if not Path(installation.root, "share", "image").is_file():
        names = {one.path for one in installation.files}
        if not names & {"bin/python", "bin/python3"}:
            raise ModuleError(
                f"{installation.module} has no Python to add packages to",
                "`wrappers: [python]` in its easyconfig gives it one, if the image has a Python",
            )
        raise ModuleError(
            f"{installation.module} was installed by an earlier sifmod, whose commands know no layers",
            "`sifmod install --module-only --installed` renders it anew",
        )


def protected(root: Path) -> tuple[str, ...] | None:
    """What the easyconfig of the generation at `root` says of what stays as it is; None where it says nothing."""
    said = root / PROTECTED
    return tuple(said.read_text().split()) if said.is_file() else None


def _wanted(before: Layer | None, change: LayerChange) -> Wanted:
    """What the layer is asked to hold: as before, without what is removed, and with what is added in its place.

    Raises OptionError for a name to remove that was not added.
    """
    if change.everything or change.lock is not None:
        return change.add
    requirements = before.requirements if before else ()
    projects = before.editable if before else ()
    names = {name_of(text) for text in requirements} | {Path(path).name for path in projects}
    for name in change.remove:
        if not {name, normalized(name)} & names:
            there = f"it holds {', '.join(sorted(names))}, and what these need" if names else "there is no such layer"
            raise OptionError(f"{name} was not added to the layer {change.name}", there)
    gone = {normalized(name) for name in change.remove} | {name_of(text) for text in change.add.requirements}
    projects = tuple(path for path in projects if Path(path).name not in change.remove)
    kept = (text for text in requirements if name_of(text) not in gone)
    # in one order, so that the same requirements make the same lock
    requirements = tuple(sorted(dict.fromkeys((*kept, *change.add.requirements)), key=name_of))
    projects = tuple(dict.fromkeys((*projects, *change.add.editable)))
    return Wanted(requirements, projects, _with_places(before, change.add.words))


def like(change: LayerChange, module: ModuleName, there: Iterable[Layer]) -> LayerChange:
    """The change that asks for what the layer of another module, or of another image, was asked to hold.

    Raises ModuleError where there is none.
    """
    models = [layer for layer in there if layer.image and (layer.module, layer.name) == (module, change.name)]
    if not models:
        raise ModuleError(f"{module} has no layer {change.name}", "`sifmod layers` lists those that there are")
    model = max(models, key=lambda one: Path(one.root).stat().st_mtime)
    return replace(change, add=_wanted(model, change))


def _with_places(layer: Layer | None, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words for uv, and the places of the layer as far as they are still there."""
    there = (place for place in (layer.places if layer else ()) if "://" in place or Path(place).is_dir())
    return tuple(dict.fromkeys((*words, *words_of(there))))
