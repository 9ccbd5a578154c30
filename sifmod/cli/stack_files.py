"""Options of stack commands; `sifmod stack init`, `outdated`, `lock`, `bundle` and `catalogue`."""

from collections.abc import Sized
from dataclasses import replace
from pathlib import Path

import click

from sifmod.actions.start import layout_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import SiteOptions, TreeOptions
from sifmod.config.option import in_full
from sifmod.errors import OptionError
from sifmod.system import reason

with later():
    from sifmod.actions import lock as locks
    from sifmod.actions import outdated as newer
    from sifmod.actions.author import new_file
    from sifmod.actions.catalogue import catalogue as pages
    from sifmod.actions.install import install_easyconfigs
    from sifmod.actions.stack import bundle as bundles
    from sifmod.actions.stack import init as stack_init
    from sifmod.actions.stack import record, stack_plan
    from sifmod.cli import newer as newer_output
    from sifmod.cli import progress
    from sifmod.config import limits
    from sifmod.tree import provenance, receipt


class StackFile(SiteOptions):
    file: Path = argument("FILE", Path)


def installed_stack(given: SiteOptions) -> "stack_plan.StackOptions":
    """The stack options of a command that installs nothing."""
    return stack_plan.StackOptions(
        in_full(given.settings), install_easyconfigs.InstallOptions(asked=provenance.CommandLine(checked=False))
    )


class InitOptions(TreeOptions):
    file: Path = argument("FILE", Path)


@command("stack init", InitOptions, lambda: stack_init.WrittenStack)
def init(given: InitOptions) -> None:
    """Write a stack FILE with all installed modules.

    It lists each module's easyconfig and install options; with `-` as FILE it is printed.
    """
    to_screen = str(given.file) == "-"
    target = Path.cwd() / given.file
    if not to_screen:
        new_file.check_target(target)
    text, notes = stack_init.stack_text(layout_for(given.prefix), "stack" if to_screen else target.stem, target.parent)
    for note in notes:
        say(note)
    if not to_screen:
        new_file.write_text(text, target)
    if given.as_json:
        print_json(stack_init.WrittenStack(None if to_screen else target, text, notes))
    elif to_screen:
        echo(text, nl=False)
    else:
        say(f"{target} is written; preview it with `sifmod stack plan {given.file}`")


@command("stack outdated", StackFile, lambda: newer.Outdated)
def outdated(given: StackFile) -> int:
    """Print what is newer than the stack's installed modules: other images under their tags, and later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now. A server that cannot be asked
    and an easyconfig with problems are named, and the exit code is then 10.
    """
    planned = stack_plan.read_stack(given.file, installed_stack(given))
    plan = stack_plan.plan_stack(planned)
    there = [receipt.live(plan.layout, step.module) for step in plan.steps if step.module and step.generation]
    found = newer.outdated([one for one in there if one], planned.site)
    if given.as_json:
        print_json(found)
    else:
        newer_output.say_newer(found, "", f"none of the stack's modules is installed in {plan.layout.prefix}")
    return newer_output.unasked(found)


class LockOptions(StackFile):
    output: Path | None = None
    forget: bool = False


@command("stack lock", LockOptions, lambda: locks.WrittenLock)
def lock(given: LockOptions) -> None:
    """Lock what is installed, so that `apply --locked` installs exactly the same elsewhere, or fails.

    A lock has the digests of each module's easyconfig, its other inputs, its image and the image's origin, and every
    generated file. The tree keeps the images, even without their modules, until another lock of the stack is written or
    applied there, or until --forget.
    """
    forget = given.forget
    if forget and given.output:
        raise click.UsageError("--forget writes no lock: leave -o out")
    path = locks.lock_path(given.file, given.output)
    found = record.lock_stack(given.file, path, installed_stack(given), reporter(), forget=forget)
    if not forget and not given.as_json:
        say_locked(path, found.modules, locks.lock_path(given.file))
    if not found.kept:
        say(f"you cannot write in {found.prefix}, so `sifmod gc` there does not know of this lock")
    if given.as_json:
        print_json(locks.WrittenLock(path, tuple(one.module for one in found.modules)))
    elif forget:
        say(
            f"{found.stack.name}: {found.prefix} no longer keeps images for its lock; `sifmod gc` shows what can be "
            "removed"
        )


def say_locked(path: Path, modules: "Sized", beside: Path) -> None:
    """Report the path of a lock, and the number of its modules. `beside`: where `--locked` looks for it."""
    use = "`--locked` installs exactly these" if path == beside else f"`--locked` reads {beside} instead"
    say(f"{path}: {counted(len(modules), 'module')}; {use}")


class BundleOptions(StackFile):
    output: Path
    without: Path | None = None
    no_wheels: bool = False


@command("stack bundle", BundleOptions, lambda: bundles.WrittenBundle)
def bundle(given: BundleOptions) -> None:
    """Pack an installed and locked stack into one file or directory, for `apply --bundle` without a network.

    The bundle has the images, the easyconfigs with their inputs, the lock and sifmod's own wheels. After an
    interruption, run the command again to continue.
    """
    output, there = given.output, _digests(given.without) if given.without else ""
    planned = stack_plan.read_stack(given.file, replace(installed_stack(given), whole=True))
    with progress.progress(not given.as_json) as update:
        size = bundles.bundle_stack(planned, output, there, update, wheels=not given.no_wheels)
    if given.as_json:
        print_json(bundles.WrittenBundle(output.absolute(), size))
    else:
        say(f"{output} is complete; on the target machine: sifmod stack apply --bundle {output.name}")


def _digests(file: Path) -> str:
    try:
        return limits.read_bounded(file, "lock_size").decode(errors="replace")
    except limits.NotReadError as error:
        raise OptionError(f"--without: {error}") from error
    except OSError as error:
        raise OptionError(f"--without: {file} cannot be read: {reason(error)}") from error


class CatalogueOptions(SiteOptions):
    easyconfigs: tuple[str, ...] = argument("[STACK | FILE|NAME...]", default=(), many=True)
    everything: bool = False
    title: str | None = None
    output: Path | None = None


@command("stack catalogue", CatalogueOptions, lambda: pages.Catalogue)
def catalogue(given: CatalogueOptions) -> None:
    """Write pages on which users choose among the installed modules, those of a stack, or those of easyconfigs.

    index.html needs no server and loads nothing from elsewhere. Users search it by name and package; for each module it
    shows the commands that load it, a job script, its contents and its changes. --json prints the data.
    """
    output = given.output
    if not output and not given.as_json:
        raise click.UsageError("missing option: -o DIR, or --json")
    if given.everything and given.easyconfigs:
        raise click.UsageError("--all cannot be combined with a stack or easyconfigs")
    site, title = in_full(given.settings), given.title or ""
    made = pages.make_catalogue(pages.CatalogueRequest(site, given.easyconfigs, given.everything, title, output), say)
    if output:
        modules = counted(len(made.catalogue.entries), "module")
        say(f"{modules} in {output}, {counted(made.written, 'file')} written")
    if given.as_json:
        print_json(made.catalogue)
