"""The record that a tree keeps of a stack, and the lock of its installed modules.

The tree keeps the images that the lock names, so that they can be installed from this tree, until
another lock of the stack replaces this one or the stack is forgotten.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.author.new_file import write_text
from sifmod.actions.changing_prefix import check_group, site_umask
from sifmod.actions.layer.locked_layers import check_packed, own_layers
from sifmod.actions.lock import LockedModule, check_replaceable, images_of, locked_module, spelled_inputs, to_json
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.stack_plan import Planned, StackOptions, plan_stack, read_stack
from sifmod.config.site import Site
from sifmod.config.stack import Stack
from sifmod.errors import InstallError
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from sifmod.tree.stack_record import Applied, read_applied, stack_lock, write_applied
from sifmod.tree.target_store import check_outside_trees


def change_record(
    layout: Layout, name: str, change: Callable[[Applied | None], Applied], site: Site, reporter: Reporter
) -> None:
    """Update the record with `change`; no empty one is created. Raises LockError, InstallError, PermissionsError."""
    before = read_applied(layout, name)
    wanted = change(before)
    if wanted == before or (before is None and not wanted.modules and not wanted.images):
        return
    tree = reporter.tree(site)
    with site_umask(site), stack_lock(name, tree) as held:
        write_applied(layout, change(read_applied(layout, name)), held)  # another run may have changed it meanwhile


def locked_modules(planned: Planned, directory: Path) -> tuple[LockedModule, ...]:
    """The modules to lock, of a stack that is installed completely; `planned.redecide` must be set.

    `directory`: where the lock is read, at which its relative paths start.

    Raises InstallError for a module that is not installed, errors of its easyconfig and of `check_packed`.
    """
    modules = []
    plan = plan_stack(planned)
    for step in plan.steps:
        if step.error:
            raise step.error
        installation = live(planned.layout, step.module) if step.module else None
        if step.mark != "x" or installation is None:
            why = f": {'; '.join(step.why)}" if step.why else ""
            hint = f"`sifmod stack apply` or `sifmod install {step.member.easyconfig}` installs it"
            hint = f"once it is released, {hint}" if step.mark == "H" else hint
            hint = "or remove it from the stack" if step.mark == "E" else hint
            raise InstallError(f"{step} is not installed as described in {step.member.easyconfig}{why}", hint)
        decision = plan.decide(step)
        inputs = spelled_inputs(decision.inputs, directory, decision.site.site.robot_paths)
        check_packed(planned.layout, installation.module, installation.image_sha256)
        layers = own_layers(planned.layout, installation.module, installation.image_sha256)
        modules.append(locked_module(installation, decision.plan, inputs, layers))
    return tuple(sorted(modules))


class StackLock(NamedTuple):
    """A lock that was written; without modules if it was forgotten."""

    path: Path
    stack: Stack
    prefix: Path
    modules: tuple[LockedModule, ...]
    kept: bool  # the tree keeps exactly the lock's images; False: this user cannot write to it


def write_lock(
    planned: Planned, path: Path, directory: Path, keep: Callable[[tuple[LockedModule, ...]], None] = lambda _: None
) -> tuple[LockedModule, ...]:
    """Write the lock of an installed stack; returns its modules.

    `directory`: that of the stack or the easyconfig, where the lock is read, wherever it is written. If `keep` fails,
    the lock is not written. Raises what `check_replaceable`, `locked_modules` and `write_text` do.
    """
    check_outside_trees(path)
    check_replaceable(path)
    modules = locked_modules(planned._replace(redecide=True), directory)
    write_text(to_json(modules), path, force=True, first=lambda: keep(modules))
    return modules


def lock_stack(file: Path, path: Path, options: StackOptions, reporter: Reporter, *, forget: bool = False) -> StackLock:
    """Write the lock of a stack, or none to `forget` it; its tree, if writable, then keeps exactly its images.

    Raises the errors of `read_stack` and `write_lock`, LockError, InstallError, PermissionsError.
    """
    planned = read_stack(file, options)
    check_group(planned.site.site)
    stack, layout = planned.stack, planned.layout
    kept = forget or os.access(layout.prefix, os.W_OK)

    def keep(modules: tuple[LockedModule, ...]) -> None:
        def applied(before: Applied | None) -> Applied:
            return (before or Applied(stack.name, str(stack.path), ()))._replace(images=images_of(modules))

        if kept:
            change_record(layout, stack.name, applied, planned.site.site, reporter)

    if forget:
        keep(())
        return StackLock(path, stack, layout.prefix, (), kept)
    modules = write_lock(planned, path, stack.path.parent, keep)
    return StackLock(path, stack, layout.prefix, modules, kept)
