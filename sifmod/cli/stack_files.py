"""A stack as the command line means it; `sifmod stack init`, `outdated`, `lock`, `bundle` and `catalogue`."""

import os
import time
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import layout_for, load_context, reporter, site_given, tree
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import Given, json_option, prefix_option, several, site_options
from sifmod.errors import ConfigError, OptionError
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.catalogue.entry import Entry
    from sifmod.actions.lock import LockedModule
    from sifmod.actions.stack.stack_options import StackOptions
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


def site_in_full(given: Given) -> dict[str, str]:
    """The options that say what is true of this machine, which mean the same in any directory."""
    from sifmod.config.prefix import in_full

    return {name: in_full(name, text) for name, text in site_given(given).items()}


def stack_given(given: Given, *, locked: bool = False) -> "StackOptions":
    """What the command line asks of a stack."""
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_options import StackOptions
    from sifmod.tree.provenance import CommandLine

    stores, rebuild = given.get("stores", ()), given.get("rebuild", False)
    for store in stores:
        if not Layout(store.absolute()).images.is_dir():
            raise OptionError(f"--from: {store} is no tree of sifmod with images in it")
    install = InstallOptions(
        rebuild=rebuild,
        checked_since=time.time() if rebuild else 0.0,
        offline=given.get("offline", False),
        into_home=given.get("yes", False),
        stores=tuple(store.absolute() for store in stores),
        asked=CommandLine(checked=not given.get("skip_sanity_check", True)),
    )
    return StackOptions(site_in_full(given), install, locked, given.get("only", ()), given.get("jobs"))


@click.command("init")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@prefix_option
@json_option
def init(file: Path, as_json: bool, prefix: str | None) -> None:
    """Write a stack's FILE with all that is installed.

    It names each module's easyconfig and the options it was installed with; `-` prints it.
    """
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.stack.init import stack_text

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
        print_json({"path": None if to_screen else str(target), "text": text, "notes": notes})
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

    found = find(file, stack_given(given))
    if as_json:
        rows = [{**one._asdict(), "module": str(one.module)} for one in found.newer]
        print_json({"newer": rows, "notes": list(found.problems)})
    else:
        for one in found.newer:
            echo(f"{one.module}: {one.note}")
        if not found.newer:
            there = any(step.generation for step in found.plan.steps)
            prefix = found.plan.layout.prefix
            say("nothing newer was found" if there else f"none of its modules is installed in {prefix}")
    for problem in found.problems:
        say(f"warning: {problem}")


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
    from sifmod.actions.lock import lock_beside
    from sifmod.actions.stack.record import lock_stack

    if forget and output:
        raise click.UsageError("--forget writes no lock: give no -o")
    path = (output or lock_beside(file)).absolute()
    found = lock_stack(file, path, stack_given(given), reporter(), forget=forget)
    if not forget and not as_json:
        say_locked(path, found.modules)
    if not found.kept:
        say(f"you cannot write in {found.prefix}, so `sifmod gc` there does not know of this lock")
    if as_json:
        print_json(lock_data(path, found.modules))
    elif forget:
        say(f"{found.stack.name}: {found.prefix} keeps no image for its lock any more; `sifmod gc` shows what can go")


def say_locked(path: Path, modules: "Sized") -> None:
    """Say where a lock was written."""
    say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly that")


def lock_data(path: Path, modules: "Iterable[LockedModule]") -> dict[str, object]:
    """A lock as `--json` tells it."""
    return {"path": str(path.absolute()), "locked": [str(one.module) for one in modules]}


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
    from sifmod.actions.stack.bundle import bundle_stack
    from sifmod.actions.stack.stack_options import read_stack
    from sifmod.cli.progress import progress

    there = without.read_text("utf-8", "replace") if without else ""
    with progress(not as_json) as update:
        size = bundle_stack(read_stack(file, stack_given(given)), output, there, update, wheels=not no_wheels)
    if as_json:
        print_json({"path": str(output.absolute()), "size": size})
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
    from sifmod.actions.catalogue.catalogue import catalogue as made
    from sifmod.actions.catalogue.catalogue import document, write_catalogue
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
        print_json(document(title, entries))


def _of_stack(stack: "Stack", context: "LoadedSite", given: "Mapping[str, str | None]") -> "tuple[Entry, ...]":
    from sifmod.actions.catalogue.gather import of_stack
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.stack_options import Planned
    from sifmod.actions.stack.stack_plan import plan_stack

    planned = Planned(stack, tree(context.site.prefix), context, site_in_full(given), InstallOptions())
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
