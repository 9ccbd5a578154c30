"""A stack as the command line means it; `sifmod stack init`, `outdated`, `lock`, `bundle` and `catalogue`."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import layout_for, load_context, reporter, tree
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import SITE_KEYS, Given, json_option, prefix_option, several, site_options
from sifmod.errors import ConfigError, OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.catalogue.entry import Entry
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
    from sifmod.config.prefix import in_full

    return {name: in_full(name, given[name]) for name in SITE_KEYS if given.get(name) is not None}


def planned_stack(stack: "Path | Stack", given: Given) -> "tuple[Planned, LoadedSite]":
    """The stack, read from its file, with what the command line says, and the site."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_plan import Planned
    from sifmod.config.stack import load_stack
    from sifmod.tree.provenance import CommandLine

    texts = given_site(given)
    site = load_context(texts)
    stores = given.get("stores", ())
    for store in stores:
        if not Layout(store.absolute()).images.is_dir():
            raise OptionError(f"--from: {store} is no tree of sifmod with images in it")
    options = InstallOptions(
        rebuild=given.get("rebuild", False),
        checked_since=time.time() if given.get("rebuild") else 0.0,
        offline=given.get("offline", False),
        into_home=given.get("yes", False),
        stores=tuple(store.absolute() for store in stores),
        asked=CommandLine(checked=not given["skip_sanity_check"]),
    )
    jobs = given.get("jobs") or fetch_settings(site.site).processors
    return Planned(
        load_stack(stack) if isinstance(stack, Path) else stack, tree(site.site.prefix), texts, options, jobs=jobs
    ), site


@click.command("init")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@prefix_option
@json_option
def init(file: Path, as_json: bool, prefix: str | None) -> None:
    """Write a stack's FILE with all that is installed.

    It names each module's easyconfig and the options it was installed with; `-` prints it.
    """
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.stack.init import StackFile, stack_text

    to_screen = str(file) == "-"
    target = Path.cwd() / file
    if not to_screen:
        check_target(target)
    text, notes = stack_text(layout_for(prefix), "stack" if to_screen else target.stem, target.parent)
    for note in notes:
        say(note)
    if not to_screen:
        write_text(text, target)
    if as_json:
        print_json(StackFile(None if to_screen else target, text, notes))
    elif to_screen:
        echo(text, nl=False)
    else:
        say(f"{target} is written; `sifmod stack plan {file}` shows what it comes to")


@click.command("outdated")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@site_options
@json_option
def outdated(file: Path, as_json: bool, **given: Any) -> None:
    """Print what is newer than what is installed: tags that name another image by now, easyconfigs of later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now.
    """
    from sifmod.actions.stack.outdated import outdated as find
    from sifmod.actions.stack.stack_plan import plan_stack

    planned, site = planned_stack(file, {**given, "skip_sanity_check": True})
    plan = plan_stack(planned)
    found = find(plan, site)
    if as_json:
        print_json(found)
    else:
        for one in found.newer:
            echo(f"{one.module}: {one.note}")
        if not found.newer:
            there = any(step.generation for step in plan.steps)
            say("nothing newer was found" if there else f"none of its modules is installed in {plan.layout.prefix}")
    for note in found.notes:
        say(f"warning: {note}")


@click.command("lock")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="LOCK", type=click.Path(path_type=Path), help="Write it here, not beside FILE.")
@click.option("--forget", is_flag=True, help="Write none: the tree keeps no image for FILE's lock any more.")
@site_options
@json_option
def lock(file: Path, output: Path | None, forget: bool, as_json: bool, **given: Any) -> None:
    """Write down what is installed: `apply --locked` gives exactly that elsewhere, or fails.

    A lock has the digests of each module's easyconfig, of all that it was made from, of its image and where that came
    from, and of every file that was generated. The tree keeps its images, whatever becomes of their modules, until
    another lock of the stack is written or applied there, or --forget.
    """
    from sifmod.actions.lock import WrittenLock, images_of, lock_beside
    from sifmod.actions.stack.record import keep_images
    from sifmod.config.stack import load_stack

    if forget and output:
        raise click.UsageError("--forget writes no lock: give no -o")
    site = load_context(given_site(given)).site
    stack = load_stack(file)
    tree(site.prefix)
    path = output or lock_beside(file)
    modules = () if forget else write_lock(file, path, given, as_json=as_json)
    if forget or os.access(site.prefix, os.W_OK):
        keep_images(stack, images_of(modules), site, reporter())
    else:
        say(f"you cannot write in {site.prefix}, so `sifmod gc` there does not know of this lock")
    if as_json:
        print_json(WrittenLock(path.absolute(), tuple(one.module for one in modules)))
    elif forget:
        say(f"{stack.name}: {site.prefix} keeps no image for its lock any more; `sifmod gc` shows what can go")


def write_lock(stack: "Path | Stack", path: Path, given: Given, *, as_json: bool) -> "tuple[LockedModule, ...]":
    """Write the lock of a stack that is installed, and say where; gives the modules in it."""
    from sifmod.actions.author.new_file import write_text
    from sifmod.actions.lock import to_json
    from sifmod.actions.stack.record import locked_modules

    path = path.absolute()
    planned, _ = planned_stack(stack, {**given, "skip_sanity_check": True})
    modules = locked_modules(planned._replace(anew=True), path)
    write_text(to_json(modules), path, force=True)
    if not as_json:
        say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly that")
    return modules


@click.command("bundle")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="FILE.tar|DIR", required=True, type=click.Path(path_type=Path), help="Where it goes."
)
@click.option(
    "--without",
    metavar="LIST",
    type=click.Path(path_type=Path),
    help="Leave out the images whose digests are in this file, such as `ls PREFIX/images/sha256` of the other side.",
)
@click.option("--no-wheels", is_flag=True, help="Leave out sifmod itself.")
@site_options
@json_option
def bundle(file: Path, output: Path, without: Path | None, no_wheels: bool, as_json: bool, **given: Any) -> None:
    """Put a stack that is installed and locked into one file or directory, for `apply --bundle` without a network.

    It holds the images, the easyconfigs with what they were made from, the lock, and sifmod's own wheels. Run it again
    after an interruption: it goes on where it was.
    """
    from sifmod.actions.lock import lock_beside, read_lock
    from sifmod.actions.stack.bundle import WrittenBundle, items, own_wheels, write_bundle
    from sifmod.actions.stack.decided import decided_here
    from sifmod.cli.progress import progress

    planned, site = planned_stack(file, {**given, "skip_sanity_check": True})
    stack = planned.stack
    decided = decided_here(site, read_lock(lock_beside(stack.path)), stack.path.parent, os.environ)
    with own_wheels(wanted=not no_wheels) as wheels, progress(not as_json) as update:
        there = without.read_text("utf-8", "replace") if without else ""
        found = tuple(items(stack, site.site, wheels, there, decided))
        write_bundle(output, iter(found), update)
    if as_json:
        print_json(WrittenBundle(output.absolute(), sum(item.size for item in found)))
    else:
        say(f"{output} is complete; on the other side: sifmod stack apply --bundle {output.name}")


@click.command("catalogue")
@click.argument("easyconfigs", nargs=-1, metavar="[STACK | FILE|NAME...]")
@click.option("--all", "everything", is_flag=True, help="Also what the easyconfigs on the easyconfig path can install.")
@click.option("--title", metavar="TEXT", help="What stands above it (default: Modules of SITE).")
@click.option(
    "-o", "--output", metavar="DIR", help="Write it here: index.html, catalogue.json, and Markdown in pages/."
)
@site_options
@json_option
def catalogue(
    easyconfigs: tuple[str, ...],
    everything: bool,
    title: str | None,
    output: str | None,
    as_json: bool,
    **site: str | None,
) -> None:
    """Write pages from which users choose a module: of what is installed, of a stack, or of these easyconfigs.

    index.html needs no server and loads nothing from elsewhere: search over names and packages, and for each module
    the commands that load it, a job script, what is in it, and what is new. --json prints the data.
    """
    from sifmod.actions.author.check import settings_kind
    from sifmod.actions.catalogue.catalogue import Catalogue, write_catalogue
    from sifmod.actions.catalogue.catalogue import catalogue as made
    from sifmod.actions.catalogue.entry import compared
    from sifmod.config.stack import load_stack

    if not output and not as_json:
        raise click.UsageError("missing option: -o DIR, or --json")
    if everything and easyconfigs:
        raise click.UsageError("--all goes without easyconfigs")
    context = load_context(site)
    name = "" if context.site.name == "generic" else context.site.name
    if len(easyconfigs) == 1 and settings_kind(Path(easyconfigs[0])) == "stack":
        stack = load_stack(Path(easyconfigs[0]))
        name, entries = stack.name, compared(_of_stack(stack, context, site))
    else:
        entries = compared(_entries(easyconfigs, everything, context))
    title = title or (f"Modules of {name}" if name else "Modules")
    if output:
        changed = write_catalogue(made(title, entries), Path(output))
        say(f"{counted(len(entries), 'module')} in {output}, {counted(changed, 'file')} written")
    if as_json:
        print_json(Catalogue(title, entries))


def _of_stack(stack: "Stack", context: "LoadedSite", given: "Mapping[str, str | None]") -> "tuple[Entry, ...]":
    from sifmod.actions.catalogue.gather import of_stack
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_plan import Planned, plan_stack

    planned = Planned(stack, tree(context.site.prefix), given_site(given), InstallOptions())
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
