"""rollback: make the previous generation live again, and hold a newer one that it replaces."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.image_marks import release, renew
from sifmod.actions.log import record
from sifmod.actions.reporter import Reporter
from sifmod.actions.start import installed, resolve_own
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import InstallError, ModuleError
from sifmod.tree.explain import reported
from sifmod.tree.generation import module_lock, release_hold, restore, tidy
from sifmod.tree.history import held_since, in_utc, previous, read_history, read_past
from sifmod.tree.layer import all_layers
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done
from sifmod.tree.receipt import Installation, known_modules, known_receipt, live_number, numbers, read_receipt
from sifmod.tree.state import missing


class RolledBack(NamedTuple):
    """The live or last live generation of a module, and the generations that are held, or that were released."""

    installation: Installation
    held: Mapping[int, float] = {}  # generations, and since when
    released: tuple[int, ...] = ()


def change_live(
    name: str, site: Site, reporter: Reporter, *, to: int | None = None, release: bool = False
) -> RolledBack:
    """Roll the module `name` back, by default to the generation before, or `release` what a rollback holds.

    A name may be given by its beginning. Raises what `rollback` and `release_held` raise.
    """
    layout = Layout(site.prefix)
    module = resolve_own(name, known_modules(layout), site)
    with changing_prefix(site):
        if release:
            released = release_held(reporter.tree(site), module, reporter)
        else:
            installation = rollback(reporter.tree(site), module, to, reporter)
    if release:
        # after the gc of a retired module only the held generations are left
        left = read_past(layout, module).last or read_receipt(layout.generation(module, released[0]))
        return RolledBack(left or installed(layout, module), released=released)
    return RolledBack(installation, held_since(read_history(layout, module)))


def rollback(tree: Tree, module: ModuleName, to: int | None, reporter: Reporter) -> Installation:
    """Make generation `to` live, by default the previous one; returns the new live installation.

    Also restores an uninstalled module. Idempotent with `to`; without it, a second rollback is refused, which would end
    the hold of the first. Raises ModuleError for that, and if there is no such generation, InstallError if it is
    incomplete, PermissionsError, OSError on read errors.
    """
    layout = tree.layout
    tidy(tree)
    _number(layout, module, to)
    with module_lock(tree, module) as mine:
        installation = _target(layout, module, to)
        before, lacks = live_number(layout, module), missing(layout, installation)
        held = held_since(read_history(layout, module))
        restore(mine, installation)
        if lacks:  # including that it is not the live one
            done = Done("rolled back", module, before, installation.generation, installation.image_sha256 or None)
            record(layout, done, mine.held, reporter)
            for number in held_since(read_history(layout, module)).keys() - held.keys():
                record(layout, Done("held", module, number), mine.held, reporter)
    for layer in all_layers(layout.prefix / "layers", module):
        if layer.image == installation.image_sha256:
            reporter.say(f"{module} keeps its layer {layer.name}, version {layer.number}: a rollback changes no layer")
    return installation


def release_held(tree: Tree, module: ModuleName, reporter: Reporter) -> tuple[int, ...]:
    """Allow held content to be installed again; returns the released generations.

    Raises ModuleError if nothing is held, PermissionsError.
    """
    tidy(tree)
    _held(tree.layout, module)
    with module_lock(tree, module) as mine:
        generations = _held(tree.layout, module)
        release_hold(mine)
        for number in generations:
            record(tree.layout, Done("released", module, number), mine.held, reporter)
    return generations


def _held(layout: Layout, module: ModuleName) -> tuple[int, ...]:
    if not (generations := tuple(held_since(read_history(layout, module)))):
        raise ModuleError(f"{module} is not held in {layout.prefix}", "`sifmod list` shows what is held")
    return generations


def _number(layout: Layout, module: ModuleName, to: int | None) -> int:
    on_disk, events = numbers(layout, module), read_history(layout, module)
    number = previous(events, on_disk) if to is None else to
    if to is None and number in (since := held_since(events)):
        raise ModuleError(
            f"{module} was rolled back already, at {in_utc(since[number])}: from generation {number} to"
            f" {events[-1].generation}, which is live",
            f"`--to {number}` makes {number} live again; generations there: {', '.join(map(str, on_disk))}",
        )
    if number is None or number not in on_disk:
        what = "earlier generation" if number is None else f"generation {number}"
        there = ", ".join(map(str, on_disk)) or "none"
        raise ModuleError(f"{module} has no {what} in {layout.prefix}", f"generations there: {there}")
    return number


def _target(layout: Layout, module: ModuleName, to: int | None) -> Installation:
    """The generation, read under the lock because a gc may be removing it. Raises InstallError if it is incomplete."""
    number = _number(layout, module, to)
    with reported(f"cannot read the receipt of generation {number} of {module}"):
        installation = known_receipt(layout.generation(module, number))
    if installation is None:
        raise InstallError(f"generation {number} of {module} has no readable receipt; nothing was changed")
    renew(layout, installation)  # before checking the image, which a gc of its store may be removing
    try:
        _check_complete(installation)
    except BaseException:
        release(layout, (installation.image,), live_only=True)
        raise
    return installation


def _check_complete(installation: Installation) -> None:
    names = [f"{installation.root}/{file.path}" for file in installation.files]
    image, copies = installation.image, installation.provenance.image.directories
    if image and not any(map(os.path.isfile, (f"{each}/{image.filename}" for each in copies))):  # the site's own copy
        names.append(image.path)
    lacking = [name for name in names if not Path(name).exists()]  # a failing disk raises an error
    if lacking:
        raise InstallError(
            f"generation {installation.generation} of {installation.module} is no longer complete"
            f" (missing: {', '.join(lacking)}); nothing was changed",
            f"`sifmod install --rebuild {installation.provenance.easyconfig}` makes one from the present easyconfig",
        )
