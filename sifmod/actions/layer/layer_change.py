"""What a change of a layer asks for: its packages, and the paths of this machine that they need."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError, PermissionsError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.request import PackageRequest, check_open, kept_words, name_of, project, words_of
from sifmod.tree.layer import DEFAULT, RECEIPT, Layer

_OWN_LAYER = "make a layer of your own: --layer NAME"


@dataclass(frozen=True)
class LayerChange:
    """The options of a change of a layer."""

    module: str  # as it is typed
    name: str = DEFAULT
    add: PackageRequest = field(default_factory=PackageRequest)
    remove: tuple[str, ...] = ()
    everything: bool = False  # remove the layer
    stale: bool = False  # only remove the layers that were made for images that are not installed
    lock: str | None = None  # the text of a lock to follow instead of resolving
    files: tuple[str, ...] = ()  # the files of this machine that the lock names by their absolute paths
    upgrade: bool = False  # allow newer versions than those of the layer
    unpacked: bool = False
    tried: bool = True  # import each added package once
    replaces: bool = False  # `add` is the layer's whole content
    model: str | None = None  # a module as typed: make the layer like its layer of this name
    directory: str | None = None  # where the layer is kept; None: where `layers_for` puts it


def requested(before: Layer | None, change: LayerChange) -> PackageRequest:
    """The layer's requirements: the previous ones, without removed and with added ones, or `change.add` alone.

    Raises OptionError for a name to remove that was never added to the layer.
    """
    if change.everything or change.replaces or change.lock is not None:
        return change.add
    if before:
        own = PackageRequest(before.requirements, (), before.editable, before.words)
        check_open((*own.texts, *before.places), Path(before.root, RECEIPT), _OWN_LAYER)
    requirements = before.requirements if before else ()
    projects = before.editable if before else ()
    names = {name_of(text) for text in requirements} | {Path(project(path)).name for path in projects}
    for name in change.remove:
        if not {name, normalized(name)} & names:
            there = f"it holds {', '.join(sorted(names))} and their dependencies"
            none = "there is no such layer here: `sifmod layer list` names all; --layer and --dir choose one"
            raise OptionError(f"{name} was not added to the layer {change.name}", there if names else none)
    gone = {normalized(name) for name in change.remove} | {name_of(text) for text in change.add.requirements}
    again = {project(path) for path in change.add.editable}
    projects = tuple(
        path for path in projects if Path(project(path)).name not in change.remove and project(path) not in again
    )
    kept = (text for text in requirements if name_of(text) not in gone)
    # sorted, so that the same requirements give the same lock
    requirements = tuple(sorted(dict.fromkeys((*kept, *change.add.requirements)), key=name_of))
    projects = tuple(dict.fromkeys((*projects, *change.add.editable)))
    constraints = change.add.constraints
    if constraints is None:
        constraints = before.constraints if before else ()
    held = {name_of(text) for text in (*requirements, *constraints)} - gone
    digests = {name: found for name, found in (before.digests if before else ()) if name in held}
    digests |= dict(change.add.digests)
    words = _with_places(before, change.add.words)
    return PackageRequest(requirements, (), projects, words, constraints, tuple(sorted(digests.items())))


def like(change: LayerChange, module: ModuleName, there: Iterable[Layer]) -> LayerChange:
    """The change with the requirements of another module's or an earlier image's layer.

    Raises ModuleError if there is none.
    """
    models = [layer for layer in there if layer.image and (layer.module, layer.name) == (module, change.name)]
    if not models:
        raise ModuleError(f"{module} has no layer {change.name}", "`sifmod layer list` lists the existing ones")
    model = max(models, key=lambda one: Path(one.root).stat().st_mtime)
    return replace(change, add=requested(model, change))


def _with_places(layer: Layer | None, words: tuple[str, ...]) -> tuple[str, ...]:
    """The given options for uv, those of the layer (not a replaced index), and its places but missing directories."""
    there = (
        place
        for place in (layer.places if layer else ())
        if "://" in place or (_exists(place) and Path(place).is_dir())
    )
    return tuple(dict.fromkeys((*words, *kept_words(layer.words if layer else (), words), *words_of(there))))


def existing(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that are no URLs, without duplicates. Raises OptionError for a missing one."""
    found = tuple(dict.fromkeys(path for path in paths if "://" not in path))
    if gone := next((path for path in found if not _exists(path)), ""):
        raise OptionError(
            f"{gone}, which the layer needs, is gone", "restore it, or `sifmod layer remove` the package first"
        )
    return found


def _exists(path: str) -> bool:
    """Whether there is this path, which the layer needs. Raises PermissionsError if others have closed it."""
    try:
        return bool(os.stat(path))  # noqa: PTH116 (a text)
    except PermissionError as error:
        what = f"{path}, which the layer needs, is closed to you"
        raise PermissionsError(what, f"ask its owner to open it, or {_OWN_LAYER}") from error
    except (OSError, ValueError):
        return False
