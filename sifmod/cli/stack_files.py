"""Options of stack commands; `sifmod stack init`, `outdated`, `lock`, `bundle` and `catalogue`."""

from collections.abc import Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.actions.start import layout_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import SiteOptions, TreeOptions
from sifmod.config.option import in_full

if TYPE_CHECKING:
    from sifmod.actions.stack.stack_options import StackOptions


class StackFile(SiteOptions):
    file: Path = argument("FILE", Path)


def installed_stack(given: SiteOptions) -> "StackOptions":
    """The stack options of a command that installs nothing."""
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_options import StackOptions
    from sifmod.tree.provenance import CommandLine

    return StackOptions(in_full(given.settings), InstallOptions(asked=CommandLine(checked=False)))


class InitOptions(TreeOptions):
    file: Path = argument("FILE", Path)


@command("stack init", InitOptions)
def init(given: InitOptions) -> None:
    """Write a stack FILE with all installed modules.

    It lists each module's easyconfig and install options; with `-` as FILE it is printed.
    """
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.stack.init import WrittenStack, stack_text

    to_screen = str(given.file) == "-"
    target = Path.cwd() / given.file
    if not to_screen:
        check_target(target)
    text, notes = stack_text(layout_for(given.prefix), "stack" if to_screen else target.stem, target.parent)
    for note in notes:
        say(note)
    if not to_screen:
        write_text(text, target)
    if given.as_json:
        print_json(WrittenStack(None if to_screen else target, text, notes))
    elif to_screen:
        echo(text, nl=False)
    else:
        say(f"{target} is written; preview it with `sifmod stack plan {given.file}`")


@command("stack outdated", StackFile)
def outdated(given: StackFile) -> None:
    """Print what is newer than the stack's installed modules: other images under their tags, and later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now.
    """
    from sifmod.actions.outdated import outdated as find
    from sifmod.actions.stack.stack_options import read_stack
    from sifmod.actions.stack.stack_plan import plan_stack
    from sifmod.tree.receipt import live

    planned = read_stack(given.file, installed_stack(given))
    plan = plan_stack(planned)
    there = [live(plan.layout, step.module) for step in plan.steps if step.module and step.generation]
    found = find([one for one in there if one], planned.site)
    if given.as_json:
        print_json(found)
        return
    for one in found.newer:
        echo(f"{one.module}: {one.note}")
    for note in found.notes:
        say(f"warning: {note}")
    if not found.newer:
        none = f"none of the stack's modules is installed in {plan.layout.prefix}"
        say("nothing newer was found" if found.looked_at else none)


class LockOptions(StackFile):
    output: Path | None = None
    forget: bool = False


@command("stack lock", LockOptions)
def lock(given: LockOptions) -> None:
    """Lock what is installed, so that `apply --locked` installs exactly the same elsewhere, or fails.

    A lock has the digests of each module's easyconfig, its other inputs, its image and the image's origin, and every
    generated file. The tree keeps the images, even without their modules, until another lock of the stack is written or
    applied there, or until --forget.
    """
    from sifmod.actions.lock import WrittenLock, lock_path
    from sifmod.actions.stack.record import lock_stack

    forget = given.forget
    if forget and given.output:
        raise click.UsageError("--forget writes no lock: leave -o out")
    path = lock_path(given.file, given.output)
    found = lock_stack(given.file, path, installed_stack(given), reporter(), forget=forget)
    if not forget and not given.as_json:
        say_locked(path, found.modules)
    if not found.kept:
        say(f"you cannot write in {found.prefix}, so `sifmod gc` there does not know of this lock")
    if given.as_json:
        print_json(WrittenLock(path, tuple(one.module for one in found.modules)))
    elif forget:
        say(
            f"{found.stack.name}: {found.prefix} no longer keeps images for its lock; `sifmod gc` shows what can be "
            "removed"
        )


def say_locked(path: Path, modules: "Sized") -> None:
    """Report the path of a lock, and the number of its modules."""
    say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly these")


class BundleOptions(StackFile):
    output: Path
    without: Path | None = None
    no_wheels: bool = False


@command("stack bundle", BundleOptions)
def bundle(given: BundleOptions) -> None:
    """Pack an installed and locked stack into one file or directory, for `apply --bundle` without a network.

    The bundle has the images, the easyconfigs with their inputs, the lock and sifmod's own wheels. After an
    interruption, run the command again to continue.
    """
    from sifmod.actions.stack.bundle import WrittenBundle, bundle_stack
    from sifmod.actions.stack.stack_options import read_stack
    from sifmod.cli.progress import progress

    output, there = given.output, given.without.read_text("utf-8", "replace") if given.without else ""
    planned = read_stack(given.file, replace(installed_stack(given), whole=True))
    with progress(not given.as_json) as update:
        size = bundle_stack(planned, output, there, update, wheels=not given.no_wheels)
    if given.as_json:
        print_json(WrittenBundle(output.absolute(), size))
    else:
        say(f"{output} is complete; on the target machine: sifmod stack apply --bundle {output.name}")


class CatalogueOptions(SiteOptions):
    easyconfigs: tuple[str, ...] = argument("[STACK | FILE|NAME...]", default=(), many=True)
    everything: bool = False
    title: str | None = None
    output: Path | None = None


@command("stack catalogue", CatalogueOptions)
def catalogue(given: CatalogueOptions) -> None:
    """Write pages on which users choose among the installed modules, those of a stack, or those of easyconfigs.

    index.html needs no server and loads nothing from elsewhere. Users search it by name and package; for each module it
    shows the commands that load it, a job script, its contents and its changes. --json prints the data.
    """
    from sifmod.actions.catalogue.make import CatalogueRequest, make_catalogue

    output = given.output
    if not output and not given.as_json:
        raise click.UsageError("missing option: -o DIR, or --json")
    if given.everything and given.easyconfigs:
        raise click.UsageError("--all cannot be combined with a stack or easyconfigs")
    site, title = in_full(given.settings), given.title or ""
    made = make_catalogue(CatalogueRequest(site, given.easyconfigs, given.everything, title, output), say)
    if output:
        modules = counted(len(made.catalogue.entries), "module")
        say(f"{modules} in {output}, {counted(made.written, 'file')} written")
    if given.as_json:
        print_json(made.catalogue)
