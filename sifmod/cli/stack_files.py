"""A stack as the command line means it; `sifmod stack init`, `outdated`, `lock`, `bundle` and `catalogue`."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.command import argument, command
from sifmod.cli.context import layout_for, load_context, reporter, tree
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import SITE_KEYS, Given, SiteOptions, TreeOptions, several
from sifmod.config.option import KEYS
from sifmod.errors import ConfigError, OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.catalogue.entry import Entry
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.lock import LockedModule
    from sifmod.actions.stack.stack_plan import Planned
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.stack import Stack


# what decides which modules a stack comes to
stack_options = several(
    click.option(
        "-j", "--jobs", metavar="N", type=click.IntRange(1, 64), help="Modules at the same time (default: processors)."
    ),
    click.option("--skip-sanity-check", is_flag=True, help="Do not look for commands in the images."),
    click.option("--rebuild", is_flag=True, help="Install again, and check again, even where nothing has changed."),
    click.option("--offline", is_flag=True, help="Use only what is on this machine."),
    click.option("--only", metavar="MODULE", multiple=True, help="This module and no other; may be repeated."),
)


def given_site(given: Given) -> dict[str, str]:
    """The options that say what is true of this machine."""
    return settings_in_full({name: given[name] for name in SITE_KEYS if given.get(name) is not None})


def settings_in_full(settings: Mapping[str, str]) -> dict[str, str]:
    """Keys of the site, with paths that mean the same anywhere."""
    return {name: KEYS[name].in_full(text) for name, text in settings.items()}


def planned(
    stack: "Path | Stack", settings: Mapping[str, str], options: "InstallOptions", jobs: int | None = None
) -> "tuple[Planned, LoadedSite]":
    """The stack, read from its file, with what the command line says, and the site."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.actions.stack.stack_plan import Planned
    from sifmod.config.stack import load_stack

    site = load_context(settings)
    found = load_stack(stack) if isinstance(stack, Path) else stack
    jobs = jobs or fetch_settings(site.site).processors
    return Planned(found, tree(site.site.prefix), dict(settings), options, jobs=jobs), site


def installed_stack(stack: "Path | Stack", given: SiteOptions) -> "tuple[Planned, LoadedSite]":
    """The stack as it is installed, and the site."""
    from sifmod.actions.install.options import InstallOptions
    from sifmod.tree.provenance import CommandLine

    return planned(stack, settings_in_full(given.settings), InstallOptions(asked=CommandLine(checked=False)))


def planned_stack(stack: Path, given: Given) -> "tuple[Planned, LoadedSite]":
    """The stack as it is to be installed, and the site."""
    from sifmod.actions.install.options import InstallOptions
    from sifmod.tree.provenance import CommandLine

    stores = given["stores"]
    for store in stores:
        if not Layout(store.absolute()).images.is_dir():
            raise OptionError(f"--from: {store} is no tree of sifmod with images in it")
    options = InstallOptions(
        rebuild=given["rebuild"],
        checked_since=time.time() if given["rebuild"] else 0.0,
        offline=given["offline"],
        into_home=given.get("yes", False),
        stores=tuple(store.absolute() for store in stores),
        asked=CommandLine(checked=not given["skip_sanity_check"]),
    )
    return planned(stack, given_site(given), options, given["jobs"])


class InitOptions(TreeOptions):
    file: Path = argument("FILE", Path)


@command("stack init", InitOptions)
def init(given: InitOptions) -> None:
    """Write a stack's FILE with all that is installed.

    It names each module's easyconfig and the options it was installed with; `-` prints it.
    """
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.stack.init import stack_text

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
        print_json({"path": None if to_screen else str(target), "text": text, "notes": notes})
    elif to_screen:
        echo(text, nl=False)
    else:
        say(f"{target} is written; `sifmod stack plan {given.file}` shows what it comes to")


class StackOptions(SiteOptions):
    file: Path = argument("FILE", Path)


@command("stack outdated", StackOptions)
def outdated(given: StackOptions) -> None:
    """Print what is newer than what is installed: tags that name another image by now, easyconfigs of later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now.
    """
    from sifmod.actions.stack.outdated import outdated as find
    from sifmod.actions.stack.stack_plan import plan_stack

    planned, site = installed_stack(given.file, given)
    plan = plan_stack(planned)
    found = find(plan, site)
    if given.as_json:
        rows = [{**one._asdict(), "module": str(one.module)} for one in found.newer]
        print_json({"newer": rows, "notes": list(found.problems)})
    else:
        for one in found.newer:
            echo(f"{one.module}: {one.note}")
        if not found.newer:
            there = any(step.generation for step in plan.steps)
            say("nothing newer was found" if there else f"none of its modules is installed in {plan.layout.prefix}")
    for problem in found.problems:
        say(f"warning: {problem}")


class LockOptions(StackOptions):
    output: Path | None = None
    forget: bool = False


@command("stack lock", LockOptions)
def lock(given: LockOptions) -> None:
    """Write down what is installed: `apply --locked` gives exactly that elsewhere, or fails.

    A lock has the digests of each module's easyconfig, of all that it was made from, of its image and where that came
    from, and of every file that was generated. The tree keeps its images, whatever becomes of their modules, until
    another lock of the stack is written or applied there, or --forget.
    """
    from sifmod.actions.lock import images_of, lock_beside
    from sifmod.actions.stack.record import keep_images
    from sifmod.config.stack import load_stack

    file, forget = given.file, given.forget
    if forget and given.output:
        raise click.UsageError("--forget writes no lock: give no -o")
    site = load_context(settings_in_full(given.settings)).site
    stack = load_stack(file)
    tree(site.prefix)
    path = given.output or lock_beside(file)
    modules = () if forget else write_lock(file, path, given)
    if forget or os.access(site.prefix, os.W_OK):
        keep_images(stack, images_of(modules), site, reporter())
    else:
        say(f"you cannot write in {site.prefix}, so `sifmod gc` there does not know of this lock")
    if given.as_json:
        print_json(lock_data(path, modules))
    elif forget:
        say(f"{stack.name}: {site.prefix} keeps no image for its lock any more; `sifmod gc` shows what can go")


def write_lock(stack: "Path | Stack", path: Path, given: SiteOptions) -> "tuple[LockedModule, ...]":
    """Write the lock of a stack that is installed, and say where; gives the modules in it."""
    from sifmod.actions.author.new_file import write_text
    from sifmod.actions.lock import to_json
    from sifmod.actions.stack.record import locked_modules

    path = path.absolute()
    planned, _ = installed_stack(stack, given)
    modules = locked_modules(planned._replace(anew=True), path)
    write_text(to_json(modules), path, force=True)
    if not given.as_json:
        say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly that")
    return modules


def lock_data(path: Path, modules: "Iterable[LockedModule]") -> dict[str, object]:
    """A lock as `--json` tells it."""
    return {"path": str(path.absolute()), "locked": [str(one.module) for one in modules]}


class BundleOptions(StackOptions):
    output: Path
    without: Path | None = None
    no_wheels: bool = False


@command("stack bundle", BundleOptions)
def bundle(given: BundleOptions) -> None:
    """Put a stack that is installed and locked into one file or directory, for `apply --bundle` without a network.

    It holds the images, the easyconfigs with what they were made from, the lock, and sifmod's own wheels. Run it again
    after an interruption: it goes on where it was.
    """
    from sifmod.actions.lock import lock_beside, read_lock
    from sifmod.actions.stack.bundle import items, own_wheels, write_bundle
    from sifmod.actions.stack.decided import decided_here
    from sifmod.cli.progress import progress

    planned, site = installed_stack(given.file, given)
    stack, output, without = planned.stack, given.output, given.without
    decided = decided_here(site, read_lock(lock_beside(stack.path)), stack.path.parent, os.environ)
    with own_wheels(wanted=not given.no_wheels) as wheels, progress(not given.as_json) as update:
        there = without.read_text("utf-8", "replace") if without else ""
        found = tuple(items(stack, site.site, wheels, there, decided))
        write_bundle(output, iter(found), update)
    if given.as_json:
        print_json({"path": str(output.absolute()), "size": sum(item.size for item in found)})
    else:
        say(f"{output} is complete; on the other side: sifmod stack apply --bundle {output.name}")


class CatalogueOptions(SiteOptions):
    easyconfigs: tuple[str, ...] = argument("[STACK | FILE|NAME...]", default=(), many=True)
    everything: bool = False
    title: str | None = None
    output: str | None = None


@command("stack catalogue", CatalogueOptions)
def catalogue(given: CatalogueOptions) -> None:
    """Write pages from which users choose a module: of what is installed, of a stack, or of these easyconfigs.

    index.html needs no server and loads nothing from elsewhere: search over names and packages, and for each module
    the commands that load it, a job script, what is in it, and what is new. --json prints the data.
    """
    from sifmod.actions.author.check import settings_kind
    from sifmod.actions.catalogue.catalogue import catalogue as made
    from sifmod.actions.catalogue.catalogue import document, write_catalogue
    from sifmod.actions.catalogue.entry import compared
    from sifmod.config.stack import load_stack

    easyconfigs, output = given.easyconfigs, given.output
    if not output and not given.as_json:
        raise click.UsageError("missing option: -o DIR, or --json")
    if given.everything and easyconfigs:
        raise click.UsageError("--all goes without easyconfigs")
    context = load_context(given.settings)
    name = "" if context.site.name == "generic" else context.site.name
    if len(easyconfigs) == 1 and settings_kind(Path(easyconfigs[0])) == "stack":
        stack = load_stack(Path(easyconfigs[0]))
        name, entries = stack.name, compared(_of_stack(stack, context, given))
    else:
        entries = compared(_entries(easyconfigs, given.everything, context))
    title = given.title or (f"Modules of {name}" if name else "Modules")
    if output:
        changed = write_catalogue(made(title, entries), Path(output))
        say(f"{counted(len(entries), 'module')} in {output}, {counted(changed, 'file')} written")
    if given.as_json:
        print_json(document(title, entries))


def _of_stack(stack: "Stack", context: "LoadedSite", given: SiteOptions) -> "tuple[Entry, ...]":
    from sifmod.actions.catalogue.gather import of_stack
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_plan import Planned, plan_stack

    planned = Planned(stack, tree(context.site.prefix), settings_in_full(given.settings), InstallOptions())
    return of_stack(plan_stack(planned), os.environ, say)


def _entries(names: tuple[str, ...], everything: bool, context: "LoadedSite") -> "tuple[Entry, ...]":
    """Of a module that is both installed and in an easyconfig, what is installed."""
    from sifmod.actions.catalogue.gather import installable, installed
    from sifmod.config.find import easyconfigs
    from sifmod.config.word import wanted_easyconfig

    def refuse(error: ConfigError) -> None:
        if names:
            raise error
        say(f"warning: {error.problems[0]}; its modules are left out")

    here = {entry.module: entry for entry in installed(tree(context.site.prefix), say)}
    if not names and not everything:
        return tuple(here.values())
    paths = [wanted_easyconfig(name, context.site) for name in names] or easyconfigs(context.site.robot_paths)
    offered = {entry.module: entry for entry in installable(paths, context, os.environ, refuse)}
    return tuple((offered | here).values() if everything else (here.get(name, offered[name]) for name in offered))
