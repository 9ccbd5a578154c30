"""`sifmod stack init`, `outdated`, `lock` and `bundle`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option, site_options
from sifmod.cli.stack_options import Value, given_site, planned_stack

if TYPE_CHECKING:
    from sifmod.actions.lock import LockedModule
    from sifmod.config.stack import Stack


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
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import echo, print_json, say

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
def outdated(file: Path, as_json: bool, **given: Value) -> None:
    """Print what is newer than what is installed: tags that name another image by now, easyconfigs of later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now.
    """
    from sifmod.actions.stack.outdated import outdated as find
    from sifmod.actions.stack.plan import plan_stack
    from sifmod.cli.output import echo, print_json, say
    from sifmod.config.stack import load_stack

    planned, site = planned_stack(load_stack(file), {**given, "skip_sanity_check": True})
    plan = plan_stack(planned)
    found = find(plan, site)
    if as_json:
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


@click.command("lock")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="LOCK", type=click.Path(path_type=Path), help="Write it here, not beside FILE.")
@click.option("--forget", is_flag=True, help="Write none: the tree keeps no image for FILE's lock any more.")
@site_options
@json_option
def lock(file: Path, output: Path | None, forget: bool, as_json: bool, **given: Value) -> None:
    """Write down what is installed: `apply --locked` gives exactly that elsewhere, or fails.

    A lock has the digests of each module's easyconfig, of all that it was made from, of its image and where that came
    from, and of every file that was generated. The tree keeps its images, whatever becomes of their modules, until
    another lock of the stack is written or applied there, or --forget.
    """
    import os

    from sifmod.actions.lock import images_of, lock_beside
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.record import keep_images
    from sifmod.cli.context import load_context, typed
    from sifmod.cli.output import print_json, say
    from sifmod.config.stack import load_stack

    if forget and output:
        raise click.UsageError("--forget writes no lock: give no -o")
    stack, site = load_stack(file), load_context(given_site(given)).site
    path = output or lock_beside(file)
    modules = () if forget else write_lock(stack, path, given, as_json=as_json)
    if forget or os.access(site.prefix, os.W_OK):
        keep_images(stack, images_of(modules), site, Reporter(say, command=typed()))
    else:
        say(f"you cannot write in {site.prefix}, so `sifmod gc` there does not know of this lock")
    if as_json:
        print_json(lock_data(path, modules))
    elif forget:
        say(f"{stack.name}: {site.prefix} keeps no image for its lock any more; `sifmod gc` shows what can go")


def write_lock(stack: "Stack", path: Path, given: Mapping[str, Value], *, as_json: bool) -> "tuple[LockedModule, ...]":
    """Write the lock of a stack that is installed, and say where; gives the modules in it."""
    from sifmod.actions.author.new_file import write_text
    from sifmod.actions.lock import to_json
    from sifmod.actions.stack.record import locked_modules
    from sifmod.cli.output import counted, say

    path = path.absolute()
    planned, _ = planned_stack(stack, {**given, "skip_sanity_check": True})
    modules = locked_modules(planned._replace(anew=True), path)
    write_text(to_json(modules), path, force=True)
    if not as_json:
        say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly that")
    return modules


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
def bundle(file: Path, output: Path, without: Path | None, no_wheels: bool, as_json: bool, **given: Value) -> None:
    """Put a stack that is installed and locked into one file or directory, for `apply --bundle` without a network.

    It holds the images, the easyconfigs with what they were made from, the lock, and sifmod's own wheels. Run it again
    after an interruption: it goes on where it was.
    """
    from sifmod.actions.stack.bundle import items, own_wheels, write_bundle
    from sifmod.cli.output import print_json, say
    from sifmod.cli.progress import progress
    from sifmod.config.stack import load_stack

    stack = load_stack(file)
    _, site = planned_stack(stack, {**given, "skip_sanity_check": True})
    with own_wheels(wanted=not no_wheels) as (wheels, note), progress(not as_json) as update:
        if note:
            say(f"warning: {note}")
        found = tuple(items(stack, site.site, wheels, without.read_text("utf-8", "replace") if without else ""))
        write_bundle(output, iter(found), update)
    if as_json:
        print_json({"path": str(output.absolute()), "size": sum(item.size for item in found)})
    else:
        say(f"{output} is complete; on the other side: sifmod stack apply --bundle {output.name}")
